// Importance of a run's tokens, head by head, as the tiers that compression deletes: what scorers and budgets make of
// keys, values and attention, in the form in which it is used and kept. A run is ranked once, while what scorers read
// is at hand; extents of it can then be compressed at any time, in any quantizer, from their bytes alone.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "codec/method.h"
#include "codec/views/kv_view.h"
#include "core/executor.h"
#include "scoring/attention_statistics.h"
#include "scoring/scorer.h"

namespace shale {

// Tiers are numbered by kKeepGrid, 0 the most important; tokens of tier t and below are what keep kKeepGrid[t] keeps.
inline constexpr std::uint32_t kImportanceTiers = kKeepGrid.size();
// The tiers that hold what `keep`, in (0, 1], keeps: those up to the first of the grid that reaches it.
std::uint32_t tiers_for(double keep);

// The tier of every token of every head, three bits each. Head number = layer · kv_heads + head. Empty: no ranking.
class TierMap {
 public:
  TierMap() = default;
  // All tokens in tier 0.
  TierMap(std::uint32_t heads, std::uint32_t tokens);
  // bytes() of another; kCorrupt unless they are bytes_of(heads, tokens) and hold no tier that there is not.
  static Result<TierMap> parse(std::uint32_t heads, std::uint32_t tokens, std::span<const std::byte> bytes);
  static std::size_t bytes_of(std::uint32_t heads, std::uint32_t tokens);

  bool empty() const { return tokens_ == 0; }
  std::uint32_t heads() const { return heads_; }
  std::uint32_t tokens() const { return tokens_; }
  std::uint32_t tier(std::uint32_t head, std::uint32_t token) const;
  void set(std::uint32_t head, std::uint32_t token, std::uint32_t tier);
  // The tokens of `head` from 64 · word to the 63rd after it that are among [first, last) and in tiers [tier, end), as
  // bits.
  std::uint64_t bits(std::uint32_t head, std::uint32_t word, std::uint32_t first, std::uint32_t last,
                     std::uint32_t tier, std::uint32_t end) const;
  // How many of tokens [first, last) of `head` are in tiers [tier, end).
  std::uint32_t count(std::uint32_t head, std::uint32_t first, std::uint32_t last, std::uint32_t tier,
                      std::uint32_t end) const;
  // Tokens [first, first + count) of all heads.
  TierMap part(std::uint32_t first, std::uint32_t count) const;

  // u64[heads][ceil(tokens / 64)][3]: bit i of number p is bit p of the tier of token 64 · word + i; zero beyond the
  // last token.
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(planes_)); }
  bool operator==(const TierMap&) const = default;

 private:
  std::uint32_t words() const { return (tokens_ + 63) / 64; }
  const std::uint64_t* planes(std::uint32_t head, std::uint32_t word) const {
    return &planes_[(std::size_t{head} * words() + word) * 3];
  }
  std::uint32_t heads_ = 0, tokens_ = 0;
  std::vector<std::uint64_t> planes_;
};

// Tokens of one tier that lie next to each other, and the first one's row among those that tiers below `end` keep.
struct PlacedRun {
  std::uint32_t token = 0, row = 0, count = 0;
};

// Cuts those of `head` in `tier` among tokens [first, last) into runs, in order; rows count from token `first`.
template <class Visit>
void for_each_run(const TierMap& map, std::uint32_t head, std::uint32_t first, std::uint32_t last, std::uint32_t tier,
                  std::uint32_t end, const Visit& visit) {
  std::uint32_t row = 0;
  for (std::uint32_t word = first / 64; word * 64 < last; ++word) {
    const std::uint64_t kept = map.bits(head, word, first, last, 0, end);
    for (std::uint64_t bits = map.bits(head, word, first, last, tier, tier + 1); bits != 0;) {
      const int from = std::countr_zero(bits), count = std::countr_one(bits >> from);
      const std::uint64_t before = (std::uint64_t{1} << from) - 1;
      visit(PlacedRun{word * 64 + static_cast<std::uint32_t>(from),
                      row + static_cast<std::uint32_t>(std::popcount(kept & before)),
                      static_cast<std::uint32_t>(count)});
      if (from + count == 64) break;
      bits &= ~std::uint64_t{0} << (from + count);
    }
    row += static_cast<std::uint32_t>(std::popcount(kept));
  }
}

struct Ranking {
  std::string name;  // "scorer" or "budget:scorer", Method::ranking()
  TierMap tiers;     // of all layers and heads
};

// Of so many layers those that are ranked: the ones without a window (ModelTraits::windows), ascending. Tokens of the
// others are all in tier 0.
std::vector<std::uint32_t> ranked_layers(std::uint32_t layers, std::span<const std::uint32_t> windows);

// Ranks a run in bounded pieces. One caller at a time.
class RunRanker {
 public:
  // The view must stay readable, and `attention statistics` and what `model` refers to in place, until done.
  // `first_position` is that of the run's first token. kInvalidArgument for unknown names, views that do not pass
  // check(), needs of the scorer that are not met (by name) and attention statistics of another run; kUnsupported for
  // opaque blocks and for a head dimension that is no multiple of 8.
  static Result<RunRanker> start(KvView run, std::string_view ranking, std::uint32_t first_position,
                                 const ScorerOptions& options, const AttentionStatistics& statistics,
                                 const ModelTraits& model);
  static Result<RunRanker> start(KvView run, std::string_view ranking, std::uint32_t first_position,
                                 const ScorerOptions& options, const AttentionStatistics&& statistics,
                                 const ModelTraits& model) = delete;
  ~RunRanker();
  RunRanker(RunRanker&&) noexcept;
  RunRanker& operator=(RunRanker&&) noexcept;

  // Scores the next layers, one a thread, and then cuts tiers: one layer's, or under a budget one tier of all layers.
  // False when all is done.
  bool step(Executor& executor);
  // Once, after step() returned false.
  Ranking finish();

 private:
  struct State;
  explicit RunRanker(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace shale
