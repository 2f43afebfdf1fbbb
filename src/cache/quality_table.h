// What is known of answers' quality, by entry and by (method, keep). No I/O, no clock.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "cache/context_kind.h"
#include "codec/method.h"
#include "core/hash.h"

namespace shale {

// From surest to least sure.
enum class QualitySource : std::uint8_t {
  kMeasured,  // on this entry
  kPrior,     // on others of the same model
  kBound,     // nowhere: the error of attention's output over this entry is so small that answers can hardly differ
};

struct Quality {
  double quality = 0;   // [0, 1] against the full cache: as measured, else as expected
  double expected = 0;  // of the next question, for decisions: see below
  double spread = 0;    // standard deviation of what the entry's quality may truly be
  QualitySource source = QualitySource::kMeasured;
  std::uint32_t entries = 1;  // that the figure comes from

  bool prior() const { return source != QualitySource::kMeasured; }
};

// A profile of few questions is noisy, and whoever picks the best of many configurations by it picks the luckiest. So
// decisions go by the measured mean drawn toward the prior, as if other entries had answered kPriorQuestions more
// questions for this one (empirical Bayes shrinkage: Efron and Morris 1975). The prior is the mean of the entries of
// the same kind of context, drawn toward the mean of all in the same way, as if kKindEntries more of that kind were
// like them.
inline constexpr double kPriorQuestions = 4;
inline constexpr double kKindEntries = 2;
// Fewer profiled entries say nothing about others.
inline constexpr std::uint32_t kPriorEntriesMin = 3;
// Of entries that are known to be shorter, tokens are dropped only by their own measurement: contexts that profiles are
// made of are longer, and a short one has fewer tokens to spare.
inline constexpr std::uint32_t kPriorTokensMin = 128;
// Relative error of attention's output (near_lossless.h) up to which a quantizer counts as near lossless.
inline constexpr double kNearLossless = 0.03;

class QualityTable {
 public:
  // What the entry's text is like; `tokens` 0: not known. May be said again.
  void describe(const Hash128& entry, ContextKind kind, std::uint32_t tokens);
  std::optional<ContextKind> kind(const Hash128& entry) const;
  // How far coding all of the entry's tokens moves attention's output, relative; `method` has no scorer.
  void bound_error(const Hash128& entry, const Method& method, double error);
  // `questions`: that the figure is the mean of; 0 counts as one.
  void record(const Hash128& entry, const Method& method, double keep, double quality, std::uint32_t questions);
  void forget(const Hash128& entry);
  // What was recorded; what entries are like stays known.
  void forget_measured() { measured_.clear(); }

  // The entry's own profile; else the mean of other profiled entries at this (method, keep), those of its kind first,
  // which is AdaptCache's cheap profile (arXiv 2509.00105); else, where it is near lossless, one less its error; else
  // nothing. `full` is 1 by definition.
  std::optional<Quality> quality_for(const Hash128& entry, const Method& method, double keep) const;

 private:
  using Key = std::pair<std::string, std::int64_t>;  // method's text, keep in millionths
  struct OfEntry {
    double quality = 0;
    double questions = 0;
  };
  // Over entries.
  struct Sums {
    double count = 0, sum = 0, squares = 0;
    void add(double quality, double sign);
    void add(const Sums& other);
    double mean() const { return sum / count; }
    double variance() const;
  };
  struct Measured {
    std::unordered_map<Hash128, OfEntry> of_entry;
    std::array<Sums, kContextKinds + 1> by_kind;  // the last: of entries whose kind is not known
  };
  struct Described {
    ContextKind kind = ContextKind::kProse;
    std::uint32_t tokens = 0;
  };
  struct Prior {
    double mean = 0, variance = 0;
    std::uint32_t entries = 0;
  };
  static Key key_of(const Method& method, double keep);
  std::size_t place(const Hash128& entry) const;
  // From entries other than this one.
  Prior prior_of(const Measured& measured, const Hash128& entry) const;
  std::optional<Quality> near_lossless(const Hash128& entry, const Method& method) const;

  std::map<Key, Measured> measured_;
  std::unordered_map<Hash128, Described> described_;
  std::unordered_map<Hash128, std::map<std::string, double>> errors_;  // by entry and method
};

}  // namespace shale
