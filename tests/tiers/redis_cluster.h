// A cluster of Redis servers of a test's own, each with an equal share of the slots.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "support/eventually.h"
#include "tiers/redis_server.h"

namespace shale::testing {

// Within half a minute.
inline bool comes_true(const std::function<bool()>& reached) { return eventually(reached, 3000); }

class RedisCluster {
 public:
  // Three nodes, and as many replicas where they are wanted: of node i, node i + 3. kUnsupported where it is not
  // installed.
  static Result<std::unique_ptr<RedisCluster>> start(bool replicas = false) {
    auto cluster = std::make_unique<RedisCluster>();
    for (int i = 0; i < (replicas ? 2 * kMasters : kMasters); ++i) {
      SHALE_ASSIGN(
          auto node,
          RedisServer::start({.cluster = true,
                              .more = {"--cluster-config-file", "nodes.conf", "--cluster-require-full-coverage", "no",
                                       "--cluster-node-timeout", "1000", "--repl-diskless-sync-delay", "0"}}));
      cluster->nodes_.push_back(std::move(node));
    }
    auto& nodes = cluster->nodes_;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (i < kMasters) {
        nodes[i]->ask(fmt::format("cluster addslotsrange {} {}", i * 5461, i == 2 ? 16383 : i * 5461 + 5460));
      }
      nodes[0]->ask(fmt::format("cluster meet 127.0.0.1 {} {}", nodes[i]->port(), nodes[i]->bus_port()));
    }
    if (!comes_true([&] { return std::ranges::all_of(nodes, is_whole); })) {
      return fail(ErrorCode::kIo, "the cluster does not come together");
    }
    for (std::size_t i = kMasters; i < nodes.size(); ++i) {
      const auto follows = [&] {
        nodes[i]->ask("cluster replicate " + cluster->name(i - kMasters));
        return nodes[i]->ask("info replication").find("master_link_status:up") != std::string::npos;
      };
      if (!comes_true(follows)) return fail(ErrorCode::kIo, "a replica does not follow");
    }
    return cluster;
  }

  RedisServer& node(std::size_t number) { return *nodes_[number]; }
  std::size_t size() const { return nodes_.size(); }
  std::string name(std::size_t number) const { return nodes_[number]->ask("cluster myid").substr(0, 40); }
  bool is_master(std::size_t number) const {
    return nodes_[number]->ask("info replication").find("role:master") != std::string::npos;
  }

 private:
  static constexpr int kMasters = 3;
  static bool is_whole(const std::unique_ptr<RedisServer>& node) {
    const std::string info = node->ask("cluster info");
    return info.find("cluster_state:ok") != std::string::npos &&
           info.find("cluster_slots_ok:16384") != std::string::npos;
  }

  std::vector<std::unique_ptr<RedisServer>> nodes_;
};

}  // namespace shale::testing
