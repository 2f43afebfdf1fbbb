// What every tier promises, run over every row of the table (tiers/tiers.h): as its URL makes it by default, with each
// of its flags the other way and with all of them, and throttled.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <random>
#include <thread>

#include "support/faulty_tier.h"
#include "support/temporary_folder.h"
#include "tiers/blobs.h"
#include "tiers/servers.h"
#include "tiers/tiers.h"

namespace shale::testing {
namespace {

struct Store {
  std::string name;
  std::function<std::unique_ptr<Tier>(const std::filesystem::path&, std::uint64_t capacity, const Clock&)> open;
  std::optional<TierServer> server = {};  // of a tier behind a network
};

void PrintTo(const Store& store, std::ostream* out) { *out << store.name; }

// `flipped`: flags that are to be the other way than where a URL does not give them.
Store store_of(const TierScheme& scheme, std::vector<TierScheme::Flag> flipped, bool throttled,
               std::optional<TierServer> server = {}) {
  std::string name(server ? server->name : scheme.scheme), options;
  for (const TierScheme::Flag& flag : flipped) {
    name += fmt::format("_{}_{}", flag.unset ? "no" : "with", flag.name);
    options += fmt::format("&{}={}", flag.name, flag.unset ? "off" : "on");
  }
  if (throttled) {
    name += "_throttled";
    options += "&throttle=2GB/s,100us";
  }
  return {name,
          [=](const std::filesystem::path& folder, std::uint64_t capacity, const Clock& clock) {
            std::string place = scheme.place == TierScheme::Place::kFolder ? (folder / scheme.scheme).string() : "";
            if (!place.empty()) place = "//" + place;
            if (server) place = server->place(folder.filename().string()).value();
            const std::string size = capacity == kUnlimited ? "unlimited" : std::to_string(capacity);
            const char mark = place.find('?') == std::string::npos ? '?' : '&';
            return make_tier(fmt::format("{}:{}{}size={}{}", scheme.scheme, place, mark, size, options), clock).value();
          },
          server};
}

std::vector<Store> stores() {
  std::vector<Store> stores;
  for (const TierScheme& scheme : tier_schemes()) {
    for (const TierServer& server : tier_servers(scheme.scheme)) {
      for (const bool throttled : {false, true}) stores.push_back(store_of(scheme, {}, throttled, server));
    }
    if (scheme.place == TierScheme::Place::kServer) continue;
    for (const bool throttled : {false, true}) stores.push_back(store_of(scheme, {}, throttled));
    for (const TierScheme::Flag& flag : scheme.flags) stores.push_back(store_of(scheme, {flag}, false));
    if (scheme.flags.size() > 1) stores.push_back(store_of(scheme, scheme.flags, false));
  }
  stores.push_back({"faultless", [](const auto&, std::uint64_t capacity, const Clock& clock) -> std::unique_ptr<Tier> {
                      return std::make_unique<FaultyTier>(make_memory_tier(capacity, clock), Faults{}, clock);
                    }});
  return stores;
}

class TierConformance : public ::testing::TestWithParam<Store> {
 protected:
  void SetUp() override {
    if (!GetParam().server) return;
    const auto place = GetParam().server->place("probe");
    if (code_of(place) == ErrorCode::kUnsupported) GTEST_SKIP() << place.error().message;
    ASSERT_TRUE(place) << place.error().message;
  }
  std::unique_ptr<Tier> open(std::uint64_t capacity = kUnlimited) {
    return GetParam().open(folder_.path(), capacity, clock_);
  }

