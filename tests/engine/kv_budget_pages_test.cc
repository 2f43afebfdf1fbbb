// Which tokens and pages a KV budget drops, on sequences alone.
#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <random>
#include <vector>

#include "engine/kv_budget_fixture.h"

namespace shale {
namespace {

using testing::KvBudgetTest;

// The mean ‖v‖/‖k‖ of a page's tokens, in double.
double mean_ratio(const PagePool& pool, const PageSlot& slot) {
  const PageShape& shape = pool.shape();
  const PageView page = pool.host_view().page(slot.page);
  double sum = 0;
  for_each_token(slot, 0, [&](std::uint32_t token) {
    double keys = 0, values = 0;
    for (std::uint32_t c = 0; c < shape.head_dim; ++c) {
      keys += std::pow(to_float(page.keys[c * shape.block_size + token]), 2);
      values += std::pow(to_float(page.values[token * shape.head_dim + c]), 2);
    }
    sum += std::sqrt(values / keys);
  });
  return sum / slot.tokens();
}

// Appends tokens whose keys and values are random, and the values so many times as large.
void append(Sequence& sequence, std::uint32_t count, std::mt19937& random, float times = 1) {
  PagePool& pool = sequence.pool();
  const PageShape& shape = pool.shape();
  std::lognormal_distribution<float> number;
  ASSERT_TRUE(sequence.append(count));
  for (std::uint32_t i = 0; i < shape.pages_per_block() * count; ++i) {
    const std::uint32_t table = i / count;
    const auto place = sequence.appended(table / shape.kv_heads, table % shape.kv_heads, i % count, count);
    const MutablePageView page = pool.host_view().writable_page(place.page);
    for (std::uint32_t c = 0; c < shape.head_dim; ++c) {
      page.keys[c * shape.block_size + place.slot] = to_half(number(random));
      page.values[place.slot * shape.head_dim + c] = to_half(times * number(random));
    }
  }
}

// The newest tokens fill holes from the first round on, also of a prompt that the budget holds whole.
TEST_F(KvBudgetTest, HoleFillClosesTheHolesOfTheFirstRound) {
  std::mt19937 random(3);
  Sequence sequence(*pool_);
  append(sequence, 40, random);
  const KvBudgetOptions options{.tokens = 48, .method = "knorm", .interval = 32, .compaction = Compaction::kHoleFill};
  const auto budget = KvBudget::create(options, model_->info(), pool_->shape().block_size, 40, {}, nullptr).value();
  budget->chunk_done(sequence, true, model_->executor());
  while (budget->stats().compactions == 0) {
    append(sequence, 1, random);
    if (budget->due(sequence)) budget->work(sequence, model_->executor());
  }
  EXPECT_EQ(budget->stats().evictions, 1u);
  EXPECT_LE(sequence.pages(), (48u / 16 + 1) * pool_->shape().pages_per_block());
  EXPECT_TRUE(sequence.check_integrity());
}

std::vector<std::vector<PageId>> pages_by_table(const Sequence& sequence) {
  const PageShape& shape = sequence.pool().shape();
  std::vector<std::vector<PageId>> pages(shape.pages_per_block());
  for (std::uint32_t table = 0; table < pages.size(); ++table) {
    for (const PageSlot slot : sequence.table(table / shape.kv_heads, table % shape.kv_heads).pages)
      pages[table].push_back(slot.page);
  }
  return pages;
}

// What is left of every table once its lowest full page is dropped.
std::vector<std::vector<PageId>> without_lowest(const Sequence& sequence, bool keep_newest) {
  const PageShape& shape = sequence.pool().shape();
  std::vector<std::vector<PageId>> left = pages_by_table(sequence);
  for (std::uint32_t table = 0; table < left.size(); ++table) {
    const auto pages = sequence.table(table / shape.kv_heads, table % shape.kv_heads).pages;
    const bool open = pages.back().count < shape.block_size;
    std::ptrdiff_t lowest = 0;
    for (std::ptrdiff_t p = 1; p + keep_newest + open < std::ssize(pages); ++p) {
      if (mean_ratio(sequence.pool(), pages[p]) < mean_ratio(sequence.pool(), pages[lowest])) lowest = p;
    }
    left[table].erase(left[table].begin() + lowest);
  }
  return left;
}

// All pages of a pool that are free.
class FreePages {
 public:
  explicit FreePages(PagePool& pool) : pool_(pool) {}
  ~FreePages() { give_back(); }
  FreePages(const FreePages&) = delete;
  FreePages& operator=(const FreePages&) = delete;

  void take() {
    while (const auto page = pool_.allocate_page()) pages_.push_back(*page);
  }
  void give_back() {
    for (const PageId page : pages_) pool_.release_page(page);
    pages_.clear();
  }

