// A prefix that is computed from its front while it is loaded from its back, until both meet (--load-and-compute): the
// cache and the simulator decide alike.
#pragma once

namespace shale {

// Both go on at their own speed, so together they take 1 / (1/a + 1/b).
inline double met_after_s(double compute_s, double load_s) { return compute_s * load_s / (compute_s + load_s); }

// Whether that is worth its trouble: where it takes so much of the time that is taken without.
inline bool worth_meeting(double met_s, double otherwise_s) {
  constexpr double kMeetingGain = 0.8;
  return met_s < kMeetingGain * otherwise_s;
}

}  // namespace shale
