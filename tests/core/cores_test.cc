#include "core/cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <cmath>
#include <fstream>
#include <thread>

#include "support/temporary_folder.h"

namespace shale {
namespace {

class CoresTest : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((folder_.path() / path).parent_path());
    std::ofstream(folder_.path() / path) << text;
  }
  double cores(std::string_view membership) { return cgroup_cores(membership, folder_.path()); }

  testing::TemporaryFolder folder_;
};

TEST_F(CoresTest, TheNewerControlGroupsLimitByThemselvesAndByThoseAbove) {
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

TEST_F(CoresTest, TheOlderOnesToo) {
  write("cpu/docker/x/cpu.cfs_quota_us", "-1\n");
  write("cpu/docker/x/cpu.cfs_period_us", "100000\n");
  const std::string membership = "5:cpuset:/docker/x\n4:cpu,cpuacct:/docker/x\n0::/\n";
  EXPECT_TRUE(std::isinf(cores(membership)));
  write("cpu/docker/x/cpu.cfs_quota_us", "300000\n");
  EXPECT_DOUBLE_EQ(cores(membership), 3);
  EXPECT_TRUE(std::isinf(cores("4:cpuset:/docker/x\n"))) << "another controller";
}

TEST_F(CoresTest, WhatCannotBeReadIsNoLimit) {
  write("a/cpu.max", "rubbish");
  EXPECT_TRUE(std::isinf(cores("0::/a\n")));
  EXPECT_TRUE(std::isinf(cores("no colon at all\n:\n")));
  EXPECT_TRUE(std::isinf(cores("")));
}

TEST_F(CoresTest, AffinityLimits) {
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
