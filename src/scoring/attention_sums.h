// How much attention every token of a context receives from all of its queries: what h2o and observed_attention read.
// Computed chunk by chunk while a context is, because nobody keeps all queries; h2o's paper is arXiv 2306.14048.
#pragma once

#include <cstdint>
#include <span>

#include "scoring/scorer.h"

namespace shale {

// Adds to sums[i] the softmax attention that token i of one KV head receives from the layer's `queries`, summed over
// them, each over the keys up to its own token, mean over the KV head's query heads. Begin with zeros and call once a
// chunk, with all keys so far and the queries of the chunk (the layer's last window_tokens tokens, at most `tokens`):
// the sums are then LayerKv::attention_sums, one head's. sums[i] becomes NaN where key i is not finite; queries that
// are not finite add nothing.
//
// `sums` holds at least `tokens` elements. Extra memory: the keys in float, and 8 floats a token. Heads are
// independent: call them from as many threads as there are.
void add_attention_sums(const LayerKv<Half>& layer, std::uint32_t head, std::span<float> sums);
void add_attention_sums(const LayerKv<float>& layer, std::uint32_t head, std::span<float> sums);

}  // namespace shale
