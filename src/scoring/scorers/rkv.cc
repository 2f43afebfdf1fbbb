// rkv (Cai et al. 2025, arXiv 2505.24133): λ · importance - (1 - λ) · redundancy, λ = 0.1.
//
// Importance: softmax attention of the last kWindow queries, the largest over the KV head's query heads, then as
// snapkv: mean over the queries, without the window's columns, average pooling of width `kernel`. Redundancy: of the
// matrix S of cosines between keys, its diagonal zero and in each row the newest entry above 0.5 zeroed,
// softmax_i(mean_j S_ji). The window's own tokens get the layer's maximum + 1.
//
// A column of S sums to the product of its key with the sum of all keys, less what is zeroed: only the search for each
// row's newest similar key looks at pairs. It ends at the first one found, and real keys have one nearby; only where no
// two keys are alike it is quadratic in time. Memory is linear.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "scoring/scorers/rkv.cc"
// clang-format off
#include <hwy/foreach_target.h>  // first: compiles what follows once per instruction set
// clang-format on

#include <vector>

#include "scoring/attention-inl.h"
#include "scoring/registry.h"
#include "scoring/scorers/window.h"

HWY_BEFORE_NAMESPACE();
namespace shale::rkv::HWY_NAMESPACE {
using namespace shale::HWY_NAMESPACE;

constexpr std::uint32_t kWindow = 8;
constexpr float kImportance = 0.1f;  // λ
constexpr float kSimilar = 0.5f;

// Mean over the window's queries of the largest attention over query heads.
template <class Element>
void add_importance(const LayerKv<Element>& layer, std::uint32_t head, HeadKeys& keys, std::span<float> importance) {
  static_assert(kWindow <= kBlock, "a block holds the whole window");
  const Wide d;
  const std::uint32_t window = std::min(kWindow, layer.tokens);
  const auto largest = hwy::AllocateAligned<float>(std::size_t{kWindow} * keys.padded());
  std::fill_n(largest.get(), std::size_t{kWindow} * keys.padded(), 0.0f);
  for_each_block(layer, head, window, keys, [&](const AttentionBlock& block) HWY_ATTR {
    for (std::uint32_t q = 0; q < block.queries; ++q) {
      float* row = &largest[std::size_t{q} * keys.padded()];
      const auto inverse = hn::Set(d, block.inverse[q]);
      for (std::size_t i = 0; i < block.seen; i += hn::Lanes(d)) {
        hn::Store(hn::Max(hn::Load(d, row + i), hn::Mul(hn::Load(d, block.rows[q] + i), inverse)), d, row + i);
      }
    }
  });
  for (std::uint32_t q = 0; q < window; ++q) {
    const float* row = &largest[std::size_t{q} * keys.padded()];
    for (std::uint32_t i = 0; i < layer.tokens; ++i) importance[i] += row[i] / static_cast<float>(window);
  }
}

// Keys of length 1 in the tiles of HeadKeys; keys that do not count and zero keys stay zeros.
class Directions {
 public:
  Directions(const HeadKeys& keys, std::uint32_t tokens, std::uint32_t head_dim)
      : tokens_(tokens),
        head_dim_(head_dim),
        tiles_(hwy::AllocateAligned<float>(std::size_t{keys.padded()} * head_dim)),
        sum_(hwy::AllocateAligned<float>(head_dim * hn::Lanes(Wide()))),
        rows_(hwy::AllocateAligned<float>(std::size_t{kBlock} * head_dim)) {
    const Wide d;
    const std::size_t lanes = hn::Lanes(d);
    std::fill_n(sum_.get(), head_dim * lanes, 0.0f);
    for (std::uint32_t first = 0; first < tokens; first += tile_width()) {
      const float* from = keys.tile(first);
      float* to = &tiles_[std::size_t{first} * head_dim];
      for (std::size_t v = 0; v < tile_width(); v += lanes) {
        auto squares = hn::Zero(d);
        for (std::uint32_t c = 0; c < head_dim; ++c) {
          const auto key = hn::Load(d, from + std::size_t{c} * tile_width() + v);
          squares = hn::MulAdd(key, key, squares);
        }
        const auto inverse =
            hn::IfThenElseZero(hn::Gt(squares, hn::Set(d, FLT_MIN)), hn::Div(hn::Set(d, 1.0f), hn::Sqrt(squares)));
        for (std::uint32_t c = 0; c < head_dim; ++c) {
          const std::size_t at = std::size_t{c} * tile_width() + v;
          const auto direction = hn::Mul(hn::Load(d, from + at), inverse);
          hn::Store(direction, d, to + at);
          hn::Store(hn::Add(hn::Load(d, &sum_[c * lanes]), direction), d, &sum_[c * lanes]);
        }
      }
    }
  }

  // Sums of the columns of S.
  void sum_columns(std::span<float> sums) {
    const Wide d;
    const std::size_t lanes = hn::Lanes(d);
    std::vector<float> total(head_dim_);
    for (std::uint32_t c = 0; c < head_dim_; ++c) {
      total[c] = hn::GetLane(hn::SumOfLanes(d, hn::Load(d, &sum_[c * lanes])));
    }
    for (std::uint32_t token = 0; token < tokens_; token += static_cast<std::uint32_t>(lanes)) {
      const float* tile = &tiles_[std::size_t{token - token % tile_width()} * head_dim_ + token % tile_width()];
      auto sum = hn::Zero(d);
      for (std::uint32_t c = 0; c < head_dim_; ++c) {
        const auto direction = hn::Load(d, tile + std::size_t{c} * tile_width());
        sum = hn::MulAdd(direction, hn::Sub(hn::Set(d, total[c]), direction), sum);  // less the diagonal
      }
      store_first(d, sum, &sums[token], tokens_ - token);
    }
    for (std::uint32_t row = 0; row < tokens_; row += kBlock) take_newest_similar(row, sums);
  }

