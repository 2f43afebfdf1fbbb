// The tier in a cluster of Redis servers: slots that move, nodes that die, replicas that take their place.
#include "tiers/redis_cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

#include "tiers/blobs.h"
#include "tiers/tiers.h"

namespace shale::testing {
namespace {

class RedisClusterTest : public ::testing::Test {
 protected:
  void start(bool replicas = false) {
    auto cluster = RedisCluster::start(replicas);
    if (code_of(cluster) == ErrorCode::kUnsupported) GTEST_SKIP() << cluster.error().message;
    ASSERT_TRUE(cluster) << cluster.error().message;
    cluster_ = std::move(*cluster);
  }
  Result<std::unique_ptr<Tier>> open(const std::string& options = "timeout=1s&deadline=4s") {
    return make_tier(fmt::format("redis://127.0.0.1:{}?{}", cluster_->node(0).port(), options), clock_);
  }
  static Status put(Tier& tier, const BlobId& id, std::size_t bytes) {
    return tier.write(id, blob_bytes(id, bytes))->wait();
  }
  static bool holds(Tier& tier, const BlobId& id, std::size_t bytes) {
    const auto read = tier.read(id)->take();
    return read && same_bytes(**read, *blob_bytes(id, bytes));
  }
  // One that a node had which is dead.
  static std::uint32_t lost(Tier& tier) {
    for (std::uint32_t i = 0; i < 30; ++i) {
      if (!holds(tier, blob_id(i, 0), 20000)) return i;
    }
    return 0;
  }
  static std::size_t size_of(std::uint32_t i) { return i % 2 ? 100 : 100000; }

