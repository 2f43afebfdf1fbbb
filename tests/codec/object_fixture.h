// A pool with one exact sequence of random KV, and what the tests of stored objects do with it.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <numeric>
#include <ranges>
#include <thread>
#include <vector>

#include "codec/naive_quantizer.h"
#include "codec/object.h"
#include "paging/page_tokens.h"

namespace shale {

// Real threads, so that thread sanitizers see what is shared.
class ThreadExecutor final : public Executor {
 public:
  std::size_t threads() const override { return 3; }
  void parallel_for(std::size_t count, const std::function<void(std::size_t)>& work) override {
    std::atomic<std::size_t> next = 0;
    std::vector<std::jthread> workers;
    for (std::size_t t = 0; t < threads(); ++t) {
      workers.emplace_back([&] {
        for (std::size_t i = next++; i < count; i = next++) work(i);
      });
    }
  }
};

// Queries of every token, [layers][query_heads][tokens][head_dim], and the keys and values of every (layer, head).
struct Context {
  PageShape shape;
  std::uint32_t tokens;
  std::uint32_t query_heads;
  std::vector<HeadRows> heads;  // layer · kv_heads + head
  std::vector<float> queries;
};

inline Context random_context(const PageShape& shape, std::uint32_t tokens, std::uint64_t seed) {
  Context context{shape, tokens, 2 * shape.kv_heads, {}, {}};
  for (std::uint32_t i = 0; i < shape.pages_per_slab(); ++i) {
    context.heads.push_back(random_head(tokens, shape.head_dim, seed * 1000 + i));
  }
  context.queries = random_head(shape.layers * context.query_heads * tokens, shape.head_dim, seed).values;
  return context;
}

inline std::unique_ptr<PagePool> make_pool(const PageShape& shape, std::uint32_t slabs) {
  return std::move(*PagePool::create(shape, slabs * shape.slab_bytes()));
}

// Appends tokens [first, end) of the context to the sequence.
inline void append(Sequence& sequence, const Context& context, std::uint32_t first, std::uint32_t end) {
  ASSERT_TRUE(sequence.append(end - first));
  const PageShape& shape = context.shape;
  for (std::uint32_t i = 0; i < shape.pages_per_slab(); ++i) {
    for (std::uint32_t token = first; token < end; ++token) {
      const auto place = sequence.appended(i / shape.kv_heads, i % shape.kv_heads, token - first, end - first);
      const std::size_t row = std::size_t{token} * shape.head_dim;
      write_tokens(sequence.pool().shape(), sequence.pool().host_view().writable_bytes(place.page), place.slot, 1,
                   {&context.heads[i].keys[row], &context.heads[i].values[row], shape.head_dim});
    }
  }
}

// What one head of the sequence holds, in the order of its table, from token `skip` of the table on.
inline HeadRows held(const Sequence& sequence, std::uint32_t layer, std::uint32_t head, std::uint32_t skip = 0) {
  const PageShape& shape = sequence.pool().shape();
  const HeadTable table = sequence.table(layer, head);
  HeadRows rows(table.tokens - skip, shape.head_dim);
  std::uint32_t token = 0;
  std::vector<Half> key(shape.head_dim), value(shape.head_dim);
  for (const PageSlot slot : table.pages) {
    for (std::uint32_t i = 0; i < slot.count; ++i, ++token) {
      if (token < skip) continue;
      read_tokens(shape, sequence.pool().host_view().bytes(slot.page), i, 1, key.data(), 1, value.data());
      for (std::uint32_t c = 0; c < shape.head_dim; ++c) {
        rows.key(token - skip, c) = to_float(key[c]);
        rows.value(token - skip, c) = to_float(value[c]);
      }
    }
  }
  return rows;
}

inline Manifest identity_of(std::string_view method, std::uint32_t first, std::uint32_t end) {
  Manifest identity;
  identity.fingerprint = {{1, 2}, "test"};
  identity.first_position = first;
  identity.tokens.resize(end - first);
  std::iota(identity.tokens.begin(), identity.tokens.end(), 100);
  identity.key = entry_key(identity.fingerprint, identity.parent, identity.tokens);
  identity.method = *Method::parse(method);
  return identity;
}

inline constexpr ScorerOptions kOptions = {.sinks = 4, .window = 8, .kernel = 5, .seed = 3};

// What scorers are given here: the queries of all tokens.
inline constexpr ScorerNeeds kCaptured = {.keys = true, .values = true, .last_queries = 1000};

// What was observed of tokens [first, end): all their queries.
inline Observations observed(const Context& context, std::uint32_t first, std::uint32_t end) {
  const std::uint32_t d = context.shape.head_dim, window = end - first;
  Observations observations{.layers = context.shape.layers,
                            .query_heads = context.query_heads,
                            .kv_heads = context.shape.kv_heads,
                            .head_dim = d,
                            .tokens = window,
                            .window = window};
  for (std::size_t row = 0; row < std::size_t{context.shape.layers} * context.query_heads; ++row) {
    const float* from = &context.queries[(row * context.tokens + first) * d];
    observations.queries.insert(observations.queries.end(), from, from + std::size_t{window} * d);
  }
  return observations;
}

// Encodes tokens [first, end) of a sequence that holds the context.
inline Result<ObjectEncoder::Encoded> encode(const Context& context, const Sequence& sequence, std::string_view method,
                                             std::uint32_t first, std::uint32_t end, Executor& executor,
                                             const ModelTraits& model = {}) {
  std::vector<SlabId> slabs = sequence.slabs(end);
  slabs.erase(slabs.begin(), slabs.begin() + first / context.shape.page_tokens);
  const Observations observations = observed(context, first, end);
  SHALE_ASSIGN(ObjectEncoder encoder,
               ObjectEncoder::start(sequence.pool(), slabs, first % context.shape.page_tokens,
                                    identity_of(method, first, end), kOptions, observations, model));
  while (encoder.step(executor)) {
  }
  return encoder.finish();
}

inline Status decode(const ObjectEncoder::Encoded& object, double keep, std::uint32_t logical, Sequence& into,
                     Executor& executor, Bits bits = Bits::kAll, std::span<const std::uint32_t> windows = {}) {
  SHALE_ASSIGN(ObjectDecoder decoder, ObjectDecoder::start(object.manifest, keep, logical, into, bits, windows));
  for (const std::uint32_t i : decoder.chunks() | std::views::reverse) {
    SHALE_TRY(decoder.decode(i, object.chunks[i].bytes(), executor));
  }
  return {};
}

}  // namespace shale
