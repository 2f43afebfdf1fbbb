// The store through its C interface, from C and, by its C++ face, from C++.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <numeric>
#include <shale/store.hpp>
#include <string>

#include "core/version.h"
#include "store/store_in_c.h"
#include "support/temporary_folder.h"

namespace shale::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::uint32_t kBlock = 4;
constexpr kv::Geometry kSmall = {
    .element = SHALE_F16, .layers = 2, .kv_heads = 2, .head_dim = 32, .block_tokens = kBlock};

kv::Options in_memory() {
  return {.name_space = "test model", .geometry = kSmall, .tiers = "memory:?size=64MiB", .chunk_tokens = 16};
}

std::vector<std::int32_t> tokens_from(std::int32_t first, std::size_t count) {
  std::vector<std::int32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// Plain arrays for some tokens.
struct Arrays {
  explicit Arrays(std::size_t count, std::uint16_t first = 0)
      : tokens(static_cast<std::uint32_t>(count)), keys(count * 2 * 2 * 32), values(keys.size()) {
    if (first == 0) return;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      keys[i] = static_cast<std::uint16_t>(0x3000 + (first + i * 7) % 0xC00);
      values[i] = static_cast<std::uint16_t>(0x3000 + (first + i * 11) % 0xC00);
    }
  }
  kv::View view() { return shale_plain_view(&kSmall, keys.data(), values.data(), tokens); }
  bool operator==(const Arrays&) const = default;

  std::uint32_t tokens;
  std::vector<std::uint16_t> keys, values;
};

kv::Result<void> save_all(kv::Store& store, std::span<const kv::Key> keys, Arrays& arrays,
                          const kv::SaveHints& hints = {}) {
  auto save = store.save(keys, arrays.view(), hints);
  if (!save) return std::unexpected(save.error());
  return save->wait();
}

TEST(StoreInC, CompilesAndServesInC) {
  const TemporaryFolder folder;
  const char* const wrong = store_in_c(folder.path().c_str());
  EXPECT_EQ(wrong, nullptr) << wrong;
}

TEST(StoreInC, IsOfTheProjectsVersion) {
  EXPECT_STREQ(shale_version(), SHALE_VERSION);
  EXPECT_EQ(SHALE_VERSION, kVersion) << "CMakeLists.txt and the header say it";
}

TEST(StoreInC, SaysWhatIsWrong) {
  auto options = in_memory();
  options.tiers = "tape:?size=1GiB";
  auto opened = kv::Store::open(options);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, SHALE_INVALID_ARGUMENT);
  EXPECT_THAT(opened.error().message, HasSubstr("tape"));
  options = in_memory();
  options.name_space = nullptr;
  EXPECT_THAT(kv::Store::open(options).error().message, HasSubstr("name_space"));
  options = in_memory();
  options.geometry.layers = 0;
  EXPECT_EQ(kv::Store::open(options).error().code, SHALE_INVALID_ARGUMENT);
  options = in_memory();
  options.packing = static_cast<shale_packing>(3);  // of a newer header
  EXPECT_THAT(kv::Store::open(options).error().message, HasSubstr("packing 3"));
  EXPECT_EQ(kv::block_keys(tokens_from(0, 4), 0).error().code, SHALE_INVALID_ARGUMENT);

  auto store = kv::Store::open(in_memory()).value();
  Arrays arrays(16, 1);
  const auto keys = kv::block_keys(tokens_from(1, 16), kBlock).value();
  EXPECT_THAT(store.save(keys, arrays.view(), {.method = "no such method"}).error().message, HasSubstr("no such"));
  const shale_attention_statistics statistics = {.query_heads = 3};
  EXPECT_THAT(store.save(keys, arrays.view(), {.statistics = &statistics}).error().message, HasSubstr("3 query"));
  const std::uint32_t table[] = {0, 1, 2, 9};
  auto view = arrays.view();
  view.block_table = table;
  EXPECT_EQ(store.load(keys, view).error().code, SHALE_INVALID_ARGUMENT) << "there is no physical block 9";
}

