// Whether two samples are told apart by size: the test of Mann and Whitney, two-sided.
#pragma once

#include <span>

namespace shale {

struct RankTest {
  double p = 1;  // of ranks as uneven, were both of one kind; by the normal approximation with ties, for 8 each or more
  double auc = 0.5;  // share of pairs in which the one of `a` is greater; ties count half
};

// 1 and 0.5 where one of them is empty.
RankTest rank_test(std::span<const double> a, std::span<const double> b);

}  // namespace shale
