#include "trial/chaos_plan.h"

#include <algorithm>
#include <array>
#include <random>

namespace shale {
namespace {

struct Kind {
  std::string_view name;
  unsigned weight;    // among those that are no kills
  double hold_s_max;  // 0: it happens at once
};
constexpr std::array<Kind, kFaultKinds> kKinds = {{{"kill", 0, 0},
                                                   {"stop", 0, 0},
                                                   {"torn", 0, 0},
                                                   {"flip", 12, 0},
                                                   {"error", 16, 0.4},
                                                   {"damage", 14, 0.4},
                                                   {"full", 12, 0.4},
                                                   {"limit", 6, 0.3},
                                                   {"slow", 12, 0.4},
                                                   {"hang", 8, 1.0},
                                                   {"gone", 5, 0.4},
                                                   {"clock", 8, 0.5},
                                                   {"memory", 2, 0},
                                                   {"descriptors", 3, 0.15},
                                                   {"pause", 2, 0.2}}};
constexpr double kWaitMaxS = 0.2;
constexpr std::size_t kProbeEvery = 10, kStopEvery = 12, kTornEvery = 3;  // of kills

double any_share(std::mt19937_64& random) { return static_cast<double>(random() % 1000) / 1000; }

FaultKind draw_kind(std::mt19937_64& random) {
  unsigned sum = 0;
  for (const Kind& kind : kKinds) sum += kind.weight;
  std::size_t kind = 0;
  for (std::uint64_t left = random() % sum; left >= kKinds[kind].weight; ++kind) left -= kKinds[kind].weight;
  return static_cast<FaultKind>(kind);
}

FaultKind kind_of_kill(std::size_t number) {
  if (number % kStopEvery == kStopEvery - 1) return FaultKind::kStop;
  return number % kTornEvery == 1 ? FaultKind::kTorn : FaultKind::kKill;
}

}  // namespace

std::string_view to_string(FaultKind kind) { return kKinds[static_cast<std::size_t>(kind)].name; }

bool is_of_tier(FaultKind kind) {
  constexpr FaultKind kKinds[] = {FaultKind::kError, FaultKind::kDamage, FaultKind::kFull,
                                  FaultKind::kSlow,  FaultKind::kHang,   FaultKind::kGone};
  return std::ranges::find(kKinds, kind) != std::end(kKinds);
}

std::vector<Fault> plan_faults(std::uint64_t seed, std::size_t faults, std::size_t kills,
                               const std::vector<std::string>& shared) {
  std::mt19937_64 random(seed);
  std::vector<Fault> plan(faults);
  std::size_t killed = 0;
  for (std::size_t i = 0; i < faults; ++i) {
    Fault& fault = plan[i];
    const bool kill = killed < (i + 1) * kills / faults;
    fault.kind = kill ? kind_of_kill(killed) : draw_kind(random);
    fault.probe = kill && killed++ % kProbeEvery == 0;
    fault.tier = random() % 2 ? "disk" : "remote";
    fault.wait_s = kWaitMaxS * any_share(random);
    fault.hold_s = kKinds[static_cast<std::size_t>(fault.kind)].hold_s_max * any_share(random);
    fault.draw = random();
    if (!shared.empty() && random() % 3 != 0) fault.tier = shared[random() % shared.size()];
  }
  return plan;
}

}  // namespace shale