 private:
  PagePool& pool_;
  std::vector<PageId> pages_;
};

// While others hold its pages and the pool is full, a sequence cannot pack them, and its heads differ in how many they
// have: each drops the lowest of its own full pages. It does so, too, once there was room to copy them.
TEST_F(KvBudgetTest, EveryHeadDropsItsLowestPage) {
  open(20);
  const PageShape& shape = pool_->shape();
  std::mt19937 random(3);
  Sequence sequence(*pool_);
  append(sequence, 200, random);
  const Sequence reader = sequence.fork();
  FreePages free(*pool_);
  free.take();  // while it drops: nothing can be copied
  const auto budget =
      KvBudget::create({.tokens = 32, .keep_newest_page = true}, model_->info(), shape.block_size, 200, {}, nullptr)
          .value();
  budget->chunk_done(sequence, true, model_->executor());
  EXPECT_EQ(sequence.resident(0, 0), 32u);

  std::uint32_t evictions = 0;
  bool differ = false;
  for (int i = 0; i < 200; ++i) {
    free.give_back();
    append(sequence, 1, random);
    if (i < 100) free.take();
    if (!budget->due(sequence)) continue;
    const bool copies = i >= 100 && sequence.pages_to_own() > 0;
    const auto expected = without_lowest(sequence, true);
    differ = differ || std::ranges::adjacent_find(expected, std::ranges::not_equal_to(),
                                                  [](const auto& table) { return table.size(); }) != expected.end();
    budget->work(sequence, model_->executor());
    ++evictions;
    EXPECT_EQ(sequence.pages_to_own() > 0, i < 100);
    if (!copies) {
      EXPECT_EQ(pages_by_table(sequence), expected) << "eviction " << evictions;
    }
  }
  EXPECT_GE(evictions, 10u);
  EXPECT_TRUE(differ);
  EXPECT_TRUE(sequence.check_integrity());
}

// Others let go of its pages, and it packs where these lie: what was known of a page is another's now.
TEST_F(KvBudgetTest, DropsTheLowestPageOnceItWasPacked) {
  open(20);
  std::mt19937 random(3);
  Sequence sequence(*pool_);
  append(sequence, 200, random);
  std::optional<Sequence> reader(sequence.fork());
  FreePages free(*pool_);
  const auto append_one = [&](float times = 1) {
    free.give_back();
    append(sequence, 1, random, times);
    free.take();
  };
  append_one();
  const auto budget =
      KvBudget::create({.tokens = 32}, model_->info(), pool_->shape().block_size, 200, {}, nullptr).value();
  budget->chunk_done(sequence, true, model_->executor());
  while (budget->stats().evictions < 3) {
    append_one();
    if (budget->due(sequence)) budget->work(sequence, model_->executor());
  }
  reader.reset();
  EXPECT_TRUE(budget->pack(sequence, model_->executor(), {}));
  do append_one(100);  // which nobody would drop
  while (!budget->due(sequence));
  const auto expected = without_lowest(sequence, false);
  budget->work(sequence, model_->executor());
  EXPECT_EQ(pages_by_table(sequence), expected);
}

// After the prompt as after every eviction each layer keeps what pyramid gives it in a context of that length.
TEST_F(KvBudgetTest, PyramidFollowsTheContext) {
  const std::uint32_t layers = pool_->shape().layers, heads = pool_->shape().kv_heads;
  for (const std::uint32_t prompt : {150u, 400u}) {
    const KvBudgetOptions options{.tokens = 96, .method = "pyramid:knorm", .interval = 2};
    const ScorerOptions scorers{.window = 4};
    const auto budget = KvBudget::create(options, model_->info(), 16, prompt, scorers, nullptr).value();
    Sequence sequence(*pool_);
    ASSERT_TRUE(sequence.append(prompt));
    budget->chunk_done(sequence, true, model_->executor());
    for (std::uint64_t evictions = 0; evictions < 10; ++evictions) {
      const std::vector<float> scores(std::size_t{layers} * heads * sequence.length());
      const ModelScores context{layers, heads, sequence.length(), scores};
      const Kept kept = (*make_budget("pyramid"))->select(context, 96.0 / sequence.length(), scorers.window);
      for (std::uint32_t table = 0; table < layers * heads; ++table) {
        const auto row = std::span(kept).subspan(std::size_t{table} * sequence.length(), sequence.length());
        EXPECT_EQ(sequence.resident(table / heads, table % heads), std::ranges::count(row, 1))
            << "table " << table << " of " << sequence.length() << " tokens";
      }
      while (budget->stats().evictions < evictions + 2) {
        ASSERT_TRUE(sequence.append(1));
        if (budget->due(sequence)) budget->work(sequence, model_->executor());
      }
    }
  }
}

}  // namespace
}  // namespace shale
