// A scorer says how much each token of a context matters. Higher = keep. One file each, named as the registry names it;
// the definition and the paper stand at its head.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "paging/page_shape.h"
#include "scoring/rope.h"

namespace shale {

// Names what a scorer reads. The engine captures it while the context is computed and passes it in LayerKv's fields.
struct ScorerNeeds {
  bool keys = false;
  bool values = false;
  std::uint32_t last_queries = 0;  // attention queries of the last so many tokens (after RoPE), 0 for none
  bool attention_sums = false;
  bool query_moments = false;  // query_mean and query_covariance
  bool repeat_attention = false;
  bool rope = false;  // the rotation, and first_position
  bool calibration = false;
};

// Names the needs that `given` does not meet, in words for a message: "the rotation of keys and a calibration"; empty
// if nothing is missing. `given` with many last_queries offers as many as there are.
std::string missing_needs(const ScorerNeeds& needs, const ScorerNeeds& given);

class Calibration;

// Options every scorer understands or ignores.
struct ScorerOptions {
  std::uint32_t sinks = 4;    // streaming, kvzip: first tokens that always rank first
  std::uint32_t window = 64;  // snapkv, impress: queries observed, at least 1; pyramid
  std::uint32_t kernel = 5;   // snapkv, rkv: width of the average pooling, odd
  std::uint64_t seed = 0;     // random
};

// One layer of one context, in which a query sees every token before it: layers with a sliding window are not ranked.
// Element type E is Half (pages as cached) or float (reference data).
template <class Element>
struct LayerKv {
  std::uint32_t tokens = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t block_size = 16;
  std::uint32_t layer = 0;
  std::uint32_t first_head = 0;  // of the model's KV heads, the one that head 0 here is
  struct Page {
    const Element* keys;    // [head_dim][block_size]
    const Element* values;  // [block_size][head_dim]
  };
  // kv_heads × pages_for(tokens); every page full but the last, whose unused slots may hold anything. Position = index.
  std::span<const Page> pages;
  std::uint32_t pages_per_head() const { return (tokens + block_size - 1) / block_size; }
  std::span<const Page> head(std::uint32_t h) const {
    return pages.subspan(std::size_t{h} * pages_per_head(), pages_per_head());
  }

  // Queries of the last `window_tokens` tokens, float, [query_heads][window_tokens][head_dim]; empty when not captured.
  // Query heads h · query_heads / kv_heads and the following share KV head h.
  std::uint32_t query_heads = 0;
  std::uint32_t window_tokens = 0;
  std::span<const float> queries = {};

  // The following parts are empty when not captured. The engine gathers them while it computes the context, chunk by
  // chunk.

  // Position of token 0; those after it follow without gaps. The next token's is first_position + tokens.
  std::uint32_t first_position = 0;
  // [kv_heads][tokens]: the softmax attention that a token receives, summed over the queries of all of the context's
  // own tokens (each over all keys that it sees), mean over the KV head's query heads. NaN where a key is not finite.
  std::span<const float> attention_sums = {};
  // [query_heads][head_dim] and [query_heads][head_dim][head_dim]: mean and covariance (divided by the number,
  // symmetric) of the context's queries before RoPE, without those of its first kMomentSinks tokens. Read only where
  // there are more tokens than those.
  std::span<const float> query_mean = {};
  std::span<const float> query_covariance = {};
  // [kv_heads][tokens]: the largest softmax attention that a token receives while the model repeats the context, chunk
  // by chunk, over all queries of the repetition and the KV head's query heads. NaN where a key is not finite.
  std::span<const float> repeat_attention = {};
  // How keys were turned; rope.dimensions 0: not known.
  Rope rope = {};
  // What the model multiplies queries times keys by before the softmax; 0: 1/√head_dim, as most do.
  float attention_scale = 0;
  float scale() const { return attention_scale > 0 ? attention_scale : 1.0f / std::sqrt(static_cast<float>(head_dim)); }
  // The calibration of the model that computed the context, which has this layer and these heads; null: none.
  const Calibration* calibration = nullptr;
};

// Tokens at the start of a context whose queries are left out of query_mean and query_covariance.
inline constexpr std::uint32_t kMomentSinks = 4;

class Scorer {
 public:
  virtual ~Scorer() = default;
  virtual std::string_view name() const = 0;
  virtual ScorerNeeds needs() const = 0;
  // Writes kv_heads × tokens scores. A token whose keys or values (those that the scorer reads) are NaN or infinite, or
  // so large that their squared norm overflows, scores -infinity; no score is NaN. Queries, where needed, are those of
  // the last min(needs().last_queries, tokens) tokens or more, and add nothing where a sequence that goes on has seen
  // fewer yet; everything else that needs() names has been handed over (callers refuse a scorer whose needs they cannot
  // meet, see missing_needs). Thread-safe: layers are scored in parallel.
  void score(const LayerKv<Half>& layer, std::span<float> scores) const;
  void score(const LayerKv<float>& layer, std::span<float> scores) const;

 private:
  // At least one token; a score that is NaN or +infinity is made -infinity by the caller.
  virtual void score_impl(const LayerKv<Half>& layer, std::span<float> scores) const = 0;
  virtual void score_impl(const LayerKv<float>& layer, std::span<float> scores) const = 0;
};

// Names in alphabetical order, as on the command line.
std::vector<std::string_view> scorer_names();
// kInvalidArgument names the known ones, or says which option is out of range.
Result<std::unique_ptr<Scorer>> make_scorer(std::string_view name, const ScorerOptions& options = {});

// Tokens from most to least important: ranking[0] is the most important. Ties keep the newer token first; NaN ranks
// last.
std::vector<std::uint32_t> ranking(std::span<const float> scores);
// How many of n tokens are kept: max(1, floor(n · keep)); 0 for n = 0. `keep` in (0, 1].
std::uint32_t kept_tokens(std::uint32_t tokens, double keep);

}  // namespace shale
