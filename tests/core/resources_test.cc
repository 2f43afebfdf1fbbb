#include "core/resources.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "support/temporary_folder.h"

namespace shale {
namespace {

class ResourcesTest : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((folder_.path() / path).parent_path());
    std::ofstream(folder_.path() / path) << text;
  }
  double cores(std::string_view membership) { return cgroup_cores(membership, folder_.path()); }
  double memory(std::string_view membership) { return cgroup_memory(membership, folder_.path()); }

  testing::TemporaryFolder folder_;
};

TEST_F(ResourcesTest, TheNewerControlGroupsLimitByThemselvesAndByThoseAbove) {
  EXPECT_TRUE(std::isinf(cores("0::/a/b\n")));
  write("a/b/cpu.max", "max 100000\n");
  EXPECT_TRUE(std::isinf(cores("0::/a/b\n")));
  write("a/cpu.max", "250000 100000\n");
  EXPECT_DOUBLE_EQ(cores("0::/a/b\n"), 2.5);
  write("a/b/cpu.max", "50000 100000\n");
  EXPECT_DOUBLE_EQ(cores("0::/a/b\n"), 0.5);
  EXPECT_DOUBLE_EQ(cores("0::/a\n"), 2.5);
  EXPECT_TRUE(std::isinf(cores("0::/\n")));
}

TEST_F(ResourcesTest, TheOlderOnesToo) {
  write("cpu/docker/x/cpu.cfs_quota_us", "-1\n");
  write("cpu/docker/x/cpu.cfs_period_us", "100000\n");
  const std::string membership = "5:cpuset:/docker/x\n4:cpu,cpuacct:/docker/x\n0::/\n";
  EXPECT_TRUE(std::isinf(cores(membership)));
  write("cpu/docker/x/cpu.cfs_quota_us", "300000\n");
  EXPECT_DOUBLE_EQ(cores(membership), 3);
  EXPECT_TRUE(std::isinf(cores("4:cpuset:/docker/x\n"))) << "another controller";
}

TEST_F(ResourcesTest, CoresThatAreUsedAreIdleForSoLong) {
  const double ticks_a_s = static_cast<double>(sysconf(_SC_CLK_TCK));
  const auto idle = [&](const std::string& text, const std::vector<bool>& used) {
    std::istringstream stat(text);
    const auto seconds = idle_core_seconds(stat, used);
    return seconds ? *seconds * ticks_a_s : -1;
  };
  const std::string text =
      "cpu  9 9 9 999 9 9\ncpu0 1 2 3 100 20 6 7\ncpu1 1 2 3 1000 0 6 7\ncpu10 1 2 3 5 4 0\nintr 5 4 3\ncpu2 0 0 0 9 "
      "9\n";
  EXPECT_DOUBLE_EQ(idle(text, {true, true}), 1120);
  EXPECT_DOUBLE_EQ(idle(text, {false, true}), 1000);
  EXPECT_DOUBLE_EQ(idle(text, std::vector<bool>(11, true)), 1129);
  EXPECT_EQ(idle(text, {}), -1) << "none of them is told of";
  EXPECT_EQ(idle("", {true}), -1);
  EXPECT_EQ(idle("cpu0 rubbish\n", {true}), -1);
  const auto now = idle_core_seconds();
  EXPECT_TRUE(!now || *now >= 0);
}

TEST_F(ResourcesTest, WhatCannotBeReadIsNoLimit) {
  write("a/cpu.max", "rubbish");
  EXPECT_TRUE(std::isinf(cores("0::/a\n")));
  EXPECT_TRUE(std::isinf(cores("no colon at all\n:\n")));
  EXPECT_TRUE(std::isinf(cores("")));
}

TEST_F(ResourcesTest, MemoryIsLimitedByControlGroupsOfBothKinds) {
  EXPECT_TRUE(std::isinf(memory("0::/a/b\n")));
  write("a/b/memory.max", "max\n");
  EXPECT_TRUE(std::isinf(memory("0::/a/b\n")));
  write("a/memory.max", "2147483648\n");
  EXPECT_DOUBLE_EQ(memory("0::/a/b\n"), 2147483648.0);
  const std::string membership = "4:memory:/docker/x\n0::/\n";
  write("memory/docker/x/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_GT(memory(membership), 1e18) << "which is none";
  write("memory/docker/x/memory.limit_in_bytes", "1073741824\n");
  EXPECT_DOUBLE_EQ(memory(membership), 1073741824.0);
  EXPECT_GT(usable_memory(), std::uint64_t{1} << 28);
}

TEST_F(ResourcesTest, AffinityLimits) {
  EXPECT_GE(usable_cores(), 1u);
  std::uint32_t bound = 0;
  std::jthread([&] {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<unsigned>(sched_getcpu()), &set);
    ASSERT_EQ(sched_setaffinity(0, sizeof(set), &set), 0);
    bound = usable_cores();
  }).join();
  EXPECT_EQ(bound, 1u);
}

}  // namespace
}  // namespace shale
