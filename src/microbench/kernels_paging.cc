#include "kernels_paging.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <random>

#include "attention/attention.h"
#include "core/quantile.h"
#include "memory_bandwidth.h"
#include "paging/page_tokens.h"
#include "paging/sequence.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "microbench/kernels_paging.cc"
// clang-format off
#include <hwy/foreach_target.h>  // compiles what follows once per instruction set
// clang-format on

#include "core/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shale::bench::HWY_NAMESPACE {
using namespace shale::HWY_NAMESPACE;

// As bench::read_bytes, of a page, while one further on is asked for. `bytes` is a multiple of 64.
std::uint32_t read_page(const std::byte* page, const std::byte* ahead, std::size_t bytes) {
  const hn::CappedTag<std::uint32_t, 16> d;
  auto folded = hn::Zero(d);
  for (std::size_t line = 0; line < bytes; line += 64) {
    prefetch(ahead + line);
    for (std::size_t i = line; i < line + 64; i += 4 * hn::Lanes(d)) {
      folded = hn::Xor(folded, hn::LoadU(d, reinterpret_cast<const std::uint32_t*>(page + i)));
    }
  }
  return hn::GetLane(hn::MaxOfLanes(d, folded));
}

}  // namespace shale::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale::bench {
namespace {

HWY_EXPORT(read_page);

constexpr std::uint32_t kForkTokens = 128000;

struct Heads {
  std::uint32_t layers, query, kv, dim;
};

// Sequences whose pages lie anywhere in one pool, as many as make it larger than any cache.
class PagingScene {
 public:
  PagingScene(const Heads& heads, PageElement element, std::uint32_t depth, std::size_t bytes)
      : heads_(heads), queries_(std::size_t{heads.query} * heads.dim), output_(queries_.size()) {
    const PageShape shape{.layers = heads.layers, .kv_heads = heads.kv, .head_dim = heads.dim, .element = element};
    const std::size_t sequence_bytes = shape.pages_for(depth) * shape.block_bytes();
    const std::size_t sequences = (bytes + sequence_bytes - 1) / sequence_bytes;
    pool_ = std::move(PagePool::create(shape, sequences * sequence_bytes).value());
    fill();
    for (std::size_t i = 0; i < sequences; ++i) {
      sequences_.emplace_back(*pool_);
      if (!sequences_.back().append(depth)) std::abort();  // the pool was made for it
    }
    for (std::size_t i = 0; i < queries_.size(); ++i) queries_[i] = std::sin(static_cast<float>(i));
  }

  double bytes() const {
    return static_cast<double>(pool_->blocks_total()) * static_cast<double>(pool_->shape().block_bytes());
  }

  // The attention of a decode step of each sequence, one after another.
  void attend(Executor& executor) {
    const AttentionShape attention{heads_.query, heads_.kv, heads_.dim, 1 / std::sqrt(static_cast<float>(heads_.dim))};
    std::vector<HeadTable> tables(heads_.kv);
    for (const Sequence& sequence : sequences_) {
      for (std::uint32_t layer = 0; layer < heads_.layers; ++layer) {
        for (std::uint32_t head = 0; head < heads_.kv; ++head) tables[head] = sequence.table(layer, head);
        const AttentionWork work{.tables = tables,
                                 .queries = queries_.data(),
                                 .output = output_.data(),
                                 .query_count = 1,
                                 .query_stride = queries_.size(),
                                 .output_stride = output_.size()};
        paged_attention(*pool_, attention, {&work, 1}, executor);
      }
    }
  }

  const PageShape& shape() const { return pool_->shape(); }

  // The first `bytes` of the pages that attend() reads, in its order, and nothing else.
  void read_pages(Executor& executor, std::size_t bytes) {
    std::vector<std::uint32_t> sums(std::size_t{heads_.layers} * heads_.kv * 16);
    const HostView view = pool_->host_view();
    for (const Sequence& sequence : sequences_) {
      executor.parallel_for(heads_.layers * heads_.kv, [&](std::size_t i) {
        const auto index = static_cast<std::uint32_t>(i);
        const HeadTable table = sequence.table(index / heads_.kv, index % heads_.kv);
        for (std::size_t p = 0; p < table.pages.size(); ++p) {
          const PageSlot ahead = table.pages[std::min(p + kPagesAhead, table.pages.size() - 1)];
          sums[i * 16] += HWY_DYNAMIC_DISPATCH(read_page)(view.bytes(table.pages[p].page).data(),
                                                          view.bytes(ahead.page).data(), bytes);
        }
      });
    }
    sum_ = sums[0];
  }

  void read(Executor& executor) {
    constexpr std::size_t kPiece = std::size_t{1} << 20;
    const std::byte* bytes_of_pool = pool_->host_view().bytes(0).data();
    const std::size_t count = static_cast<std::size_t>(bytes()) / kPiece;
    std::vector<std::uint64_t> sums(count * 8);
    executor.parallel_for(count,
                          [&](std::size_t i) { sums[i * 8] = read_bytes({bytes_of_pool + i * kPiece, kPiece}); });
    sum_ = sums[0];
  }

 private:
  static constexpr std::size_t kPagesAhead = 8;  // what two blocks of attention are