TEST(StoreInC, ALookUpALoadAndWhatIsSharedOnceSaved) {
  auto store = kv::Store::open(in_memory()).value();
  Arrays saved(64, 1);
  const auto tokens = tokens_from(1, 64);
  const auto keys = kv::block_keys(tokens, kBlock).value();
  EXPECT_EQ(store.lookup(keys)->blocks, 0u);
  ASSERT_TRUE(save_all(store, keys, saved, {.tokens = tokens.data(), .token_count = tokens.size()}));
  EXPECT_EQ(store.lookup(keys)->blocks, 16u);
  EXPECT_EQ(store.lookup(keys, {}, "somebody else")->blocks, 0u) << "tenants do not see one another";

  {
    Arrays loaded(64);
    auto load = store.load(keys, loaded.view()).value();
    ASSERT_TRUE(load.wait());
    EXPECT_TRUE(load.done());
    EXPECT_EQ(loaded, saved);
    EXPECT_TRUE(load.failures()->empty());
    ASSERT_FALSE(load.runs()->empty());
    EXPECT_STREQ(load.runs()->front().method, "full");
    EXPECT_EQ(load.runs()->front().rows, nullptr);
    EXPECT_TRUE(std::ranges::equal(load.lineage_keys(keys).value(), keys, [](const kv::Key& a, const kv::Key& b) {
      return std::memcmp(&a, &b, sizeof a) == 0;
    }));
  }

  auto again = store.save(keys, saved.view()).value();
  ASSERT_TRUE(again.wait());
  EXPECT_EQ(again.shared_blocks(), 16u);
  EXPECT_EQ(store.pin(keys).value(), 16u);
  EXPECT_EQ(store.remove(keys).value(), 0u) << "pinned";
  EXPECT_EQ(store.unpin(keys).value(), 16u);
  EXPECT_EQ(store.touch(keys).value(), 16u);
  EXPECT_EQ(store.remove(keys).value(), 16u);
  EXPECT_EQ(store.lookup(keys)->blocks, 0u);
  const auto sound = store.check_integrity();
  EXPECT_TRUE(sound) << sound.error().message;
}

TEST(StoreInC, LossyBlocksComeOnlyWhereTheyAreAccepted) {
  auto store = kv::Store::open(in_memory()).value();
  Arrays saved(64, 1);
  const auto keys = kv::block_keys(tokens_from(1, 64), kBlock).value();
  const auto done = save_all(store, keys, saved, {.method = "keydiff+int8", .keep = 0.5, .quality = 0.9});
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(store.lookup(keys)->blocks, 0u);
  EXPECT_EQ(store.lookup(keys, {.lossy = true, .quality_min = 0.95})->blocks, 0u);
  const auto found = store.lookup(keys, {.lossy = true, .quality_min = 0.8});
  EXPECT_EQ(found->blocks, 16u);
  EXPECT_EQ(found->exact_blocks, 0u);
  EXPECT_FLOAT_EQ(static_cast<float>(found->quality), 0.9f);

  Arrays loaded(64);
  auto load = store.load(keys, loaded.view(), {.needs = {.lossy = true}}).value();
  ASSERT_TRUE(load.wait());
  const auto runs = load.runs().value();
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_STREQ(runs[0].method, "keydiff+int8");
  ASSERT_NE(runs[0].rows, nullptr);
  EXPECT_EQ(std::accumulate(runs[0].rows, runs[0].rows + 4, 0u), 4 * 32u) << "half of 64 tokens, four heads";
  const auto lineage = load.lineage_keys(keys).value();
  EXPECT_NE(std::memcmp(&lineage[0], keys.data(), sizeof(kv::Key)), 0);
}

