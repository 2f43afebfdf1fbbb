#include "sim/tiered_setup.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace shale {
namespace {

Status check(const TieredOptions& options) {
  const auto wrong = [](std::string_view what) { return fail(ErrorCode::kInvalidArgument, "{}", what); };
  const Hardware& hardware = options.hardware;
  if (hardware.tiers.empty()) return wrong("no tier to simulate: give at least one");
  if (hardware.tiers.size() > 64) return wrong("more tiers than can be simulated: at most 64");
  if (hardware.kv_bytes_per_token == 0) return wrong("KV of 0 bytes a token");
  if (!(hardware.prefill_s_per_token > 0) || !(hardware.prefill_s_per_pair >= 0)) {
    return wrong("the rate of prefill must be above 0");
  }
  for (const SimulatedTier& tier : hardware.tiers) {
    if (!(tier.read_bytes_per_s > 0) || !(tier.latency_s >= 0)) {
      return fail(ErrorCode::kInvalidArgument, "tier {}: its bandwidth must be above 0 and its latency not below",
                  tier.name);
    }
  }
  for (const ContextProfile& profile : options.profiles) {
    for (const CompressedForm& form : profile) {
      if (!(form.keep > 0 && form.keep <= 1) || !(form.quality >= 0 && form.quality <= 1) ||
          !(form.expected.value_or(1) >= 0 && form.expected.value_or(1) <= 1) ||
          !(form.bytes_share > 0 && form.bytes_share <= 2) || !(form.decode_s_per_full_byte >= 0)) {
        return fail(ErrorCode::kInvalidArgument, "method {} at keep {}: keep, quality or size is out of range",
                    form.method, form.keep);
      }
    }
  }
  if (!(hardware.step_s >= 0) || !(hardware.decode_s_per_sequence >= 0)) return wrong("a step of negative time");
  if (options.batching && (!(options.batching->chunk_slowdown >= 0) || !(options.batching->chunk_step_s >= 0))) {
    return wrong("chunks of negative time");
  }
  if (options.batching && options.servers > 0) return wrong("servers that serve one request each do not batch");
  if (options.batching && (options.batching->sequences_max == 0 || options.batching->chunk_tokens == 0)) {
    return wrong("batches of nothing");
  }
  if (options.servers > kServersMax)
    return wrong(fmt::format("more servers than can be simulated: at most {}", kServersMax));
  if (!(options.alpha >= 0) || !(options.half_life_s > 0))
    return wrong("α must not be negative, the half-life above 0");
  if (!(options.move_s_per_byte >= 0)) return wrong("the cost of a move must not be negative");
  return {};
}

// Contexts without a row of what the planner stores would be dropped, as if there were no room.
Status check_fixed(const TieredOptions& options) {
  if (options.fixed_method == "full" && options.fixed_keep == 1) return {};
  if (options.profiles.empty()) {
    return fail(ErrorCode::kInvalidArgument, "planner {}: no profile has method '{}'", options.planner,
                options.fixed_method);
  }
  for (std::size_t i = 0; i < options.profiles.size(); ++i) {
    std::vector<double> keeps;
    for (const CompressedForm& form : options.profiles[i]) {
      if (form.method == options.fixed_method) keeps.push_back(form.keep);
    }
    if (std::ranges::find(keeps, options.fixed_keep) != keeps.end()) continue;
    return fail(ErrorCode::kInvalidArgument, "planner {}: profile {} has no row of method '{}' at keep {}{}",
                options.planner, i + 1, options.fixed_method, options.fixed_keep,
                keeps.empty() ? "" : fmt::format("; it has {}", fmt::join(keeps, ", ")));
  }
  return {};
}

}  // namespace

Result<TieredSetup> TieredSetup::make(const TieredOptions& options) {
  SHALE_TRY(check(options));
  TieredSetup setup;
  for (const ContextProfile& profile : options.profiles) {
    for (const CompressedForm& form : profile) {
      if (std::ranges::find(setup.methods, form.method) == setup.methods.end()) setup.methods.push_back(form.method);
    }
  }
  PlannerOptions planner_options{.divide_by_bytes = options.divide_by_bytes, .fixed_keep = options.fixed_keep};
  if (options.planner == "fixed" || options.planner == "impress") {
    SHALE_TRY(check_fixed(options));
    const auto found = std::ranges::find(setup.methods, options.fixed_method);
    planner_options.fixed_method_index = static_cast<std::uint32_t>(found - setup.methods.begin());
  }
  SHALE_ASSIGN(setup.planner, make_planner(options.planner, planner_options));
  return setup;
}

}  // namespace shale