  TemporaryFolder folder_;
  RealClock clock_;
};

TEST_P(TierConformance, ReadsBackWhatWasWrittenAtEverySize) {
  const auto tier = open();
  std::uint32_t part = 0;
  for (const std::size_t size :
       {0u, 1u, 47u, 48u, 49u, 4047u, 4048u, 4049u, 4096u, 4097u, 8192u, 262144u, 1048576u, 1048576u - 48u, 3500123u}) {
    const BlobId id = blob_id(1, part++);
    ASSERT_TRUE(tier->write(id, blob_bytes(id, size))->wait()) << size;
    EXPECT_TRUE(tier->contains(id)) << size;
    EXPECT_EQ(tier->blob_bytes(id), tier->stored_bytes(size));
    const auto read = tier->read(id)->take();
    ASSERT_TRUE(read) << size << ": " << read.error().message;
    EXPECT_TRUE(same_bytes(**read, *blob_bytes(id, size))) << size;
  }
  EXPECT_TRUE(tier->check_integrity());
  EXPECT_EQ(tier->stats().reads, part);
  EXPECT_EQ(tier->stats().writes, part);
}

TEST_P(TierConformance, ReadsRangesAndCountsOnlyThem) {
  const auto tier = open();
  constexpr std::uint64_t kSize = 3000123;
  const BlobId id = blob_id(1, 0);
  const BlobBytes all = blob_bytes(id, kSize);
  ASSERT_TRUE(tier->write(id, all)->wait());
  std::uint64_t asked = 0;
  for (const BlobRange& range :
       {BlobRange{0, 1}, BlobRange{4095, 2}, BlobRange{4096, 4096}, BlobRange{1000000, 1500000},
        BlobRange{kSize - 1, 1}, BlobRange{0, kSize}, BlobRange{700, 0}}) {
    const auto read = tier->read(id, range);
    const auto bytes = read->take();
    ASSERT_TRUE(bytes) << bytes.error().message;
    ASSERT_LE(read->first_byte(), range.offset);
    const std::uint64_t begin = range.offset - read->first_byte();
    ASSERT_LE(begin + range.bytes, (*bytes)->size());
    EXPECT_EQ(std::memcmp((*bytes)->data() + begin, all->data() + range.offset, range.bytes), 0)
        << range.bytes << " from " << range.offset;
    asked += range.bytes;
  }
  EXPECT_EQ(tier->stats().read_bytes, asked);
  for (const BlobRange& range : {BlobRange{0, kSize + 8192}, BlobRange{kSize + 8192, 1}, BlobRange{~0ull - 5, 10}}) {
    EXPECT_EQ(code_of(tier->read(id, range)->take()), ErrorCode::kCorrupt);
  }
  EXPECT_EQ(code_of(tier->read(blob_id(1, 1), {0, 1})->take()), ErrorCode::kNotFound);
}

TEST_P(TierConformance, AbsentBlobsAreMissesAndRemovingThemSucceeds) {
  const auto tier = open();
  const BlobId id = blob_id(1, 2);
  EXPECT_EQ(code_of(tier->read(id)->take()), ErrorCode::kNotFound);
  EXPECT_FALSE(tier->contains(id));
  EXPECT_EQ(tier->blob_bytes(id), 0u);
  EXPECT_TRUE(tier->remove(id));
  EXPECT_EQ(tier->stats().misses, 1u);
  EXPECT_EQ(tier->stats().read_errors, 0u);
  EXPECT_EQ(tier->stats().removals, 0u);
}

TEST_P(TierConformance, WritingAnExistingBlobChangesNothing) {
  const auto tier = open();
  const BlobId id = blob_id(3, BlobId::kManifest);
  ASSERT_TRUE(tier->write(id, blob_bytes(id, 5000))->wait());
  const std::uint64_t used = tier->used_bytes();
  EXPECT_TRUE(tier->write(id, blob_bytes(id, 9000))->wait());
  EXPECT_EQ(tier->used_bytes(), used);
  EXPECT_TRUE(same_bytes(**tier->read(id)->take(), *blob_bytes(id, 5000)));
  EXPECT_TRUE(tier->check_integrity());
}

TEST_P(TierConformance, AWriteSaysWhetherTheBlobIsItsOwn) {
  const auto tier = open(1 << 20);
  const BlobId id = blob_id(3, 1);
  const auto first = tier->write(id, blob_bytes(id, 5000));
  const auto second = tier->write(blob_id(3, 2), blob_bytes(id, 2 << 20));
  EXPECT_TRUE(first->wait());
  EXPECT_TRUE(first->created());
  EXPECT_EQ(code_of(second->wait()), ErrorCode::kFull);
  EXPECT_FALSE(second->created());
  const auto again = tier->write(id, blob_bytes(id, 5000));
  EXPECT_TRUE(again->wait());
  EXPECT_FALSE(again->created());
  EXPECT_EQ(tier->stats().written_bytes, 5000u);
}

TEST_P(TierConformance, PartsAreThoseOfOneObject) {
  const auto tier = open();
  for (const auto& id : {blob_id(1, 0), blob_id(2, 0), blob_id(2, 7), blob_id(2, BlobId::kManifest), blob_id(3, 1)}) {
    ASSERT_TRUE(tier->write(id, blob_bytes(id, 10))->wait());
  }
  EXPECT_THAT(tier->parts(blob_id(2, 0).object).value(), ::testing::UnorderedElementsAre(0u, 7u, BlobId::kManifest));
  EXPECT_THAT(tier->parts(blob_id(4, 0).object).value(), ::testing::IsEmpty());
}

TEST_P(TierConformance, WhatAnEarlierProcessMeasuredHoldsUntilItMeasures) {
  const auto tier = open();
  tier->expect({0.25, 3e6, 2e6, 9});
  EXPECT_EQ(tier->speed().latency_s, 0.25);
  EXPECT_EQ(tier->speed().read_bytes_per_s, 3e6);
  EXPECT_EQ(tier->speed().write_bytes_per_s, 2e6);
  EXPECT_EQ(tier->speed().samples, 0u);
  ASSERT_TRUE(tier->measure());
  EXPECT_GT(tier->speed().samples, 0u);
  EXPECT_NE(tier->speed().read_bytes_per_s, 3e6);
  EXPECT_NE(tier->speed().write_bytes_per_s, 2e6);
}

TEST_P(TierConformance, CapacityIsABound) {
  const auto tier = open(1 << 20);
  std::uint32_t stored = 0;
  for (; stored < 100; ++stored) {
    const BlobId id = blob_id(4, stored);
    const Status status = tier->write(id, blob_bytes(id, 100000))->wait();
    EXPECT_LE(tier->used_bytes(), tier->capacity_bytes());
    if (status) continue;
    EXPECT_EQ(code_of(status), ErrorCode::kFull);
    EXPECT_FALSE(tier->contains(id));
    break;
  }
  EXPECT_EQ(stored, (1 << 20) / tier->stored_bytes(100000));
  EXPECT_EQ(tier->stats().refused_full, 1u);
  EXPECT_TRUE(tier->write(blob_id(4, 0), blob_bytes(blob_id(4, 0), 100000))->wait()) << "it is there already";
  ASSERT_TRUE(tier->remove(blob_id(4, 0)));
  EXPECT_TRUE(tier->write(blob_id(5, 0), blob_bytes(blob_id(5, 0), 100000))->wait());
  EXPECT_TRUE(tier->check_integrity());
}

TEST_P(TierConformance, ManyReadsStartedTogetherAllEndWell) {
  const auto tier = open();
  constexpr std::uint32_t kBlobs = 60;
  for (std::uint32_t part = 0; part < kBlobs; ++part) {
    ASSERT_TRUE(tier->write(blob_id(6, part), blob_bytes(blob_id(6, part), 70000 + part))->wait());
  }
  std::vector<std::shared_ptr<TierRead>> reads;
  for (std::uint32_t part = 0; part < 2 * kBlobs; ++part) reads.push_back(tier->read(blob_id(6, part)));
  for (std::uint32_t part = 0; part < 2 * kBlobs; ++part) {
    const auto read = reads[part]->take();
    EXPECT_GE(reads[part]->seconds(), 0);
    if (part < kBlobs) {
      ASSERT_TRUE(read) << read.error().message;
      EXPECT_TRUE(same_bytes(**read, *blob_bytes(blob_id(6, part), 70000 + part)));
    } else {
      EXPECT_EQ(code_of(read), ErrorCode::kNotFound);
    }
  }
}

TEST_P(TierConformance, OperationsBecomeReadyWithoutAnyoneTakingThem) {
  const auto tier = open();
  const BlobId id = blob_id(7, 0);
  const auto write = tier->write(id, blob_bytes(id, 300000));
  while (!write->ready()) std::this_thread::yield();
  EXPECT_TRUE(write->wait());
  EXPECT_TRUE(write->wait()) << "asking again is allowed";
  const auto read = tier->read(id);
  while (!read->ready()) std::this_thread::yield();
  EXPECT_TRUE(same_bytes(**read->take(), *blob_bytes(id, 300000)));
}

TEST_P(TierConformance, DroppedOperationsStillHappen) {
  auto tier = open();
  for (std::uint32_t part = 0; part < 20; ++part) {
    (void)tier->write(blob_id(8, part), blob_bytes(blob_id(8, part), 50000));
    (void)tier->read(blob_id(8, part));
  }
  if (tier->persistent()) {
    tier.reset();
    tier = open();
  }
  const auto listed = tier->list();
  ASSERT_TRUE(listed) << listed.error().message;
  EXPECT_EQ(listed->size(), 20u);
  EXPECT_TRUE(tier->check_integrity());
}

TEST_P(TierConformance, ReadsInFlightSurviveRemovalAndSharedBytesOutliveIt) {
  const auto tier = open();
  const BlobId id = blob_id(9, 0);
  ASSERT_TRUE(tier->write(id, blob_bytes(id, 2000000))->wait());
  const BlobBytes held = tier->read(id)->take().value();
  const auto read = tier->read(id);
  ASSERT_TRUE(tier->remove(id));
  const auto result = read->take();
  if (result) {
    EXPECT_TRUE(same_bytes(**result, *blob_bytes(id, 2000000)));
  } else {
    EXPECT_EQ(code_of(result), ErrorCode::kNotFound) << "removal may come first";
  }
  EXPECT_EQ(tier->used_bytes(), 0u);
  EXPECT_TRUE(same_bytes(*held, *blob_bytes(id, 2000000)));
}

TEST_P(TierConformance, ThreadsMayDoEverythingAtOnce) {
  const auto tier = open();
  std::vector<std::jthread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&tier, t] {
      std::mt19937 random(t);
      for (int i = 0; i < 60; ++i) {
        const BlobId id = blob_id(10 + random() % 3, random() % 4);
        const std::size_t size = 3000 + 1000 * id.part;
        switch (random() % 3) {
          case 0:
            EXPECT_TRUE(tier->write(id, blob_bytes(id, size))->wait());
            break;
          case 1:
            EXPECT_TRUE(tier->remove(id));
            break;
          default:
            const auto read = tier->read(id)->take();
            if (read) {
              EXPECT_TRUE(same_bytes(**read, *blob_bytes(id, size)));
            } else {
              EXPECT_EQ(code_of(read), ErrorCode::kNotFound);
            }
        }
      }
    });
  }
  threads.clear();
  const std::vector<BlobId> left = tier->list().value();
  for (const BlobId& id : left) ASSERT_TRUE(tier->remove(id));
  EXPECT_EQ(tier->used_bytes(), 0u);
}