// What is full is compressed, where its owner says what answers are worth then.
TEST(StoreInC, PlacesByWhatTheOwnerKnows) {
  static constexpr std::uint8_t kRun[16] = {1, 2, 3};
  struct Told {
    std::atomic<int> asked = 0, of_the_run = 0;
  } told;
  kv::Options options = in_memory();
  options.tiers = "memory:?size=112KiB";  // three of 32 KiB with what belongs to them, not four
  options.placement.methods = "knorm+int8,int8";
  options.placement.context = &told;
  options.placement.quality = [](void* context, const std::uint8_t* run, const char* method, double) {
    Told& to = *static_cast<Told*>(context);
    ++to.asked;
    to.of_the_run += std::memcmp(run, kRun, sizeof kRun) == 0;
    return std::strcmp(method, "int8") == 0 ? 0.99 : -1.0;
  };
  auto store = kv::Store::open(options).value();
  const auto chain = [](int c) { return kv::block_keys(tokens_from(1 + 1000 * c, 64), kBlock).value(); };
  for (int c = 0; c < 4; ++c) {
    Arrays saved(64, static_cast<std::uint16_t>(1 + c));
    ASSERT_TRUE(save_all(store, chain(c), saved, {.recompute_s = 1, .run = kRun}));
    ASSERT_TRUE(store.flush());
  }
  std::uint32_t exact = 0, all = 0;
  for (int c = 0; c < 4; ++c) {
    exact += store.lookup(chain(c))->blocks;
    all += store.lookup(chain(c), {.lossy = true, .quality_min = 0.98})->blocks;
  }
  EXPECT_EQ(all, 4 * 16u);
  EXPECT_LT(exact, all);
  EXPECT_GT(told.asked, 0);
  EXPECT_GT(told.of_the_run, 0);
  options.placement.planner = "nobody";
  const auto refused = kv::Store::open(options);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("nobody"));
}

TEST(StoreInC, ATierThatMayBeLateIsNotWaitedFor) {
  auto options = in_memory();
  options.tiers = "memory:?size=64MiB,redis://127.0.0.1:1";  // where nobody listens
  const auto refused = kv::Store::open(options);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("127.0.0.1:1"));
  options.late = true;
  auto store = kv::Store::open(options).value();
  Arrays saved(64, 1);
  const auto keys = kv::block_keys(tokens_from(0, 64), kBlock).value();
  ASSERT_TRUE(save_all(store, keys, saved));
  EXPECT_EQ(store.lookup(keys)->blocks, 16u);
  options.tiers = "redis://127.0.0.1:1?timeout=never";
  EXPECT_EQ(kv::Store::open(options).error().code, SHALE_INVALID_ARGUMENT);
}

TEST(StoreInC, ALateTierSaysWhyItIsNotThere) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "file") << "no folder";  // below which nobody can make one
  const std::string url = "file://" + (folder.path() / "file/kv").string() + "?size=64MiB";
  auto options = in_memory();
  options.tiers = url.c_str();
  options.late = true;
  auto store = kv::Store::open(options).value();
  const auto stats = store.stats().value();
  const char* const trouble = stats->tiers[0].trouble;
  ASSERT_NE(trouble, nullptr);
  const std::string why = trouble;
  EXPECT_THAT(why, AllOf(HasSubstr(folder.path().string()), HasSubstr("Not a directory")));
  Arrays saved(64, 1);
  const auto kept = save_all(store, kv::block_keys(tokens_from(0, 64), kBlock).value(), saved);
  ASSERT_FALSE(kept);
  EXPECT_EQ(kept.error().code, SHALE_FULL);
  EXPECT_THAT(kept.error().message, HasSubstr(why));
  EXPECT_EQ(kv::Store::open(in_memory())->stats().value()->tiers[0].trouble, nullptr);
}

