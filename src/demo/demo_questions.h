// The demo's default documents: licence texts that every Debian machine has, with questions that people ask of them.
#pragma once

#include <array>
#include <span>
#include <string_view>

namespace shale {

struct LicenceQuestions {
  std::string_view file;                      // in kLicenceFolder
  std::array<std::string_view, 3> profiling;  // asked to learn what compression costs
  std::array<std::string_view, 3> requests;   // asked by the workload; none of them is a profiling question
};

inline constexpr std::string_view kLicenceFolder = "/usr/share/common-licenses";

// Sorted so that the first twelve differ most; all answerable from the first thousand tokens of the text.
std::span<const LicenceQuestions> licence_questions();

}  // namespace shale
