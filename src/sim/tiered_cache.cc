#include "sim/tiered_cache.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <utility>

#include "placement/placement_state.h"
#include "sim/contexts.h"

namespace shale {
namespace {

constexpr std::uint64_t kRequestsBetweenLooks = 256;
constexpr std::uint64_t kUnlimited = ~std::uint64_t{0};

// A context that is or was stored.
struct Entry {
  std::optional<PlacementSlot> slot;  // while it is stored
  bool has_source = false;            // its uncompressed KV lies somewhere: it can become any configuration
  std::uint32_t stored_children = 0;
};

// Counts the bytes that the moves of its placement would take.
class TieredRun final : public PlacementBackend {
 public:
  TieredRun(const Trace& trace, const TieredOptions& options, std::unique_ptr<Planner> planner,
            std::vector<std::string> methods)
      : trace_(trace),
        options_(options),
        planner_(std::move(planner)),
        methods_(std::move(methods)),
        contexts_(trace),
        entries_(contexts_.all().size()),
        state_(*planner_, {.alpha = options.alpha, .half_life_s = options.half_life_s}, rooms(options.hardware),
               *this) {
    for (std::uint32_t i = 0; i < options_.servers; ++i) free_s_.push(0);
    result_.tokens_loaded.resize(tiers().size());
    result_.bytes_read.resize(tiers().size());
    result_.bytes_written.resize(tiers().size());
  }

  TieredResult run(const KeepGoing& keep_going) {
    for (const TraceRequest& request : trace_.requests) {
      if (keep_going && result_.requests % kRequestsBetweenLooks == 0 && !keep_going(result_.requests)) break;
      serve(request);
    }
    if (result_.requests > 0) {
      result_.quality = quality_ / static_cast<double>(result_.requests);
      for (const double ttft : ttfts_) result_.ttft_mean_s += ttft / static_cast<double>(result_.requests);
    }
    if (done_s_ > 0) result_.busy = busy_s_ / (done_s_ * options_.servers);
    result_.ttft = percentiles_of(std::move(ttfts_));
    return std::move(result_);
  }

 private:
  const std::vector<SimulatedTier>& tiers() const { return options_.hardware.tiers; }
  std::uint32_t lowest() const { return static_cast<std::uint32_t>(tiers().size() - 1); }
  bool keeps_everything() const { return tiers().back().capacity_bytes == kUnlimited; }
  std::uint64_t full_bytes(ContextId id) const {
    return contexts_.all()[id].tokens * options_.hardware.kv_bytes_per_token;
  }
  double recompute_s(ContextId id) const {
    const Context& context = contexts_.all()[id];
    return options_.hardware.prefill_s(context.tokens, context.first_token);
  }
  const PressedForm* form_of(ContextId id, const Candidate& candidate) const;
  double decode_s(ContextId id, const Candidate& candidate) const;
  const ContextProfile& profile_of(ContextId id) const;

  void serve(const TraceRequest& request);
  double load(std::span<const ContextId> path, std::uint64_t prompt_tokens);
  void store(ContextId id);
  void forget(ContextId id);
  PlacedEntry offer(ContextId id) const;
  void catch_up();
  void start_move(PlacementSlot slot, const PlacedEntry& entry, const Candidate& from, const Candidate& to) override;
  void drop_full_copy(PlacementSlot slot, const PlacedEntry& entry) override;

  static std::vector<TierRoom> rooms(const Hardware& hardware) {
    std::vector<TierRoom> rooms;
    for (const SimulatedTier& tier : hardware.tiers) rooms.push_back({tier.capacity_bytes});
    return rooms;
  }
  const Candidate& placed(ContextId id) const { return state_.placed(*entries_[id].slot); }