  // Leaves the pool's free blocks in random order, every page written.
  void fill() {
    std::mt19937 random(2);
    std::normal_distribution<float> normal;
    const PageShape& shape = pool_->shape();
    std::vector<float> rows(2 * shape.key_elements());
    for (float& each : rows) each = normal(random);
    std::vector<PoolBlockId> blocks;
    while (const auto block = pool_->allocate_block()) {
      const PageId first = pool_->page_of(*block, 0);
      if (blocks.empty()) {
        for (std::uint32_t i = 0; i < shape.pages_per_block(); ++i) {
          write_tokens(shape, pool_->host_view().writable_bytes(first + i), 0, shape.block_size,
                       {rows.data(), rows.data() + shape.key_elements(), shape.head_dim});
        }
      } else {
        pool_->copy_block(blocks.front(), *block);
      }
      blocks.push_back(*block);
    }
    std::ranges::shuffle(blocks, random);
    for (const PoolBlockId block : blocks) pool_->release_block(block);
  }

  Heads heads_;
  std::unique_ptr<PagePool> pool_;
  std::vector<Sequence> sequences_;
  std::vector<float> queries_, output_;
  volatile std::uint64_t sum_ = 0;
};

// In turns, so that what else the machine does falls on all.
void measure(const std::string& heads, const std::string& threads, PagingScene& scene, Executor& executor,
             std::vector<KernelRow>& rows) {
  constexpr int kRounds = 9;
  const std::size_t page_bytes = scene.shape().page_bytes();
  const bool halves = scene.shape().element == PageElement::kHalf;  // whose keys lie first, in half of a page
  std::vector<double> reads, page_reads, key_reads, attends;
  scene.attend(executor);
  for (int round = 0; round < kRounds; ++round) {
    reads.push_back(seconds_of([&] { scene.read(executor); }));
    page_reads.push_back(seconds_of([&] { scene.read_pages(executor, page_bytes); }));
    if (halves) key_reads.push_back(seconds_of([&] { scene.read_pages(executor, page_bytes / 2); }));
    attends.push_back(seconds_of([&] { scene.attend(executor); }));
  }
  const double read = quantile(reads, 0.5);
  const auto add = [&](std::string_view kernel, double seconds, double part = 1) {
    rows.push_back(
        {fmt::format("{} {}, {}", kernel, heads, threads), part * scene.bytes(), seconds, part * read / seconds});
  };
  add("read", read);
  add("read page by page", quantile(page_reads, 0.5));
  if (halves) add("read keys page by page", quantile(key_reads, 0.5), 0.5);
  add("decode attention", quantile(attends, 0.5));
}

// A fork of a long sequence, and its end. No page is touched, so the pool is address space.
KernelRow fork_row(std::string_view name, std::size_t read_size) {
  constexpr PageShape kShape{.layers = 32, .kv_heads = 8, .head_dim = 64};
  constexpr int kRounds = 9, kForks = 100;
  const std::uint32_t blocks = kShape.pages_for(kForkTokens);
  const auto pool = PagePool::create(kShape, blocks * kShape.block_bytes()).value();
  Sequence sequence(*pool);
  if (!sequence.append(kForkTokens)) std::abort();  // the pool was made for it
  const std::vector<std::byte> memory(read_size, std::byte{1});
  std::vector<double> reads, forks;
  std::uint64_t sum = 0;
  for (int round = 0; round < kRounds; ++round) {
    reads.push_back(seconds_of([&] { sum += read_bytes(memory); }));
    forks.push_back(seconds_of([&] {
      for (int i = 0; i < kForks; ++i) sum += sequence.fork().length();
    }));
  }
  if (sum == 0) std::abort();  // it counted the forks' tokens
  const double bytes = 2.0 * blocks * (sizeof(PoolBlockId) + sizeof(std::uint32_t)),
               fork = quantile(forks, 0.5) / kForks;
  return {std::string(name), bytes, fork, bytes / fork / (static_cast<double>(read_size) / quantile(reads, 0.5))};
}

}  // namespace

std::vector<KernelRow> paging_rows(Executor& executor, std::string_view only, std::uint32_t depth,
                                   std::size_t pool_bytes) {
  std::vector<KernelRow> rows;
  InlineExecutor alone;
  std::vector<Executor*> executors = {&alone};
  if (executor.threads() > 1) executors.push_back(&executor);
  for (const Heads& heads : {Heads{30, 9, 3, 64}, Heads{24, 14, 2, 64}}) {
    for (const PageElement element : {PageElement::kHalf, PageElement::kInt8}) {
      const bool int8 = element == PageElement::kInt8;
      const std::string name = fmt::format("{}/{} d{}{}", heads.query, heads.kv, heads.dim, int8 ? " int8" : "");
      std::optional<PagingScene> scene;
      for (Executor* each : executors) {
        const std::string threads = thread_count(*each);
        if (!fmt::format("decode attention {}, {}", name, threads).contains(only)) continue;
        if (!scene) scene.emplace(heads, element, depth, pool_bytes);
        measure(name, threads, *scene, *each, rows);
      }
    }
  }
  const std::string fork = fmt::format("fork of {} tokens, 1 thread", kForkTokens);
  if (fork.contains(only)) rows.push_back(fork_row(fork, pool_bytes));
  return rows;
}

}  // namespace shale::bench
#endif
