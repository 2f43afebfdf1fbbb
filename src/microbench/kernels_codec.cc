#include "kernels_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>

#include "codec/extent.h"
#include "codec/views/sequence_view.h"
#include "codec/views/view_copy.h"
#include "core/quantile.h"
#include "memory_bandwidth.h"
#include "paging/sequence.h"
#include "scoring/calibration.h"

namespace shale::bench {
namespace {

constexpr PageShape kShape = {.layers = 30, .kv_heads = 3, .head_dim = 64, .block_size = 16};
constexpr std::uint32_t kQueryHeads = 9;
constexpr std::uint32_t kWindow = 400;  // queries captured: what scissorhands reads
constexpr int kRounds = 9;
constexpr ScorerNeeds kOffered = {
    .keys = true, .values = true, .last_queries = kWindow, .query_moments = true, .rope = true, .calibration = true};

// A pool that one context fills, its blocks in random order.
class Scene {
 public:
  explicit Scene(std::size_t bytes)
      : pool_(std::move(PagePool::create(kShape, bytes).value())),
        sequence_(*pool_),
        tokens_(pool_->blocks_total() * kShape.block_size) {
    fill();
    if (!sequence_.append(tokens_)) std::abort();  // the pool was made for it
    for (std::uint32_t i = 0; i < kShape.pages_per_block(); ++i) {
      for (const PageSlot slot : sequence_.table(i / kShape.kv_heads, i % kShape.kv_heads).pages) {
        const PageView page = pool_->host_view().page(slot.page);
        layers_[i / kShape.kv_heads].push_back({page.keys, page.values});
      }
    }
  }

  std::uint32_t tokens() const { return tokens_; }
  KvView view() const { return view_of(sequence_, 0, tokens_); }
  MutableKvView mutable_view() { return view_of(sequence_, 0, tokens_); }
  double bytes() const {
    return static_cast<double>(pool_->blocks_total()) * static_cast<double>(kShape.block_bytes());
  }
  std::span<std::byte> memory() {
    auto* first = reinterpret_cast<std::byte*>(pool_->host_view().writable_page(0).keys);
    return {first, static_cast<std::size_t>(bytes())};
  }

  LayerKv<Half> layer(std::uint32_t l) const {
    LayerKv<Half> layer;
    layer.tokens = tokens_;
    layer.kv_heads = kShape.kv_heads;
    layer.head_dim = kShape.head_dim;
    layer.block_size = kShape.block_size;
    layer.layer = l;
    layer.pages = layers_[l];
    layer.query_heads = kQueryHeads;
    layer.window_tokens = kWindow;
    layer.queries = queries_;
    layer.query_mean = std::span(queries_).first(std::size_t{kQueryHeads} * kShape.head_dim);
    layer.query_covariance = query_covariance_;
    layer.rope.dimensions = kShape.head_dim;
    layer.calibration = &calibration_;
    return layer;
  }

 private:
  void fill() {
    std::mt19937 random(2);
    std::normal_distribution<float> normal;
    std::vector<Half> contents(kShape.block_bytes() / sizeof(Half));
    for (Half& each : contents) each = to_half(normal(random));
    for (float& query : queries_) query = normal(random);
    for (std::size_t i = 0; i < query_covariance_.size(); ++i) {
      query_covariance_[i] = i / kShape.head_dim % kShape.head_dim == i % kShape.head_dim ? 1.0f : 0.0f;
    }
    std::vector<PoolBlockId> blocks;
    while (const auto block = pool_->allocate_block()) {
      std::memcpy(pool_->host_view().writable_page(pool_->page_of(*block, 0)).keys, contents.data(),
                  kShape.block_bytes());
      blocks.push_back(*block);
    }
    std::ranges::shuffle(blocks, random);
    for (const PoolBlockId block : blocks) pool_->release_block(block);
  }

