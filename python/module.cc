// The Python module `shale`: scorers, budgets and quantizers on numpy arrays, and the store (store.h). Arrays are read
// where they lie; keys are then laid out in pages, as the engine holds them.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <stdexcept>

#include "quantizers/quantizer.h"
#include "scoring/budgets/budget.h"
#include "scoring/row_layer.h"
#include "scoring/scorer.h"
#include "store.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shale {
namespace {

using Floats1 = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Floats3 = nb::ndarray<const float, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Halves2 = nb::ndarray<const std::uint16_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class Value>
Value checked(Result<Value> result) {
  if (!result) throw std::invalid_argument(result.error().message);
  return std::move(*result);
}

// An array that owns what it shows.
template <class Value>
nb::ndarray<nb::numpy, Value> array_of(std::vector<Value> values, std::initializer_list<std::size_t> shape) {
  auto* owned = new std::vector<Value>(std::move(values));
  return {owned->data(), shape,
          nb::capsule(owned, [](void* p) noexcept { delete static_cast<std::vector<Value>*>(p); })};
}

std::span<const float> span_of(const Floats3& array) { return {array.data(), array.size()}; }

std::vector<std::string> strings(std::vector<std::string_view> names) { return {names.begin(), names.end()}; }

void expect(bool holds, const std::string& what) {
  if (!holds) throw std::invalid_argument(what);
}

nb::ndarray<nb::numpy, float> score(const std::string& name, const Floats3& keys, const std::optional<Floats3>& values,
                                    const std::optional<Floats3>& queries, std::uint32_t window, std::uint32_t kernel,
                                    std::uint32_t sinks, std::uint64_t seed, double rope_base,
                                    const std::string& rope_pairing) {
  const auto scorer = checked(make_scorer(name, {.sinks = sinks, .window = window, .kernel = kernel, .seed = seed}));
  const ScorerNeeds needs = scorer->needs();
  const std::size_t heads = keys.shape(0), tokens = keys.shape(1), d = keys.shape(2);
  expect(!needs.repeat_attention, name + " reads the attention of a model that repeats the context");
  expect(!needs.calibration, name + " needs a calibration of the model: `shale score` makes one of a file's queries");
  expect(!needs.values || values, name + " reads values: give them");
  expect(!values || (values->shape(0) == heads && values->shape(1) == tokens && values->shape(2) == d),
         "values are not of the keys' shape");
  expect(d > 0 && d % 2 == 0, "the head dimension is odd");
  const bool every_query = needs.attention_sums || needs.query_moments;
  expect(!(every_query || needs.last_queries) || queries, name + " reads queries: give them");
  std::size_t query_heads = 0;
  if (queries) {
    query_heads = queries->shape(0);
    const std::size_t least = every_query ? tokens : std::min<std::size_t>(tokens, needs.last_queries);
    expect(query_heads > 0 && query_heads % std::max<std::size_t>(heads, 1) == 0 && queries->shape(2) == d,
           "queries are [query heads][tokens][head dimension], with whole groups of query heads for each KV head");
    expect(queries->shape(1) <= tokens && queries->shape(1) >= least,
           name + " reads the queries of the last " + std::to_string(least) + " tokens");
  }
  expect(rope_pairing == "halves" || rope_pairing == "neighbours", "rope_pairing is 'halves' or 'neighbours'");
  const Rope rope{.base = rope_base,
                  .dimensions = static_cast<std::uint32_t>(d),
                  .pairing = rope_pairing == "halves" ? Rope::Pairing::kHalves : Rope::Pairing::kNeighbours};
  std::vector<float> scores(heads * tokens);
  const RowLayer layer({.tokens = static_cast<std::uint32_t>(tokens),
                        .kv_heads = static_cast<std::uint32_t>(heads),
                        .query_heads = static_cast<std::uint32_t>(query_heads),
                        .query_tokens = static_cast<std::uint32_t>(queries ? queries->shape(1) : 0),
                        .head_dim = static_cast<std::uint32_t>(d)},
                       span_of(keys), values ? span_of(*values) : std::span<const float>(),
                       queries ? span_of(*queries) : std::span<const float>(), needs, rope);
  {
    const nb::gil_scoped_release others_run;
    scorer->score(layer.layer(), scores);
  }
  return array_of(std::move(scores), {heads, tokens});
}

nb::ndarray<nb::numpy, std::uint32_t> rank(const Floats1& scores) {
  std::vector<std::uint32_t> order = ranking({scores.data(), scores.size()});
  const std::size_t tokens = order.size();
  return array_of(std::move(order), {tokens});
}

nb::ndarray<nb::numpy, bool> keep(const Floats3& scores, double share, const std::string& budget,
                                  std::uint32_t window) {
  expect(share > 0 && share <= 1, "keep is a share of the tokens: above 0, at most 1");
  const auto chosen = checked(make_budget(budget));
  const ModelScores all{static_cast<std::uint32_t>(scores.shape(0)), static_cast<std::uint32_t>(scores.shape(1)),
                        static_cast<std::uint32_t>(scores.shape(2)), span_of(scores)};
  const Kept kept = scores.size() ? chosen->select(all, share, window) : Kept();
  auto* owned = new bool[kept.size()];
  std::copy(kept.begin(), kept.end(), owned);
  return {owned, {scores.shape(0), scores.shape(1), scores.shape(2)}, nb::capsule(owned, [](void* p) noexcept {
            delete[] static_cast<bool*>(p);
          })};
}

// Keys as pages hold them, a row a channel.
std::vector<Half> transposed(const Half* from, std::size_t rows, std::size_t columns) {
  std::vector<Half> to(rows * columns);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c) to[c * rows + r] = from[r * columns + c];
  }
  return to;
}