  const Trace& trace_;
  const TieredOptions& options_;
  std::unique_ptr<Planner> planner_;
  std::vector<std::string> methods_;  // by Candidate::method
  Contexts contexts_;
  std::vector<Entry> entries_;  // by ContextId
  PlacementState state_;
  std::vector<ContextId> changed_;  // whose candidates are others since the state was told
  double now_s_ = 0, quality_ = 0;
  std::priority_queue<double, std::vector<double>, std::greater<>> free_s_;  // when each server is free again
  double busy_s_ = 0, done_s_ = 0;
  std::vector<double> ttfts_;
  TieredResult result_;
};

// Which profile a context takes: spread evenly, the same in every run of a seed.
const ContextProfile& TieredRun::profile_of(ContextId id) const {
  static const ContextProfile kNone;
  if (options_.profiles.empty()) return kNone;
  std::uint64_t mixed = (id + options_.seed + 1) * 0x9e3779b97f4a7c15u;
  mixed = (mixed ^ (mixed >> 31)) * 0xbf58476d1ce4e5b9u;
  return options_.profiles[(mixed >> 32) % options_.profiles.size()];
}

const PressedForm* TieredRun::form_of(ContextId id, const Candidate& candidate) const {
  for (const PressedForm& form : profile_of(id)) {
    if (methods_[candidate.method] == form.method && candidate.keep == form.keep) return &form;
  }
  return nullptr;
}

double TieredRun::decode_s(ContextId id, const Candidate& candidate) const {
  const PressedForm* form = form_of(id, candidate);
  return form ? form->decode_s_per_full_byte * static_cast<double>(full_bytes(id)) : 0;
}

PlacedEntry TieredRun::offer(ContextId id) const {
  const Entry& entry = entries_[id];
  const bool stored = entry.slot.has_value();
  const Candidate current = stored ? placed(id) : Candidate{};
  PlacedEntry placed{.id = id,
                     .last_access_s = now_s_,
                     .candidates = {},
                     .full_copy_bytes = entry.has_source && !keeps_everything() ? full_bytes(id) : 0};
  const double recompute = recompute_s(id);
  const auto add = [&](std::uint32_t method, double keep, double share, double quality, double decode) {
    const bool is_current = stored && current.method == method && current.keep == keep;
    const bool lower_keep = current.method == method && keep < current.keep;
    if (stored && !entry.has_source && !is_current && !lower_keep) return;
    const auto bytes = static_cast<std::uint64_t>(std::llround(share * static_cast<double>(full_bytes(id))));
    for (std::uint32_t tier = 0; tier < tiers().size(); ++tier) {
      const double load =
          tiers()[tier].latency_s + static_cast<double>(bytes) / tiers()[tier].read_bytes_per_s + decode;
      if (is_current && current.tier == tier) placed.current = static_cast<std::uint32_t>(placed.candidates.size());
      placed.candidates.push_back({method, keep, tier, bytes, quality, std::min(load, recompute)});
    }
  };
  add(kFullMethod, 1, 1, 1, 0);
  for (const PressedForm& form : profile_of(id)) {
    const auto method = static_cast<std::uint32_t>(std::ranges::find(methods_, form.method) - methods_.begin());
    add(method, form.keep, form.bytes_share, form.quality,
        form.decode_s_per_full_byte * static_cast<double>(full_bytes(id)));
  }
  if (entry.stored_children == 0) {
    if (!stored) placed.current = static_cast<std::uint32_t>(placed.candidates.size());
    placed.candidates.push_back({kFullMethod, 1, kDropped, 0, 1, recompute});
  }
  return placed;
}

// Its parent may be dropped once nothing that continues it is stored.
void TieredRun::forget(ContextId id) {
  state_.remove(*std::exchange(entries_[id].slot, std::nullopt));
  const ContextId parent = contexts_.all()[id].parent;
  if (parent != kNoContext && --entries_[parent].stored_children == 0) changed_.push_back(parent);
}

// Seconds that loading takes; computes the rest and says so in the result.
double TieredRun::load(std::span<const ContextId> path, std::uint64_t prompt_tokens) {
  std::vector<bool> used(tiers().size());
  double seconds = 0, weighted = 0;
  bool missed = false;
  for (const ContextId id : path) {
    Entry& entry = entries_[id];
    const std::uint64_t tokens = contexts_.all()[id].tokens;
    missed = missed || !entry.slot;
    const double recompute = recompute_s(id);
    double loading = 0;
    if (!missed) {
      const SimulatedTier& tier = tiers()[placed(id).tier];
      loading = (used[placed(id).tier] ? 0 : tier.latency_s) +
                static_cast<double>(placed(id).bytes) / tier.read_bytes_per_s + decode_s(id, placed(id));
    }
    if (missed || recompute <= loading) {
      seconds += recompute;
      weighted += static_cast<double>(tokens);
      result_.tokens_computed += tokens;
      if (!std::exchange(entry.has_source, true) && entry.slot) changed_.push_back(id);
    } else {
      used[placed(id).tier] = true;
      seconds += loading;
      weighted += static_cast<double>(tokens) * placed(id).quality;
      result_.tokens_loaded[placed(id).tier] += tokens;
      result_.bytes_read[placed(id).tier] += placed(id).bytes;
    }
  }
  quality_ += prompt_tokens > 0 ? weighted / static_cast<double>(prompt_tokens) : 1;
  return seconds;
}

void TieredRun::serve(const TraceRequest& request) {
  now_s_ = free_s_.empty() ? request.arrival_s : std::max(request.arrival_s, free_s_.top());
  const std::vector<ContextId> path = contexts_.path(trace_, request);
  std::uint64_t tokens = 0;
  for (const ContextId id : path) tokens += contexts_.all()[id].tokens;
  const double service_s = load(path, tokens);
  ttfts_.push_back(now_s_ - request.arrival_s + service_s);
  if (!free_s_.empty()) {
    free_s_.pop();
    free_s_.push(now_s_ + service_s);
    busy_s_ += service_s;
    done_s_ = std::max(done_s_, now_s_ + service_s);
  }
  result_.tokens += tokens;
  ++result_.requests;
  for (const ContextId id : path) {
    if (entries_[id].slot) state_.access(*entries_[id].slot, now_s_);
  }
  for (const ContextId id : path) {
    if (!entries_[id].slot) store(id);
    if (!entries_[id].slot) break;  // what follows could not be found again
  }
  catch_up();
  state_.settle();
  catch_up();
}

void TieredRun::store(ContextId id) {
  const PlacementSlot slot = state_.add(offer(id), now_s_);
  entries_[id].slot = slot;
  if (const ContextId parent = contexts_.all()[id].parent; parent != kNoContext) {
    if (entries_[parent].stored_children++ == 0) changed_.push_back(parent);
  }
  catch_up();
  state_.place(slot);
  const Candidate chosen = placed(id);
  if (chosen.tier == kDropped) {
    forget(id);
  } else {
    result_.bytes_written[chosen.tier] += chosen.bytes;
    if (keeps_everything() && chosen.tier != lowest()) result_.bytes_written[lowest()] += full_bytes(id);
  }
  catch_up();
}

void TieredRun::start_move(PlacementSlot, const PlacedEntry& entry, const Candidate& from, const Candidate& to) {
  const auto id = static_cast<ContextId>(entry.id);
  if (to.tier == kDropped || !entries_[id].has_source) changed_.push_back(id);
  if (to.tier == kDropped || (to.tier == from.tier && to.bytes <= from.bytes)) return;
  const bool from_source = to.bytes > from.bytes || to.method != from.method;
  const std::uint32_t origin = from_source && from.method != kFullMethod ? lowest() : from.tier;
  result_.bytes_read[origin] += origin == from.tier ? from.bytes : full_bytes(id);
  result_.bytes_written[to.tier] += to.bytes;
}

void TieredRun::drop_full_copy(PlacementSlot, const PlacedEntry& entry) {
  changed_.push_back(static_cast<ContextId>(entry.id));
}

// Tells the state what each changed context can become now; what it dropped is forgotten.
void TieredRun::catch_up() {
  while (!changed_.empty()) {
    const ContextId id = changed_.back();
    changed_.pop_back();
    Entry& entry = entries_[id];
    if (!entry.slot) continue;
    if (placed(id).tier == kDropped) {
      forget(id);
      continue;
    }
    const bool whole = placed(id).method == kFullMethod;
    if (!keeps_everything() && !whole && state_.entry(*entry.slot).full_copy_bytes == 0) entry.has_source = false;
    state_.update(*entry.slot, offer(id));
  }
}

Status check(const TieredOptions& options) {
  const auto wrong = [](std::string_view what) { return fail(ErrorCode::kInvalidArgument, "{}", what); };
  const Hardware& hardware = options.hardware;
  if (hardware.tiers.empty()) return wrong("no tier to simulate: give at least one");
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
    for (const PressedForm& form : profile) {
      if (!(form.keep > 0 && form.keep <= 1) || !(form.quality >= 0 && form.quality <= 1) ||
          !(form.bytes_share > 0 && form.bytes_share <= 2) || !(form.decode_s_per_full_byte >= 0)) {
        return fail(ErrorCode::kInvalidArgument, "method {} at keep {}: keep, quality or size is out of range",
                    form.method, form.keep);
      }
    }
  }
  if (options.servers > kServersMax)
    return wrong(fmt::format("more servers than can be simulated: at most {}", kServersMax));
  if (!(options.alpha >= 0) || !(options.half_life_s > 0))
    return wrong("α must not be negative, the half-life above 0");
  return {};
}

}  // namespace

Result<TieredResult> simulate_tiers(const Trace& trace, const TieredOptions& options, const KeepGoing& keep_going) {
  SHALE_TRY(check(options));
  std::vector<std::string> methods = {"full"};
  for (const ContextProfile& profile : options.profiles) {
    for (const PressedForm& form : profile) {
      if (std::ranges::find(methods, form.method) == methods.end()) methods.push_back(form.method);
    }
  }
  PlannerOptions planner_options{.divide_by_bytes = options.divide_by_bytes, .fixed_keep = options.fixed_keep};
  if (options.planner == "fixed" || options.planner == "impress") {
    const auto found = std::ranges::find(methods, options.fixed_method);
    if (found == methods.end()) {
      return fail(ErrorCode::kInvalidArgument, "planner {}: no profile has method '{}'", options.planner,
                  options.fixed_method);
    }
    planner_options.fixed_method_index = static_cast<std::uint32_t>(found - methods.begin());
  }
  SHALE_ASSIGN(auto planner, make_planner(options.planner, planner_options));
  const auto start = std::chrono::steady_clock::now();
  TieredResult result = TieredRun(trace, options, std::move(planner), std::move(methods)).run(keep_going);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace shale