  std::unique_ptr<PagePool> pool_;
  Sequence sequence_;
  std::uint32_t tokens_;
  std::vector<std::vector<LayerKv<Half>::Page>> layers_{kShape.layers};
  std::vector<float> queries_ = std::vector<float>(std::size_t{kQueryHeads} * kWindow * kShape.head_dim);
  std::vector<float> query_covariance_ =
      std::vector<float>(std::size_t{kQueryHeads} * kShape.head_dim * kShape.head_dim);
  Calibration calibration_ = Calibrator(kShape.layers, kQueryHeads, Rope{.dimensions = kShape.head_dim}).finish();
};

class Bench {
 public:
  Bench(Scene& scene, Executor& executor, std::string_view only, std::vector<KernelRow>& rows)
      : scene_(scene),
        executor_(executor),
        only_(only),
        rows_(rows),
        copy_(scene.memory().size()),
        scores_(kShape.layers),
        threads_(thread_count(executor)) {
    for (auto& scores : scores_) scores.resize(std::size_t{kShape.kv_heads} * scene.tokens());
    std::memset(copy_.data(), 1, copy_.size());
  }

  void scorer(std::string_view name) {
    const auto scorer = std::move(make_scorer(name).value());
    const ScorerNeeds needs = scorer->needs();
    if (!needs.keys || !missing_needs(needs, kOffered).empty()) return;
    const bool twice = name == "keydiff" || needs.last_queries > 0;
    const double bytes = scene_.bytes() / 2 * (1 + (twice ? 1 : 0) + (needs.values ? 1 : 0));
    compare(
        fmt::format("score {}", name), bytes, scene_.bytes(), [&] { read(); },
        [&] {
          executor_.parallel_for(kShape.layers, [&](std::size_t l) {
            scorer->score(scene_.layer(static_cast<std::uint32_t>(l)), scores_[l]);
          });
        });
  }

  // Extents by a quantizer, from the pool's blocks to bytes at rest and back, checksums and all.
  void quantizer(std::string_view name) {
    const Method method{"", std::string(name)};
    std::vector<ExtentEncoder::Encoded> extents;
    const auto copy_pages = [&] { copy(scene_.memory(), copy_.bytes()); };
    const auto encode = [&] {
      extents.clear();
      for (std::uint32_t first = 0; first < scene_.tokens(); first += kExtentTokens) {
        extents.push_back(encoded(method, scene_.view().part(first, extent_tokens(first))));
      }
    };
    encode();
    double bytes = scene_.bytes();
    for (const auto& extent : extents) bytes += static_cast<double>(extent.manifest.bytes_for(1));
    const std::string what = method.is_full() ? "full" : std::string(name);
    compare(fmt::format("encode {}", what), bytes, 2 * scene_.bytes(), copy_pages, encode);
    compare(fmt::format("decode {}", what), bytes, 2 * scene_.bytes(), copy_pages, [&] {
      for (std::size_t i = 0; i < extents.size(); ++i) {
        const auto first = static_cast<std::uint32_t>(i) * kExtentTokens;
        decode(extents[i], scene_.mutable_view().part(first, extent_tokens(first)));
      }
    });
  }

  // Rows of a quantizer whose codes are stored packed.
  void packing(std::string_view name) {
    const auto quantizer = std::move(make_quantizer(name).value());
    if (!quantizer->packs()) return;
    const std::size_t head_bytes = quantizer->base_bytes(scene_.tokens(), kShape.head_dim);
    std::vector<std::vector<std::byte>> codes(kShape.pages_per_block()), packed(codes.size());
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < codes.size(); ++i) {
      codes[i].resize(head_bytes);
      encode_head(*quantizer, i, {codes[i]});
      quantizer->pack(codes[i], scene_.tokens(), kShape.head_dim, packed[i]);
      bytes += codes[i].size() + packed[i].size();
    }
    const auto in_turns = [&](std::string_view what, const std::function<void(std::size_t)>& each) {
      compare(
          fmt::format("{} {}", what, name), static_cast<double>(bytes), 2 * scene_.bytes(),
          [&] { copy(scene_.memory(), copy_.bytes()); }, [&] { executor_.parallel_for(codes.size(), each); });
    };
    in_turns("pack", [&](std::size_t i) {
      packed[i].clear();
      quantizer->pack(codes[i], scene_.tokens(), kShape.head_dim, packed[i]);
    });
    in_turns("unpack", [&](std::size_t i) {
      if (!quantizer->unpack(packed[i], scene_.tokens(), kShape.head_dim, codes[i])) std::abort();
    });
  }

 private:
  static constexpr std::size_t kPiece = std::size_t{1} << 20;
  static constexpr std::uint32_t kExtentTokens = 256 * kExtentChunksMax;