TEST(StoreInC, TheEventFdWakesWhoeverWaits) {
  auto store = kv::Store::open(in_memory()).value();
  Arrays saved(64, 1);
  const auto keys = kv::block_keys(tokens_from(1, 64), kBlock).value();
  const int fd = store.event_fd();
  ASSERT_GE(fd, 0);
  auto save = store.save(keys, saved.view()).value();
  while (!save.done()) {
    pollfd waited{.fd = fd, .events = POLLIN, .revents = 0};
    ASSERT_EQ(poll(&waited, 1, 60'000), 1) << "nothing tells that the save has ended";
    std::uint64_t count = 0;
    ASSERT_EQ(read(fd, &count, sizeof count), static_cast<ssize_t>(sizeof count));
  }
  const auto events = store.take_events(100).value();
  ASSERT_EQ(events->count, 1u);
  EXPECT_EQ(events->events[0].kind, SHALE_STORED);
  EXPECT_EQ(events->events[0].key_count, 16u);
  EXPECT_EQ(std::memcmp(events->events[0].keys, keys.data(), 16 * sizeof(kv::Key)), 0);
}

TEST(StoreInC, TheEventFdStaysReadableWhileAnEventWaits) {
  auto store = kv::Store::open(in_memory()).value();
  Arrays saved(64, 1);
  for (const std::int32_t first : {1, 1001}) {
    ASSERT_TRUE(save_all(store, kv::block_keys(tokens_from(first, 64), kBlock).value(), saved));
  }
  ASSERT_TRUE(store.flush());
  pollfd waited{.fd = store.event_fd(), .events = POLLIN, .revents = 0};
  for (const int left : {1, 0}) {
    std::uint64_t count = 0;
    ASSERT_EQ(read(waited.fd, &count, sizeof count), static_cast<ssize_t>(sizeof count));
    EXPECT_EQ(store.take_events(1).value()->count, 1u);
    EXPECT_EQ(poll(&waited, 1, 0), left);
  }
}

TEST(StoreInC, ArraysThatAreToBeFilledAreGiven) {
  Arrays saved(64, 1), loaded(64);
  const auto keys = kv::block_keys(tokens_from(1, 64), kBlock).value();
  const shale_store_options options = in_memory();
  shale_store* store = nullptr;
  ASSERT_EQ(shale_store_open(&options, &store), SHALE_OK);
  const shale_view from = saved.view(), to = loaded.view();
  shale_save* save = nullptr;
  ASSERT_EQ(shale_store_save(store, keys.data(), keys.size(), &from, nullptr, &save), SHALE_OK);
  ASSERT_EQ(shale_save_wait(save), SHALE_OK);
  shale_save_free(save);
  const shale_load_options behind = {.first_block = 1};  // the first chunk begins before the view and fails
  shale_load* load = nullptr;
  ASSERT_EQ(shale_store_load(store, keys.data(), keys.size(), &to, &behind, &load), SHALE_OK);
  EXPECT_EQ(shale_load_skipped(load), 3u);
  ASSERT_EQ(shale_load_wait(load), SHALE_OK);
  std::size_t failures = 0, runs = 0;
  EXPECT_EQ(shale_load_failures(load, nullptr, 4, &failures), SHALE_INVALID_ARGUMENT);
  EXPECT_THAT(shale_error_message(), HasSubstr("failures"));
  EXPECT_EQ(shale_load_runs(load, nullptr, 4, &runs), SHALE_INVALID_ARGUMENT);
  EXPECT_THAT(shale_error_message(), HasSubstr("runs"));
  EXPECT_EQ(shale_load_failures(load, nullptr, 0, &failures), SHALE_OK);
  EXPECT_EQ(shale_load_runs(load, nullptr, 0, &runs), SHALE_OK);
  EXPECT_EQ(failures, 1u);
  EXPECT_EQ(runs, 1u);
  shale_load_free(load);
  shale_store_close(store);
}

TEST(StoreInC, MetricsByTenantAndTier) {
  auto store = kv::Store::open(in_memory()).value();
  Arrays saved(32, 1);
  const auto keys = kv::block_keys(tokens_from(1, 32), kBlock).value();
  ASSERT_TRUE(save_all(store, keys, saved, {.tenant = "team a"}));
  (void)store.lookup(keys, {}, "team a");
  const auto stats = store.stats().value();
  ASSERT_EQ(stats->tier_count, 1u);
  EXPECT_STREQ(stats->tiers[0].name, "memory");
  EXPECT_EQ(stats->tiers[0].chunks, 2u);
  EXPECT_EQ(stats->tiers[0].capacity_bytes, std::uint64_t{64} << 20);
  const auto* const end = stats->tenants + stats->tenant_count;
  const auto* const tenant =
      std::find_if(stats->tenants, end, [](const auto& row) { return std::string_view(row.tenant) == "team a"; });
  ASSERT_NE(tenant, end);
  EXPECT_EQ(tenant->blocks_saved, 8u);
  EXPECT_EQ(tenant->blocks_found, 8u);
  EXPECT_GE(tenant->bytes, 2 * 2 * 32 * 2 * 32u * 2);
}

TEST(StoreInC, ATenantAtItsQuotaDropsItsOwn) {
  auto store = kv::Store::open(in_memory()).value();
  const auto chain = [](int c) { return kv::block_keys(tokens_from(1 + 1000 * c, 64), kBlock).value(); };
  const auto row = [&](std::string_view tenant) {
    const auto stats = store.stats().value();
    const auto* const end = stats->tenants + stats->tenant_count;
    const auto* const found =
        std::find_if(stats->tenants, end, [&](const auto& each) { return tenant == each.tenant; });
    return found == end ? shale_tenant_stats() : *found;
  };
  const auto save = [&](int c, const char* tenant, double recompute_s) {
    Arrays saved(64, static_cast<std::uint16_t>(1 + c));
    const auto done = save_all(store, chain(c), saved, {.tenant = tenant, .recompute_s = recompute_s});
    EXPECT_TRUE(store.flush());
    return done ? SHALE_OK : done.error().code;
  };
  ASSERT_EQ(save(0, "ann", 1), SHALE_OK);
  ASSERT_EQ(save(1, "ann", 2), SHALE_OK);
  ASSERT_EQ(save(0, "bob", 0.001), SHALE_OK);
  const std::uint64_t two = row("ann").bytes;
  ASSERT_TRUE(store.set_quota("ann", two));
  EXPECT_EQ(row("ann").bytes_max, two);
  EXPECT_EQ(save(2, "ann", 0.5), SHALE_FULL) << "worth less than what is there";
  EXPECT_THAT(shale_error_message(), HasSubstr("tenant ann"));
  EXPECT_EQ(row("ann").refused, 1u);
  EXPECT_EQ(save(3, "ann", 3), SHALE_OK);
  EXPECT_EQ(store.lookup(chain(0), {}, "ann")->blocks, 0u) << "it was worth least";
  EXPECT_EQ(store.lookup(chain(1), {}, "ann")->blocks, 16u);
  EXPECT_EQ(store.lookup(chain(3), {}, "ann")->blocks, 16u);
  EXPECT_EQ(store.lookup(chain(0), {}, "bob")->blocks, 16u);
  EXPECT_EQ(row("ann").dropped_for_room, 1u);
  EXPECT_LE(row("ann").bytes, two);
  EXPECT_EQ(row("bob").bytes_max, 0u);

  ASSERT_TRUE(store.set_quota("ann", two / 2 + 1000));
  ASSERT_TRUE(store.flush());
  EXPECT_EQ(store.lookup(chain(1), {}, "ann")->blocks, 0u);
  EXPECT_EQ(store.lookup(chain(3), {}, "ann")->blocks, 16u);
  ASSERT_TRUE(store.set_quota("ann", 0));
  EXPECT_EQ(save(1, "ann", 0.1), SHALE_OK);
  EXPECT_EQ(shale_store_set_quota(nullptr, "ann", 1), SHALE_INVALID_ARGUMENT);
}

TEST(StoreInC, WithoutThreadsTheOwnerDoesTheWork) {
  auto options = in_memory();
  options.threads = -1;
  auto store = kv::Store::open(options).value();
  Arrays saved(32, 1);
  const auto keys = kv::block_keys(tokens_from(1, 32), kBlock).value();
  auto save = store.save(keys, saved.view()).value();
  EXPECT_FALSE(save.released());
  while (store.work(1e-3).value()) {
  }
  EXPECT_TRUE(save.released());
  EXPECT_TRUE(save.done());
  EXPECT_EQ(store.lookup(keys)->blocks, 8u);
}

}  // namespace
}  // namespace shale::testing
