// Minimises a convex function of a few variables over the unit box by the ellipsoid method with deep cuts (Bland,
// Goldfarb and Todd 1981). It needs no smoothness, only a subgradient, and certifies how close it came.
#pragma once

#include <functional>
#include <span>
#include <vector>

namespace shale {

struct EllipsoidOptions {
  double gap = 1e-6;  // stop when the least value found is surely this close to the minimum
  int steps_max = 500;
};

// `value` gets a point of the box [0, 1]^size and writes a subgradient there. Returns the least value found; that is
// within `gap` of the minimum unless steps_max came first.
double minimise_over_unit_box(
    std::size_t size, const EllipsoidOptions& options,
    const std::function<double(std::span<const double> at, std::span<double> subgradient)>& value);

}  // namespace shale