  std::uint32_t extent_tokens(std::uint32_t first) const { return std::min(kExtentTokens, scene_.tokens() - first); }

  ExtentEncoder::Encoded encoded(const Method& method, const KvView& view) {
    ExtentManifest identity;
    identity.geometry = view.geometry;
    identity.method = method;
    identity.tokens = view.tokens;
    identity.keys.resize(view.blocks());
    auto encoder = ExtentEncoder::start(view, std::move(identity));
    while (encoder->step(executor_)) {
    }
    return encoder->finish();
  }

  void decode(const ExtentEncoder::Encoded& extent, const MutableKvView& view) {
    auto decoder = ExtentDecoder::start(extent.manifest, {.tokens = view.tokens}, view);
    for (std::uint32_t i = 0; i < decoder->ranges().size(); ++i) {
      const ExtentRange& range = decoder->ranges()[i];
      const auto bytes = extent.parts[range.blob].bytes().subspan(range.offset, range.bytes);
      if (!decoder->decode(i, bytes, executor_)) std::abort();
    }
  }

  // All tokens of one head, into the first bytes of `out`.
  void encode_head(const Quantizer& quantizer, std::size_t head, Codes<std::byte> out) {
    const KvView view = scene_.view();
    const TokenCopies<const std::byte> copies(view);
    HalfBlock block(view.geometry);
    const auto layer = static_cast<std::uint32_t>(head / kShape.kv_heads);
    for (std::uint32_t first = 0; first < view.tokens; first += kBlockTokens) {
      const std::uint32_t count = std::min(kBlockTokens, view.tokens - first);
      const auto rows =
          read_tokens(copies, layer, static_cast<std::uint32_t>(head % kShape.kv_heads), first, count, block);
      quantizer.encode(rows, take_codes(quantizer, count, kShape.head_dim, out));
    }
  }

  void read() {
    const auto memory = scene_.memory();
    std::vector<std::uint64_t> sums(memory.size() / kPiece * 8);
    executor_.parallel_for(memory.size() / kPiece,
                           [&](std::size_t i) { sums[i * 8] = read_bytes(memory.subspan(i * kPiece, kPiece)); });
    sum_ = std::accumulate(sums.begin(), sums.end(), std::uint64_t{0});
  }

  void copy(std::span<const std::byte> from, std::span<std::byte> to) {
    const std::size_t pieces = (from.size() + kPiece - 1) / kPiece;
    executor_.parallel_for(pieces, [&](std::size_t i) {
      const std::size_t first = i * kPiece;
      std::memcpy(to.data() + first, from.data() + first, std::min(kPiece, from.size() - first));
    });
  }

  void compare(const std::string& name, double bytes, double limit_bytes, const std::function<void()>& limit,
               const std::function<void()>& kernel) {
    std::string row_name = fmt::format("{}, {}", name, threads_);
    if (!row_name.contains(only_)) return;
    std::vector<double> limits, kernels;
    kernel();
    for (int round = 0; round < kRounds; ++round) {
      limits.push_back(seconds_of(limit));
      kernels.push_back(seconds_of(kernel));
    }
    const double seconds = quantile(kernels, 0.5);
    rows_.push_back({std::move(row_name), bytes, seconds, bytes / seconds / (limit_bytes / quantile(limits, 0.5))});
  }

  Scene& scene_;
  Executor& executor_;
  std::string_view only_;
  std::vector<KernelRow>& rows_;
  AlignedBuffer copy_;
  std::vector<std::vector<float>> scores_;
  std::string threads_;
  volatile std::uint64_t sum_ = 0;
};

}  // namespace

std::vector<KernelRow> codec_rows(Executor& executor, std::string_view only, std::size_t pool_bytes) {
  std::vector<KernelRow> rows;
  InlineExecutor alone;
  Scene scene(pool_bytes);
  std::vector<Executor*> executors = {&alone};
  if (executor.threads() > 1) executors.push_back(&executor);
  for (Executor* each : executors) {
    Bench bench(scene, *each, only, rows);
    for (const std::string_view name : scorer_names()) bench.scorer(name);
    for (const std::string_view name : quantizer_names()) bench.quantizer(name);
    for (const std::string_view name : quantizer_names()) bench.packing(name);
  }
  return rows;
}

}  // namespace shale::bench
