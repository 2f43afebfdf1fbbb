#include "scheduling/fair_shares.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

namespace shale {
namespace {

TEST(FairSharesTest, WhoComesBackHasSavedUpNothing) {
  FairShares shares;
  auto& ann = shares.enter("ann", 1);
  ann.charge(100);
  auto& bob = shares.enter("bob", 1);
  EXPECT_EQ(bob.service, 100) << "lifted to the least of those who are there";
  bob.charge(50);
  shares.leave(bob);
  ann.charge(500);
  EXPECT_EQ(shares.enter("bob", 1).service, 600);
  shares.leave(bob);
  shares.leave(ann);
  EXPECT_EQ(shares.enter("eve", 1).service, 600) << "of who was served last, when nobody was there";
}

TEST(FairSharesTest, WhoIsServedHasSavedUpNothing) {
  FairShares shares;
  shares.leave(shares.enter("ann", 1));
  shares.enter("bob", 1).charge(1000);
  EXPECT_EQ(shares.enter("ann", 1).service, 1000);
}

TEST(FairSharesTest, WhoWasServedMoreIsNotLowered) {
  FairShares shares;
  auto& ann = shares.enter("ann", 1);
  auto& bob = shares.enter("bob", 1);
  bob.charge(70);
  shares.leave(bob);
  EXPECT_EQ(shares.enter("bob", 1).service, 70);
  EXPECT_EQ(ann.service, 0);
}

// The bound of the paper: of two that always wait, the charges differ by no more than the largest two.
TEST(FairSharesTest, WhoAlwaysWaitsIsServedByWeight) {
  const std::map<std::string, double> weights = {{"ann", 1}, {"bob", 2}, {"eve", 0.5}};
  constexpr double kChargeMax = 1000;
  FairShares shares;
  std::map<std::string, FairShares::Share*> waiting;
  for (const auto& [name, weight] : weights) waiting[name] = &shares.enter(name, weight);
  std::map<std::string, double> served;
  std::mt19937 random(1);
  for (int i = 0; i < 5000; ++i) {
    const auto next = std::ranges::min_element(waiting, {}, [](const auto& each) { return each.second->service; });
    const double charge = std::uniform_real_distribution(1.0, kChargeMax)(random);
    next->second->charge(charge);
    served[next->first] += charge;
    for (const auto& [a, weight_a] : weights) {
      for (const auto& [b, weight_b] : weights) {
        ASSERT_LE(served[a] / weight_a - served[b] / weight_b, kChargeMax / weight_a) << a << " " << b << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace shale
