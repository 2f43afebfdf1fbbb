// What measuring the weight types decided, and the file that keeps it.
//
// Two measurements may name different winners where types are about equally fast. The KV of different types differs by
// rounding, so a winner is measured once and then read: the next process continues stored KV token for token, and loads
// without measuring.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/hash.h"
#include "model/weights/weights.h"

namespace shale {

struct WeightRecord {
  struct Winner {
    RunType type = RunType::kFile;
    double speed = 1;  // over the file's own types
  };
  Winner prefill, decode;
  std::uint32_t prefill_from = 0;  // steps of this many tokens and more run prefill's type; 0 where both are one type

  // Three lines: "prefill bf16 1.93", "decode file 1.00", "from 8".
  std::string text() const;
  // Nothing when the text is not such a record, or names a type that is no candidate or a number that was not timed.
  static std::optional<WeightRecord> parse(std::string_view text, std::span<const RunType> candidates);
};

// What the fastest types depend on: a model file's content, the processor, its instruction sets as the matrix library
// uses them, that library's version and the number of threads; 0: of any number, for engines of a machine that have
// different ones share what they store.
Hash128 weight_matter(const Hash128& model, std::size_t threads = 0);

class WeightRecordFile {
 public:
  // One file in `folder` for all that the types depend on.
  WeightRecordFile(const std::filesystem::path& folder, const Hash128& model, std::size_t threads);

  const std::filesystem::path& path() const { return path_; }
  // Nothing when there is no file, or it cannot be read or parsed.
  std::optional<WeightRecord> read(std::span<const RunType> candidates) const;
  // Replaces the file in one step, mode 0600. One that cannot be written is left out: the next load measures again.
  void write(const WeightRecord& record) const;

 private:
  std::filesystem::path path_;
};

}  // namespace shale