 private:
  // Takes out of the sums, for kBlock rows, the newest entry above kSimilar.
  void take_newest_similar(std::uint32_t row, std::span<float> sums) {
    const Wide d;
    const std::uint32_t lanes = static_cast<std::uint32_t>(hn::Lanes(d)), count = std::min(kBlock, tokens_ - row);
    pack(row, count);
    HWY_ALIGN float cosines[kVectors * kBlock * 16];
    bool searching[kBlock] = {};
    std::fill_n(searching, count, true);
    std::uint32_t left = count;
    for (std::uint32_t end = (tokens_ + tile_width() - 1) / tile_width() * tile_width(); end > 0 && left > 0;) {
      end -= tile_width();
      hn::Vec<Wide> products[kVectors * kBlock];
      for (auto& product : products) product = hn::Zero(d);
      multiply_tile(&tiles_[std::size_t{end} * head_dim_], rows_.get(), head_dim_, products);
      for (std::uint32_t r = 0; r < count; ++r) {
        if (!searching[r]) continue;
        bool any = false;
        for (std::uint32_t v = 0; v < kVectors; ++v) {
          any |= !hn::AllFalse(d, hn::Gt(products[v * kBlock + r], hn::Set(d, kSimilar)));
          hn::Store(products[v * kBlock + r], d, &cosines[v * lanes]);
        }
        for (std::uint32_t i = any ? tile_width() : 0; i-- > 0;) {
          if (cosines[i] <= kSimilar || end + i == row + r) continue;
          sums[end + i] -= cosines[i];
          searching[r] = false;
          --left;
          break;
        }
      }
    }
  }

  void pack(std::uint32_t row, std::uint32_t count) {
    std::fill_n(rows_.get(), std::size_t{kBlock} * head_dim_, 0.0f);
    for (std::uint32_t r = 0; r < count; ++r) {
      const std::uint32_t slot = (row + r) % tile_width();
      const float* tile = &tiles_[std::size_t{row + r - slot} * head_dim_ + slot];
      for (std::uint32_t c = 0; c < head_dim_; ++c) rows_[c * kBlock + r] = tile[std::size_t{c} * tile_width()];
    }
  }

  std::uint32_t tokens_, head_dim_;
  hwy::AlignedFreeUniquePtr<float[]> tiles_, sum_, rows_;
};

// softmax over the tokens that count of sums / tokens, in place.
inline void soften(const HeadKeys& keys, std::span<float> sums) {
  const double tokens = static_cast<double>(sums.size());
  double total = 0;
  for (std::uint32_t i = 0; i < sums.size(); ++i) total += keys.usable(i) ? std::exp(sums[i] / tokens) : 0.0;
  for (float& sum : sums) sum = static_cast<float>(std::exp(sum / tokens) / total);
}

template <class Element>
void score_layer(const LayerKv<Element>& layer, std::uint32_t kernel, std::span<float> scores) {
  const std::uint32_t n = layer.tokens, past = n - std::min(kWindow, n);
  std::vector<float> importance(n), redundancy(n);
  std::ranges::fill(scores, 0.0f);
  for (std::uint32_t head = 0; head < layer.kv_heads; ++head) {
    const std::span head_scores = scores.subspan(std::size_t{head} * n, n);
    HeadKeys keys(layer, head);
    std::ranges::fill(importance, 0.0f);
    add_importance(layer, head, keys, importance);
    pool_average(std::span(importance).first(past), kernel, head_scores.first(past));
    Directions(keys, n, layer.head_dim).sum_columns(redundancy);
    soften(keys, redundancy);
    for (std::uint32_t i = 0; i < n; ++i) {
      const float score = kImportance * head_scores[i] - (1 - kImportance) * redundancy[i];
      head_scores[i] = keys.usable(i) ? score : kNan;
    }
  }
  put_first(scores, n, past, n);
}

void score_half(const LayerKv<Half>& layer, std::uint32_t kernel, std::span<float> scores) {
  score_layer(layer, kernel, scores);
}
void score_float(const LayerKv<float>& layer, std::uint32_t kernel, std::span<float> scores) {
  score_layer(layer, kernel, scores);
}

}  // namespace shale::rkv::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale {
namespace rkv {
HWY_EXPORT(score_half);
HWY_EXPORT(score_float);

class Rkv final : public Scorer {
 public:
  explicit Rkv(std::uint32_t kernel) : kernel_(kernel) {}
  std::string_view name() const override { return "rkv"; }
  ScorerNeeds needs() const override { return {.keys = true, .last_queries = HWY_NAMESPACE::kWindow}; }

 private:
  void score_impl(const LayerKv<Half>& layer, std::span<float> scores) const override {
    HWY_DYNAMIC_DISPATCH(score_half)(layer, kernel_, scores);
  }
  void score_impl(const LayerKv<float>& layer, std::span<float> scores) const override {
    HWY_DYNAMIC_DISPATCH(score_float)(layer, kernel_, scores);
  }

  std::uint32_t kernel_;
};

}  // namespace rkv

Result<std::unique_ptr<Scorer>> make_rkv(const ScorerOptions& options) {
  SHALE_TRY(check_window("rkv", options));
  return std::make_unique<rkv::Rkv>(options.kernel);
}

}  // namespace shale
#endif
