// One engine over tiers, simulated: what it finds, loads, computes and stores, and what that takes. Contexts that were
// computed become cached prefixes, placed by the PlacementState that the cache itself has, with one round of it after
// each prompt and one after each answer that is stored. Private to the room.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "placement/given_up.h"
#include "placement/load_or_compute.h"
#include "placement/placement_state.h"
#include "sim/contexts.h"
#include "sim/shared_store.h"
#include "sim/tiered_cache.h"
#include "sim/tiered_setup.h"

namespace shale {

// Where a request has its contexts from, and what that takes.
struct Served {
  struct Part {
    std::optional<std::uint32_t> tier = {};  // nothing: it is computed, or lies in the pool
    std::uint64_t bytes = 0;                 // read
    double quality = 1, expected = 1;        // CompressedForm's
    bool exact = true;                       // what is lossy may be worth as much
    std::uint32_t method = kFullMethod;      // of the setup's
    double keep = 1;                         // of its tokens
  };
  std::vector<Part> parts;  // of its contexts
  std::size_t pooled = 0;   // of them, from the front, lie in the engine's own pool
  std::uint64_t unnamed_tokens = 0;
  std::vector<double> transfer_s;  // by tier
  double decode_s = 0;
  std::uint64_t computed_tokens = 0;
  // Tiers of its first contexts behind those of the pool, which count as computed, where they are loaded from the back
  // meanwhile; and tokens that were, by tier.
  std::vector<std::uint32_t> meets = {};
  std::vector<std::uint64_t> met_tokens = {};
  double seconds = 0;  // one after another: transfers, decoding, computing

  bool exact() const { return std::ranges::all_of(parts, &Part::exact); }
  double expected() const { return parts.empty() ? 1 : std::ranges::min(parts, {}, &Part::expected).expected; }
};

// As the engine's batch builder has it: only prompts that came within 1 / kSimulatedWaitWorth of a prompt's own
// computing time after it may overtake it. The one with the least of this is first.
inline constexpr double kSimulatedWaitWorth = 0.25;
inline double simulated_turn(double left_s, double arrival_s) { return left_s + kSimulatedWaitWorth * arrival_s; }

// What a request finds before it when it begins.
struct Waits {
  std::vector<double> tiers_s;  // of reads, by tier, which read beside one another; none: one after another, at once
  ComputeBacklog engine;
  bool meet = false;  // it can be computed while the rest is loaded
};

class TieredEngine final : public PlacementBackend {
 public:
  // All outlive it. `shared`: others put into the lowest tier as well, and what lies there may vanish; it is unlimited
  // for the engine. Null: it is this engine's.
  TieredEngine(const Contexts& contexts, const TieredOptions& options, const TieredSetup& setup,
               SharedStore* shared = nullptr);

  // How many of these contexts, which lie in the engine's own pool as the parts say, a request takes from there: none
  // from the first lossy one on where loading or computing them anew takes less than they lose.
  std::size_t pooled_that_pay(std::span<const ContextId> path, std::span<const Served::Part> pooled, double now_s,
                              const Waits& waits) const;
  // A request begins, at a time that never goes back: what it is served from. The first of its contexts lie in the
  // engine's own pool, as these say.
  Served look_up(const Prompt& prompt, double now_s, std::span<const Served::Part> pooled = {},
                 const Waits& waits = {});
  // It was served so, and has its first token: what was computed is stored, and found from now on. Bytes by tier that
  // moves read for that. The first of its contexts lie in the engine's own pool from now on, as these say.
  std::vector<std::uint64_t> finish(std::span<const ContextId> path, const Served& served, double now_s, bool counted,
                                    std::span<const Served::Part> pooled = {});
  // Its answer is complete: what was said is stored behind the prompt, as in Storing::answer_done. `pooled`: the
  // engine's own pool holds all of it.
  std::vector<std::uint64_t> answered(const Prompt& prompt, const Served& served, double now_s, bool counted,
                                      bool pooled = false);
  // A round of moves by itself. Bytes by tier that they read; nothing once placement is at rest.
  std::optional<std::vector<std::uint64_t>> settle(double now_s, bool counted);
  // The engine's own pool holds a context no more.
  void evicted(ContextId id, double now_s);
  // Seconds that a request would take that begins now.
  double estimate_s(const Prompt& prompt, double now_s) const;
  // Tokens at the beginning that lie in tiers of its own.
  std::uint64_t private_tokens(std::span<const ContextId> path) const;

