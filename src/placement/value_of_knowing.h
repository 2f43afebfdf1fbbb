// What it is worth to know qualities better, before they are measured.
#pragma once

#include <span>

namespace shale {

// What a cached prefix may become, or is.
struct UncertainForm {
  double quality = 1;  // as expected
  double learnt = 0;   // standard deviation of what measuring would change of that
  double load_s = 0;
};

// Seconds, on average, by which a request is better served once the qualities are measured: by a form that turns out
// better than the one that is best as far as is known, or because that one turns out below the floor. The largest
// expected improvement (Mockus 1975) is the value of that information (Howard 1966) but for a little, since seldom more
// than one form is near the best. Utility as for the placement, alpha · quality − load_s; of those below the floor none
// is chosen.
double value_of_knowing(std::span<const UncertainForm> forms, double alpha, double floor);

}  // namespace shale