TEST_P(TierConformance, AgreesWithAMapThroughRandomOperationsAndRestarts) {
  std::mt19937 random(20240611);
  std::map<BlobId, std::size_t> expected;
  auto tier = open(8 << 20);
  for (int step = 0; step < 250; ++step) {
    const BlobId id = blob_id(random() % 6, random() % 5 == 0 ? BlobId::kManifest : random() % 4);
    const auto known = expected.find(id);
    switch (random() % 8) {
      case 0:
      case 1:
      case 2: {
        const std::size_t size = random() % 700000;
        const Status status = tier->write(id, blob_bytes(id, size))->wait();
        if (status && known == expected.end()) expected[id] = size;
        if (!status) {
          ASSERT_EQ(code_of(status), ErrorCode::kFull);
        }
        break;
      }
      case 3: {
        ASSERT_TRUE(tier->remove(id));
        expected.erase(id);
        break;
      }
      case 4: {
        if (random() % 3 != 0 || !tier->persistent()) break;
        tier.reset();
        tier = open(8 << 20);
        break;
      }
      default: {
        const auto read = tier->read(id)->take();
        ASSERT_EQ(read.has_value(), known != expected.end());
        if (read) {
          ASSERT_TRUE(same_bytes(**read, *blob_bytes(id, known->second)));
        }
      }
    }
    if (step % 10 != 0) continue;
    std::vector<BlobId> ids;
    for (const auto& [listed, size] : expected) ids.push_back(listed);
    ASSERT_EQ(tier->list().value(), ids);
    const Status whole = tier->check_integrity();
    ASSERT_TRUE(whole) << whole.error().message;
  }
}

TEST_P(TierConformance, MeasuresItselfAndLeavesNothingBehind) {
  const auto tier = open();
  EXPECT_EQ(tier->speed().samples, 0u);
  ASSERT_TRUE(tier->measure());
  const TierSpeed speed = tier->speed();
  EXPECT_GT(speed.samples, 0u);
  EXPECT_GT(speed.read_bytes_per_s, 0);
  EXPECT_GT(speed.write_bytes_per_s, 0);
  EXPECT_GE(speed.latency_s, 0);
  EXPECT_THAT(tier->list().value(), ::testing::IsEmpty());
  EXPECT_EQ(tier->used_bytes(), 0u);
}

TEST(TierServers, AreThereForEverySchemeBehindANetwork) {
  for (const TierScheme& scheme : tier_schemes()) {
    const bool server = scheme.place == TierScheme::Place::kServer;
    EXPECT_EQ(tier_servers(scheme.scheme).empty(), !server) << scheme.scheme << ": see tests/tiers/servers.h";
  }
}

INSTANTIATE_TEST_SUITE_P(Tiers, TierConformance, ::testing::ValuesIn(stores()),
                         [](const auto& store) { return store.param.name; });

}  // namespace
}  // namespace shale::testing
