// What is known of answers' quality, by cached prefix and by (method, keep). No I/O, no clock.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "codec/method.h"
#include "core/hash.h"
#include "core/lru_map.h"
#include "metadata/context_kind.h"

namespace shale {

// From surest to least sure.
enum class QualitySource : std::uint8_t {
  kMeasured,  // on this cached prefix
  kPrior,     // on others of the same model
  kBound,     // nowhere: the error of attention's output over this cached prefix is so small that answers can hardly
              // differ
};

struct Quality {
  double quality = 0;   // [0, 1] against the full cache: as measured, else as expected
  double expected = 0;  // of the next question, for decisions: see below
  double spread = 0;    // standard deviation of what the cached prefix's quality may truly be
  QualitySource source = QualitySource::kMeasured;
  std::uint32_t prefixes = 1;  // that it was measured on

  bool prior() const { return source != QualitySource::kMeasured; }
};

// A profile of few questions is noisy, and whoever picks the best of many configurations by it picks the luckiest. So
// decisions go by the measured mean drawn toward the prior, as if other cached prefixes had answered kPriorQuestions
// more questions for this one (empirical Bayes shrinkage: Efron and Morris 1975). The prior is the mean of the cached
// prefixes of the same kind of context, each by one weight however many questions it answered, drawn toward the mean of
// all in the same way, as if kPriorPrefixes more of that kind were like them. Texts that ship with Shale say what to
// expect of a server's contexts until some of these were measured: the mean of all others is drawn toward theirs, and
// the mean of all others of a kind toward theirs of it.
inline constexpr double kPriorQuestions = 4;
inline constexpr double kPriorPrefixes = 2;
// Fewer profiled cached prefixes say nothing about others.
inline constexpr std::uint32_t kPriorPrefixesMin = 3;
// Cached prefixes that are known to be shorter drop tokens only by their own measurement: profiled contexts are longer,
// and a short one has fewer tokens to spare.
inline constexpr std::uint32_t kPriorTokensMin = 128;
// Relative error of attention's output (near_lossless.h) up to which a quantizer counts as near lossless.
inline constexpr double kNearLossless = 0.03;

class QualityTable {
 public:
  // Cached prefixes whose kinds and errors are kept; beyond so many, those told of longest ago are forgotten.
  static constexpr std::size_t kPrefixesMax = 65536;

  // What the cached prefix's text is like; `tokens` 0: not known. May be said again.
  void describe(const Hash128& prefix, ContextKind kind, std::uint32_t tokens);
  std::optional<ContextKind> kind(const Hash128& prefix) const;
  // The cached prefix is a text that ships with Shale.
  void note_shipped(const Hash128& prefix);
  const std::unordered_set<Hash128>& shipped() const { return shipped_; }
  // How far coding all of the cached prefix's tokens moves attention's output, relative; `method` has no scorer.
  void bound_error(const Hash128& prefix, const Method& method, double error);
  // The cached prefix was computed behind lossy forms, over which answers were expected to be worth so much.
  void inherit(const Hash128& prefix, double quality);
  std::optional<double> inherited(const Hash128& prefix) const;
  // `questions`: that `quality` is the mean of; 0 counts as one.
  void record(const Hash128& prefix, const Method& method, double keep, double quality, std::uint32_t questions);
  void forget(const Hash128& prefix);
  // What was recorded; what cached prefixes are like stays known.
  void forget_measured() { measured_.clear(); }
  void forget_inherited() { inherited_ = {}; }

  // The cached prefix's own profile; else the mean of other profiled cached prefixes at this (method, keep), those of
  // this server and of its kind first, which is AdaptCache's cheap profile (arXiv 2509.00105); else, where it is near
  // lossless, one less its error; else nothing. `full` is 1 by definition.
  std::optional<Quality> quality_for(const Hash128& prefix, const Method& method, double keep) const;
  // Those that the method was measured on over the cached prefix, at the keep of fewest; 0: never.
  std::uint32_t questions(const Hash128& prefix, const Method& method) const;

 private:
  using Key = std::pair<std::string, std::int64_t>;  // method's text, keep in millionths
  struct OfPrefix {
    double quality = 0;
    double questions = 0;
  };
  // Sums over cached prefixes.
  struct Sums {
    double count = 0, sum = 0, squares = 0;
    void add(double quality, double sign);
    void add(const Sums& other);
    double mean() const { return sum / count; }
    double variance() const;
  };
  using ByKind = std::array<Sums, kContextKinds + 1>;  // the last: of cached prefixes whose kind is not known
  struct Measured {
    std::unordered_map<Hash128, OfPrefix> of_prefix;
    ByKind shipped, own;
  };
  // Where what was measured on a cached prefix counts.
  struct Place {
    bool shipped = false;
    std::size_t kind = kContextKinds;
    bool operator==(const Place&) const = default;
    Sums& in(Measured& measured) const { return (shipped ? measured.shipped : measured.own)[kind]; }
  };
  struct Described {
    ContextKind kind = ContextKind::kProse;
    std::uint32_t tokens = 0;
  };
  struct Prior {
    double mean = 0, variance = 0;
    std::uint32_t prefixes = 0;
  };
  static Key key_of(const Method& method, double keep);
  Place place(const Hash128& prefix) const;
  // What was recorded of the prefix counts elsewhere from now on.
  void move_measured(const Hash128& prefix, const Place& from, const Place& to);
  // As if kPriorPrefixes more were as the other says.
  static Prior drawn(const Sums& sums, const Prior& toward);
  // The prior from cached prefixes other than this one.
  Prior prior_of(const Measured& measured, const Hash128& prefix) const;
  std::optional<Quality> near_lossless(const Hash128& prefix, const Method& method) const;

  std::map<Key, Measured> measured_;
  LruMap<Hash128, Described> described_;
  LruMap<Hash128, double> inherited_;
  std::unordered_set<Hash128> shipped_;
  LruMap<Hash128, std::map<std::string, double>> errors_;  // by cached prefix and method
};

}  // namespace shale
