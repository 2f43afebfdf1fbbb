// What is known of answers' quality, by entry and by (method, keep). No I/O, no clock.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "codec/method.h"
#include "core/hash.h"

namespace shale {

struct Quality {
  double quality = 0;         // [0, 1] against the full cache, as measured
  double expected = 0;        // of the next question, for decisions: see below
  bool prior = false;         // not measured on this entry: the mean over others of the same model
  std::uint32_t entries = 1;  // that the figure comes from
};

// A profile of few questions is noisy, and whoever picks the best of many configurations by it picks the luckiest. So
// decisions go by the measured mean drawn toward that of the other profiled entries, as if those had answered
// kPriorQuestions more questions for this one (empirical Bayes shrinkage: Efron and Morris 1975).
inline constexpr double kPriorQuestions = 4;

class QualityTable {
 public:
  // `questions`: that the figure is the mean of; 0 counts as one.
  void record(const Hash128& entry, const Method& method, double keep, double quality, std::uint32_t questions);
  void forget(const Hash128& entry);
  void clear() { measured_.clear(); }

  // The entry's own profile; else the mean of all profiled entries at this (method, keep), which is AdaptCache's cheap
  // profile (arXiv 2509.00105) and flagged as a prior; else nothing. `full` is 1 by definition.
  std::optional<Quality> quality_for(const Hash128& entry, const Method& method, double keep) const;

 private:
  using Key = std::pair<std::string, std::int64_t>;  // method's text, keep in millionths
  struct OfEntry {
    double quality = 0;
    double questions = 0;
  };
  struct Measured {
    std::unordered_map<Hash128, OfEntry> of_entry;
    double sum = 0;
  };
  static Key key_of(const Method& method, double keep);

  std::map<Key, Measured> measured_;
};

}  // namespace shale