  RealClock clock_;
  std::unique_ptr<RedisCluster> cluster_;
};

TEST_F(RedisClusterTest, ObjectsSpreadOverNodesAndSlotsAreFollowedWhereTheyGo) {
  start();
  if (!cluster_) return;
  const auto tier = open().value();
  constexpr std::uint32_t kObjects = 30;
  for (std::uint32_t i = 0; i < kObjects; ++i) ASSERT_TRUE(put(*tier, blob_id(i, 0), size_of(i)));
  for (int i = 0; i < 3; ++i) EXPECT_GT(std::stoi(cluster_->node(i).ask("dbsize")), 3);
  EXPECT_EQ(tier->list()->size(), kObjects);
  EXPECT_TRUE(tier->check_integrity());
  // A slot is being moved from the first node: what is not there any more is asked of the second, then it is its own.
  const BlobId id = blob_id(100, 1);
  const auto slot = std::stoi(cluster_->node(0).ask("cluster keyslot " + id.object.hex()));
  const int from = std::min(slot / 5461, 2), to = (from + 1) % 3;
  cluster_->node(to).ask(fmt::format("cluster setslot {} importing {}", slot, cluster_->name(from)));
  cluster_->node(from).ask(fmt::format("cluster setslot {} migrating {}", slot, cluster_->name(to)));
  ASSERT_TRUE(put(*tier, id, 300));
  EXPECT_TRUE(holds(*tier, id, 300));
  for (const int node : {to, from}) {
    cluster_->node(node).ask(fmt::format("cluster setslot {} node {}", slot, cluster_->name(to)));
  }
  EXPECT_TRUE(holds(*tier, id, 300));
  ASSERT_TRUE(put(*tier, blob_id(100, 2), 500000));
  EXPECT_TRUE(holds(*open().value(), blob_id(100, 2), 500000));
}

TEST_F(RedisClusterTest, OneDeadNodeCostsWhatItHeld) {
  start();
  if (!cluster_) return;
  const auto tier = open().value();
  for (std::uint32_t i = 0; i < 30; ++i) ASSERT_TRUE(put(*tier, blob_id(i, 0), 20000));
  cluster_->node(2).kill();
  unsigned there = 0;
  for (std::uint32_t i = 0; i < 30; ++i) there += holds(*tier, blob_id(i, 0), 20000);
  EXPECT_GT(there, 5u);
  EXPECT_LT(there, 30u);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(tier->parts(blob_id(lost(*tier), 0).object).has_value(), false);
  EXPECT_TRUE(tier->trouble());
  EXPECT_GT(tier->breaker()->opened, 0u);
  EXPECT_EQ(tier->breaker()->kind, BreakerState::Kind::kClosed) << "of the others";
  EXPECT_TRUE(comes_true([&] { return code_of(tier->read(blob_id(lost(*tier), 0))->take()) == ErrorCode::kBusy; }))
      << "it is left alone";
  unsigned again = 0;
  for (std::uint32_t i = 0; i < 30; ++i) again += holds(*tier, blob_id(i, 0), 20000);
  EXPECT_EQ(again, there) << "and the others are not";

  const auto later = open("timeout=1s&deadline=4s&size=1GiB");  // which counts what is there
  ASSERT_TRUE(later) << later.error().message;
  unsigned found = 0;
  for (std::uint32_t i = 0; i < 30; ++i) found += holds(**later, blob_id(i, 0), 20000);
  EXPECT_EQ(found, there);
}

TEST_F(RedisClusterTest, WhoeverIsPromotedIsAskedInPlaceOfTheOldOneWithoutAnError) {
  start(true);
  if (!cluster_) return;
  const auto tier = open("timeout=8s&deadline=12s").value();  // a master holds writes back until its replica has all
  for (std::uint32_t i = 0; i < 30; ++i) ASSERT_TRUE(put(*tier, blob_id(i, 0), size_of(i)));
  std::atomic<bool> enough = false;
  std::atomic<std::uint32_t> written = 100;
  std::jthread writer([&] {
    for (; !enough; ++written) {
      const Status status = put(*tier, blob_id(written, 0), size_of(written));
      EXPECT_TRUE(status) << status.error().message;
      EXPECT_TRUE(holds(*tier, blob_id(written % 30, 0), size_of(written % 30)));
    }
  });
  for (const std::size_t replica : {3, 4, 5}) {
    EXPECT_TRUE(comes_true([&] {
      if (!cluster_->is_master(replica)) cluster_->node(replica).ask("cluster failover");  // which may time out
      return cluster_->is_master(replica) && !cluster_->is_master(replica - 3);
    }));
  }
  const std::uint32_t then = written;
  EXPECT_TRUE(comes_true([&] { return written > then + 20; }));
  enough = true;
  writer.join();
  for (std::uint32_t i = 100; i < written; ++i) EXPECT_TRUE(holds(*tier, blob_id(i, 0), size_of(i))) << i;
  EXPECT_EQ(tier->stats().read_errors, 0u);
  EXPECT_TRUE(tier->list());
}

// Of what a killed node held, its replica has what was copied in time; whatever comes, comes whole.
// Whether its replica has all that it was given: Redis copies behind the answers.
template <class Node>
bool has_whole_replica(Node& node) {
  const std::string info = node.ask("info replication");
  const std::string key = "master_repl_offset:";
  const std::size_t at = info.find(key);
  if (at == std::string::npos) return false;
  const std::size_t begin = at + key.size();
  const std::string offset = info.substr(begin, info.find_first_of("\r\n", begin) - begin);
  return info.find("state=online,offset=" + offset + ",") != std::string::npos;
}

TEST_F(RedisClusterTest, AReplicaTakesThePlaceOfANodeThatIsKilled) {
  start(true);
  if (!cluster_) return;
  for (const std::size_t victim : {2, 0}) {  // the seed, too
    const auto tier = open().value();
    for (std::uint32_t i = 0; i < 30; ++i) ASSERT_TRUE(put(*tier, blob_id(i, 0), size_of(i)));
    ASSERT_TRUE(comes_true([&] { return has_whole_replica(cluster_->node(victim)); }));
    cluster_->node(victim).kill();
    const double start_s = clock_.now_s();
    std::set<std::uint32_t> missing;
    for (std::uint32_t i = 0; i < 30; ++i) {
      if (!holds(*tier, blob_id(i, 0), size_of(i))) missing.insert(i);
    }
    EXPECT_LT(missing.size(), 30u) << "the others go on";
    EXPECT_LT(clock_.now_s() - start_s, 10) << "nobody waits for the dead";
    EXPECT_TRUE(comes_true([&] { return cluster_->is_master(victim + 3); }));
    EXPECT_TRUE(comes_true([&] {
      std::erase_if(missing, [&](std::uint32_t i) { return holds(*tier, blob_id(i, 0), size_of(i)); });
      return missing.empty();
    })) << missing.size()
        << " of 30 do not come back";
    for (std::uint32_t i = 0; i < 30; ++i) {
      const Status written = put(*tier, blob_id(i, 1), size_of(i));
      EXPECT_TRUE(written) << i << ": " << written.error().message;
    }
    EXPECT_EQ(tier->list().value_or(std::vector<BlobId>()).size(), 60u);
    EXPECT_EQ(tier->breaker()->kind, BreakerState::Kind::kClosed);
    ASSERT_TRUE(cluster_->node(victim).restart());  // as a replica, empty until it has copied
    EXPECT_TRUE(comes_true([&] {
      return cluster_->node(victim).ask("info replication").find("master_link_status:up") != std::string::npos;
    }));
    for (std::uint32_t i = 0; i < 30; ++i) {
      const Status removed = tier->remove(blob_id(i, 1));
      EXPECT_TRUE(removed) << i << ": " << removed.error().message;
    }
  }
}

}  // namespace
}  // namespace shale::testing