std::unique_ptr<Quantizer> quantizer_for(const std::string& name, std::size_t head_dim) {
  auto quantizer = checked(make_quantizer(name));
  expect(!quantizer->needs_tables(), name + " needs tables of a model, which this module does not read");
  expect(head_dim > 0 && head_dim % quantizer->channel_multiple() == 0,
         name + " takes head dimensions that are multiples of " + std::to_string(quantizer->channel_multiple()) +
             ", not " + std::to_string(head_dim));
  return quantizer;
}

// Halves come and go as their bits: numpy's float16 seen as uint16.
nb::ndarray<nb::numpy, std::uint8_t> encode(const std::string& name, const Halves2& keys, const Halves2& values) {
  const std::size_t tokens = keys.shape(0), d = keys.shape(1);
  expect(values.shape(0) == tokens && values.shape(1) == d, "values are not of the keys' shape");
  const auto quantizer = quantizer_for(name, d);
  const auto count = static_cast<std::uint32_t>(tokens), dim = static_cast<std::uint32_t>(d);
  std::vector<Half> rows = transposed(reinterpret_cast<const Half*>(keys.data()), tokens, d);
  std::vector<std::uint8_t> codes(quantizer->base_bytes(count, dim) + quantizer->refinement_bytes(count, dim));
  const std::span bytes = std::as_writable_bytes(std::span(codes));
  const std::size_t base = quantizer->base_bytes(count, dim), size = codes.size();
  if (tokens > 0) {
    quantizer->encode({rows.data(), reinterpret_cast<const Half*>(values.data()), tokens, count, dim},
                      {bytes.first(base), bytes.subspan(base)});
  }
  return array_of(std::move(codes), {size});
}

std::pair<nb::ndarray<nb::numpy, std::uint16_t>, nb::ndarray<nb::numpy, std::uint16_t>> decode(const std::string& name,
                                                                                               const Bytes& codes,
                                                                                               std::size_t tokens,
                                                                                               std::size_t d) {
  const auto quantizer = quantizer_for(name, d);
  const auto count = static_cast<std::uint32_t>(tokens), dim = static_cast<std::uint32_t>(d);
  const std::size_t base = quantizer->base_bytes(count, dim), refinement = quantizer->refinement_bytes(count, dim);
  expect(codes.size() == base + refinement, name + " codes " + std::to_string(tokens) + " tokens in " +
                                                std::to_string(base + refinement) + " bytes, not " +
                                                std::to_string(codes.size()));
  const std::span bytes = std::as_bytes(std::span(codes.data(), codes.size()));
  std::vector<Half> rows(tokens * d);
  std::vector<std::uint16_t> keys(tokens * d), values(tokens * d);
  if (tokens > 0) {
    quantizer->decode({bytes.first(base), bytes.subspan(base)},
                      {rows.data(), reinterpret_cast<Half*>(values.data()), tokens, count, dim});
    const std::vector<Half> by_token = transposed(rows.data(), d, tokens);
    std::copy_n(reinterpret_cast<const std::uint16_t*>(by_token.data()), keys.size(), keys.begin());
  }
  return {array_of(std::move(keys), {tokens, d}), array_of(std::move(values), {tokens, d})};
}

}  // namespace
}  // namespace shale

NB_MODULE(_shale, module) {
  using namespace shale;
  module.def("scorers", [] { return strings(scorer_names()); }, "Names of all scorers.");
  module.def("budgets", [] { return strings(budget_names()); }, "Names of all budgets.");
  module.def("quantizers", [] { return strings(quantizer_names()); }, "Names of all quantizers.");
  module.def(
      "score", &score, "scorer"_a, "keys"_a, "values"_a = nb::none(), "queries"_a = nb::none(), nb::kw_only(),
      "window"_a = 64, "kernel"_a = 5, "sinks"_a = 4, "seed"_a = 0, "rope_base"_a = 10000.0,
      "rope_pairing"_a = "halves",
      "Scores of one layer, float32 [KV heads, tokens], higher = keep. keys and values: float32 [KV heads, tokens, "
      "head dimension]; queries, after RoPE: float32 [query heads, tokens or the last of them, head dimension].");
  module.def("ranking", &rank, "scores"_a,
             "Tokens of one head from most to least important; ties keep the newer first.");
  module.def("keep", &keep, "scores"_a, "keep"_a, "budget"_a = "uniform", "window"_a = 64,
             "Which tokens are kept: bool [layers, KV heads, tokens] of float32 scores of that shape.");
  module.def("_encode", &encode, "quantizer"_a, "keys"_a, "values"_a);
  module.def("_decode", &decode, "quantizer"_a, "codes"_a, "tokens"_a, "head_dim"_a);
  bind_store(module);
}