  // So far: all but times, which are the caller's.
  const TieredResult& counts() const { return result_; }
  double quality_sum() const { return quality_; }
  TokensByForm tokens_lossy() const;

 private:
  // A context that is or was stored.
  struct Stored {
    std::optional<PlacementSlot> slot = {};  // while it is stored
    bool has_copy = false;                   // its uncompressed KV lies on the lowest tier
    bool missed = false;                     // a move did not find it where it was placed
    bool behind_lossy = false;               // it was computed behind lossy contexts,
    double inherited = 1;                    // of which so much was expected
    std::uint32_t stored_children = 0;
  };
  // A context that could be loaded.
  struct Read {
    Candidate from;
    double seconds = 0, decode_s = 0;  // in all, and of that
  };
  struct Reads {
    std::vector<Read> reads;
    std::vector<LoadedUpTo> loads;  // by these
    bool meet = false;              // they are computed while they are loaded
  };

  const std::vector<SimulatedTier>& tiers() const { return options_.hardware.tiers; }
  std::uint32_t lowest() const { return static_cast<std::uint32_t>(tiers().size() - 1); }
  bool keeps_everything() const;
  bool is_shared(std::uint32_t tier) const { return shared_ && tier == lowest(); }
  // The shared store evicted it, though it is placed there.
  bool vanished(ContextId id) const { return is_shared(placed(id).tier) && !shared_->has(id); }
  std::uint64_t full_bytes(ContextId id) const {
    return contexts_.all()[id].tokens * options_.hardware.kv_bytes_per_token;
  }
  double recompute_s(ContextId id) const {
    const Context& context = contexts_.all()[id];
    return options_.hardware.prefill_s(context.tokens, context.first_token);
  }
  double unnamed_s(const Prompt& prompt) const;
  const Candidate& placed(ContextId id) const { return state_.placed(*prefixes_[id].slot); }
  // Its uncompressed KV lies somewhere, where it is placed so: it can become any configuration.
  bool has_source(ContextId id, const Candidate& at) const {
    return at.method == kFullMethod || prefixes_[id].has_copy || keeps_everything();
  }
  const CompressedForm* form_of(ContextId id, const Candidate& candidate) const;
  double decode_s(ContextId id, const Candidate& candidate) const;
  const ContextProfile& profile_of(ContextId id) const;
  Candidate full_at_lowest(ContextId id) const;

  void discover(std::span<const ContextId> path);
  void count(std::span<const ContextId> path, const Served& served);
  void keep(std::span<const ContextId> path, const Served& served, std::span<const Served::Part> pooled);
  // Those from the first that are loaded rather than computed, one after another.
  Reads reads_of(std::span<const ContextId> path, double at_s, const Waits& waits) const;
  Reads reads_that_pay(std::span<const ContextId> path, double at_s, const Waits& waits) const;
  std::size_t exact_to_meet(std::span<const ContextId> path, const Reads& found, std::size_t loaded,
                            const Waits& waits) const;
  void store(ContextId id, bool pooled, const Served& behind);
  bool settle();
  std::vector<std::uint64_t> read_since(const TieredResult& before, bool counted);
  void copy(ContextId id);
  void set_copy(ContextId id, bool has_copy);
  void add(ContextId id, const std::optional<Candidate>& current);
  void forget(ContextId id);
  PlacedPrefix offer(ContextId id, const std::optional<Candidate>& current) const;
  void catch_up();
  void read(std::uint32_t tier, std::uint64_t bytes, double at_s);
  void write(std::uint32_t tier, std::uint64_t bytes);
  void start_move(PlacementSlot slot, const PlacedPrefix& prefix, const Candidate& from, const Candidate& to) override;
  void drop_full_copy(PlacementSlot slot, const PlacedPrefix& prefix) override;

  const Contexts& contexts_;
  const TieredOptions& options_;
  const std::vector<std::string>& methods_;
  const bool weighs_quality_;
  SharedStore* const shared_;
  std::vector<Stored> prefixes_;  // by ContextId
  PlacementState state_;
  GivenUp given_up_;
  std::vector<ContextId> changed_;  // whose candidates are others since the state was told
  double now_s_ = 0, quality_ = 0;
  TieredResult result_;                                              // without tokens_lossy
  std::map<std::pair<std::uint32_t, double>, std::uint64_t> lossy_;  // tokens by method and keep
};

}  // namespace shale
