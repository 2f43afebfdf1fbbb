#include "sim/tiered_engine.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

namespace shale {
namespace {

constexpr std::uint64_t kUnlimited = ~std::uint64_t{0};

std::vector<TierRoom> rooms(const Hardware& hardware) {
  std::vector<TierRoom> rooms;
  for (const SimulatedTier& tier : hardware.tiers) rooms.push_back({tier.capacity_bytes});
  return rooms;
}

}  // namespace

TieredEngine::TieredEngine(const Contexts& contexts, const TieredOptions& options, const TieredSetup& setup,
                           SharedStore* shared)
    : contexts_(contexts),
      options_(options),
      methods_(setup.methods),
      weighs_quality_(setup.planner->weighs_quality()),
      shared_(shared),
      prefixes_(contexts_.all().size()),
      state_(*setup.planner,
             {.alpha = options.alpha, .half_life_s = options.half_life_s, .move_s_per_byte = options.move_s_per_byte},
             rooms(options.hardware), *this),
      given_up_(options.half_life_s) {
  result_.tokens_loaded.resize(tiers().size());
  result_.bytes_read.resize(tiers().size());
  result_.bytes_written.resize(tiers().size());
}

bool TieredEngine::keeps_everything() const { return tiers().back().capacity_bytes == kUnlimited; }

// Which profile a context takes: spread evenly, the same in every run of a seed, or one after another.
const ContextProfile& TieredEngine::profile_of(ContextId id) const {
  static const ContextProfile kNone;
  if (options_.profiles.empty()) return kNone;
  if (!options_.spread_profiles) return options_.profiles[id % options_.profiles.size()];
  std::uint64_t mixed = (id + options_.seed + 1) * 0x9e3779b97f4a7c15u;
  mixed = (mixed ^ (mixed >> 31)) * 0xbf58476d1ce4e5b9u;
  return options_.profiles[(mixed >> 32) % options_.profiles.size()];
}

const CompressedForm* TieredEngine::form_of(ContextId id, const Candidate& candidate) const {
  for (const CompressedForm& form : profile_of(id)) {
    if (methods_[candidate.method] == form.method && candidate.keep == form.keep) return &form;
  }
  return nullptr;
}

double TieredEngine::decode_s(ContextId id, const Candidate& candidate) const {
  const CompressedForm* form = form_of(id, candidate);
  return form ? form->decode_s_per_full_byte * static_cast<double>(full_bytes(id)) : 0;
}

// As `current`, or stored nowhere yet.
PlacedPrefix TieredEngine::offer(ContextId id, const std::optional<Candidate>& current) const {
  const Stored& prefix = prefixes_[id];
  PlacedPrefix placed{.id = id,
                      .last_access_s = now_s_,
                      .candidates = {},
                      .full_copy_bytes = prefix.has_copy && !keeps_everything() ? full_bytes(id) : 0};
  const double recompute = recompute_s(id);
  // As ExtentPlacer::offer: what is exact the lowest tier keeps as it is where it is not bounded. `fixed` and `impress`
  // store nothing exact.
  const bool compress_lowest = !weighs_quality_ || !keeps_everything();
  const auto add = [&](std::uint32_t method, double keep, double share, double quality, double decode) {
    const bool is_current = current && current->method == method && current->keep == keep;
    const bool lower_keep = current && current->method == method && keep < current->keep;
    if (current && !has_source(id, *current) && !is_current && !lower_keep) return;
    const auto bytes = static_cast<std::uint64_t>(std::llround(share * static_cast<double>(full_bytes(id))));
    for (std::uint32_t tier = 0; tier < tiers().size(); ++tier) {
      if (tier == lowest() && method != kFullMethod && !compress_lowest) continue;
      const double load =
          tiers()[tier].latency_s + static_cast<double>(bytes) / tiers()[tier].read_bytes_per_s + decode;
      if (is_current && current->tier == tier) placed.current = static_cast<std::uint32_t>(placed.candidates.size());
      placed.candidates.push_back({method, keep, tier, bytes, quality, std::min(load, recompute)});
    }
  };
  add(kFullMethod, 1, 1, 1, 0);
  for (const CompressedForm& form : profile_of(id)) {
    const auto method = static_cast<std::uint32_t>(std::ranges::find(methods_, form.method) - methods_.begin());
    add(method, form.keep, form.bytes_share, form.expected.value_or(form.quality),
        form.decode_s_per_full_byte * static_cast<double>(full_bytes(id)));
  }
  if (prefix.stored_children == 0) {
    if (!current) placed.current = static_cast<std::uint32_t>(placed.candidates.size());
    placed.candidates.push_back({kFullMethod, 1, kDropped, 0, 1, recompute});
  }
  return placed;
}

// Its parent may be dropped once nothing that continues it is stored.
void TieredEngine::forget(ContextId id) {
  prefixes_[id].has_copy = prefixes_[id].missed = prefixes_[id].behind_lossy = false;
  prefixes_[id].inherited = 1;
  given_up_.note(id, state_.frequency(*prefixes_[id].slot, now_s_), now_s_);
  state_.remove(*std::exchange(prefixes_[id].slot, std::nullopt));
  const ContextId parent = contexts_.all()[id].parent;
  if (parent != kNoContext && --prefixes_[parent].stored_children == 0) changed_.push_back(parent);
}

Candidate TieredEngine::full_at_lowest(ContextId id) const {
  return {.method = kFullMethod, .keep = 1, .tier = lowest(), .bytes = full_bytes(id), .quality = 1};
}

// Cached prefixes for what others left in the shared store, where this engine knows everything before it, and none for
// what vanished from there.
void TieredEngine::discover(std::span<const ContextId> path) {
  if (!shared_) return;
  for (const ContextId id : path) {
    if (prefixes_[id].slot && vanished(id)) forget(id);
  }
  catch_up();
  for (const ContextId id : path) {
    if (prefixes_[id].slot) continue;
    if (!shared_->has(id)) return;
    add(id, full_at_lowest(id));
  }
}

// Of computing what is in no block, behind all contexts.
double TieredEngine::unnamed_s(const Prompt& prompt) const {
  const std::uint32_t named = prompt.path.empty() ? 0 : contexts_.all()[prompt.path.back()].end();
  return options_.hardware.prefill_s(prompt.unnamed_tokens, named);
}

double TieredEngine::estimate_s(const Prompt& prompt, double now_s) const {
  const std::vector<Read> reads = reads_that_pay(prompt.path, now_s, {}).reads;
  double seconds = unnamed_s(prompt);
  for (const Read& read : reads) seconds += read.seconds;
  for (const ContextId id : std::span(prompt.path).subspan(reads.size())) seconds += recompute_s(id);
  return seconds;
}

std::uint64_t TieredEngine::private_tokens(std::span<const ContextId> path) const {
  std::uint64_t tokens = 0;
  for (const ContextId id : path) {
    if (!prefixes_[id].slot || is_shared(placed(id).tier)) break;
    tokens += contexts_.all()[id].tokens;
  }
  return tokens;
}

Served TieredEngine::look_up(const Prompt& prompt, double now_s, std::span<const Served::Part> pooled,
                             const Waits& waits) {
  now_s_ = now_s;
  discover(prompt.path);
  Served served{.parts = {pooled.begin(), pooled.end()},
                .pooled = pooled.size(),
                .unnamed_tokens = prompt.unnamed_tokens,
                .transfer_s = std::vector<double>(tiers().size()),
                .computed_tokens = prompt.unnamed_tokens};
  const auto rest = std::span(prompt.path).subspan(pooled.size());
  const Reads found = reads_that_pay(rest, now_s_, waits);
  const std::span<const Read> reads = std::span(found.reads).first(found.meet ? 0 : found.reads.size());
  for (const Read& read : found.reads) {
    if (found.meet) served.meets.push_back(read.from.tier);
  }
  for (std::size_t i = 0; i < reads.size(); ++i) {
    const Read& read = reads[i];
    const Candidate& from = read.from;
    if (is_shared(from.tier)) {
      shared_->use(rest[i]);
      shared_->transfer(from.bytes, now_s_ + served.seconds);
    }
    const CompressedForm* form = form_of(rest[i], from);
    const Stored& stored = prefixes_[rest[i]];
    served.parts.push_back({.tier = from.tier,
                            .bytes = from.bytes,
                            .quality = form ? form->quality : 1,
                            .expected = std::min(from.quality, stored.inherited),
                            .exact = from.method == kFullMethod && !stored.behind_lossy,
                            .method = from.method,
                            .keep = from.keep});
    served.transfer_s[from.tier] += read.seconds - read.decode_s;
    served.decode_s += read.decode_s;
    served.seconds += read.seconds;
  }
  for (const ContextId id : rest.subspan(reads.size())) {
    served.parts.push_back({});
    served.computed_tokens += contexts_.all()[id].tokens;
    served.seconds += recompute_s(id);
  }
  served.seconds += unnamed_s(prompt);
  return served;
}

void TieredEngine::count(std::span<const ContextId> path, const Served& served) {
  std::uint64_t prompt_tokens = served.unnamed_tokens;
  double weighted = static_cast<double>(prompt_tokens);
  for (std::size_t i = 0; i < path.size(); ++i) {
    const Served::Part& part = served.parts[i];
    const std::uint64_t tokens = contexts_.all()[path[i]].tokens;
    prompt_tokens += tokens;
    if (part.method != kFullMethod) lossy_[{part.method, part.keep}] += tokens;
    weighted += static_cast<double>(tokens) * part.quality;
    if (part.tier) {
      result_.tokens_loaded[*part.tier] += tokens;
      result_.bytes_read[*part.tier] += part.bytes;
    } else if (i < served.pooled) {
      result_.tokens_pooled += tokens;
    }
  }
  for (std::size_t tier = 0; tier < served.met_tokens.size(); ++tier) {
    result_.tokens_loaded[tier] += served.met_tokens[tier];
    result_.bytes_read[tier] += served.met_tokens[tier] * options_.hardware.kv_bytes_per_token;
  }
  quality_ += prompt_tokens > 0 ? weighted / static_cast<double>(prompt_tokens) : 1;
  result_.tokens += prompt_tokens;
  result_.tokens_computed += served.computed_tokens;
  ++result_.requests;
}

std::vector<std::uint64_t> TieredEngine::finish(std::span<const ContextId> path, const Served& served, double now_s,
                                                bool counted, std::span<const Served::Part> pooled) {
  now_s_ = now_s;
  if (counted) count(path, served);
  const TieredResult before = result_;
  keep(path, served, pooled);
  return read_since(before, counted);
}

std::vector<std::uint64_t> TieredEngine::answered(const Prompt& prompt, const Served& served, double now_s,
                                                  bool counted, bool pooled) {
  now_s_ = now_s;
  if (prompt.answer.empty()) return std::vector<std::uint64_t>(tiers().size());
  const TieredResult before = result_;
  for (const ContextId id : prompt.answer) {
    const ContextId parent = contexts_.all()[id].parent;
    if (parent != kNoContext && !prefixes_[parent].slot) break;  // it could not be found again
    if (!prefixes_[id].slot) {
      store(id, pooled, served);
    } else if (pooled) {
      state_.in_pool(*prefixes_[id].slot, 1, now_s_);
    }
  }
  settle();
  return read_since(before, counted);
}

// What is not counted leaves the counts as they were.
std::vector<std::uint64_t> TieredEngine::read_since(const TieredResult& before, bool counted) {
  std::vector<std::uint64_t> bytes = result_.bytes_read;
  std::ranges::transform(bytes, before.bytes_read, bytes.begin(), std::minus<>());
  if (!counted) result_ = before;
  return bytes;
}

void TieredEngine::evicted(ContextId id, double now_s) {
  if (prefixes_[id].slot) state_.in_pool(*prefixes_[id].slot, 0, now_s);
}

// What was computed is stored, as in Cache::store. Behind what is lossy it is no uncompressed copy of what is there.
void TieredEngine::keep(std::span<const ContextId> path, const Served& served, std::span<const Served::Part> pooled) {
  for (std::size_t i = 0; i < path.size(); ++i) {
    const auto& slot = prefixes_[path[i]].slot;
    if (slot) state_.access(*slot, now_s_);
    if (slot && i < pooled.size()) state_.in_pool(*slot, 1, now_s_, false, !pooled[i].exact);
  }
  const bool exact = served.exact();
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (prefixes_[path[i]].slot) {
      const bool computed = i >= served.pooled && !served.parts[i].tier;
      if (computed && exact && !keeps_everything()) {
        copy(path[i]);
        catch_up();  // the next one finds its room taken
      }
      continue;
    }
    if (!exact && i < served.pooled) break;  // what the pool has lossily is no source
    store(path[i], i < pooled.size(), served);
    if (!prefixes_[path[i]].slot) break;  // what follows could not be found again
  }
  settle();
}

// Whether there is more to do.
bool TieredEngine::settle() {
  catch_up();
  const bool more = (!shared_ || !shared_->behind(now_s_)) && state_.settle();
  catch_up();
  return more;
}

std::optional<std::vector<std::uint64_t>> TieredEngine::settle(double now_s, bool counted) {
  now_s_ = now_s;
  const TieredResult before = result_;
  if (!settle()) return std::nullopt;
  return read_since(before, counted);
}

void TieredEngine::add(ContextId id, const std::optional<Candidate>& current) {
  PlacedPrefix prefix = offer(id, current);
  prefix.frequency += given_up_.frequency(id, now_s_);
  prefixes_[id].slot = state_.add(std::move(prefix), now_s_);
  if (const ContextId parent = contexts_.all()[id].parent; parent != kNoContext) {
    if (prefixes_[parent].stored_children++ == 0) changed_.push_back(parent);
  }
  catch_up();
}

// It is placed before the placement hears that the pool holds it, as a server's is.
void TieredEngine::store(ContextId id, bool pooled, const Served& behind) {
  prefixes_[id].behind_lossy = !behind.exact();
  prefixes_[id].inherited = behind.expected();
  add(id, std::nullopt);
  state_.place(*prefixes_[id].slot);
  const Candidate chosen = placed(id);
  const bool left_out = shared_ && shared_->behind(now_s_);  // of the shared store
  if (chosen.tier == kDropped || (left_out && chosen.tier == lowest())) {
    forget(id);
  } else {
    const bool there = left_out || (shared_ && !shared_->put(id, full_bytes(id)));
    if (chosen.tier != lowest() || !there) write(chosen.tier, chosen.bytes);
    if (chosen.tier == lowest()) {
      set_copy(id, chosen.method == kFullMethod);
    } else if (!there) {
      copy(id);
    }
    if (pooled) state_.in_pool(*prefixes_[id].slot, 1, now_s_);
  }
  catch_up();
}

// Exact KV of what lies on a faster tier is at hand: a copy goes to the lowest tier while that has room, as in
// SaveJob::begin_replica. Where the lowest tier is bounded, what `fixed` and `impress` encode has none.
void TieredEngine::copy(ContextId id) {
  const Candidate& at = placed(id);
  const bool wanted = keeps_everything() || weighs_quality_ || at.method == kFullMethod;
  if (prefixes_[id].has_copy || at.tier >= lowest() || !wanted) return;
  if (state_.full_copy_bytes() + full_bytes(id) > state_.free_bytes(lowest())) return;
  write(lowest(), full_bytes(id));
  set_copy(id, true);
}

void TieredEngine::set_copy(ContextId id, bool has_copy) {
  if (std::exchange(prefixes_[id].has_copy, has_copy) != has_copy && !keeps_everything()) changed_.push_back(id);
}

void TieredEngine::read(std::uint32_t tier, std::uint64_t bytes, double at_s) {
  result_.bytes_read[tier] += bytes;
  if (is_shared(tier)) shared_->transfer(bytes, at_s);
}

void TieredEngine::write(std::uint32_t tier, std::uint64_t bytes) {
  result_.bytes_written[tier] += bytes;
  if (is_shared(tier)) shared_->transfer(bytes, now_s_);
}

void TieredEngine::start_move(PlacementSlot, const PlacedPrefix& prefix, const Candidate& from, const Candidate& to) {
  const auto id = static_cast<ContextId>(prefix.id);
  if (to.tier == kDropped || !has_source(id, to)) changed_.push_back(id);
  const bool cut_in_place = to.tier == from.tier && to.method == from.method && to.bytes <= from.bytes;
  if (to.tier == kDropped || cut_in_place) return;
  if (is_shared(from.tier) && !shared_->has(id)) {
    prefixes_[id].missed = true;
    changed_.push_back(id);
    return;
  }
  if (to.tier == lowest() && to.method == kFullMethod) {
    const bool lies_there = shared_ ? !shared_->put(id, full_bytes(id)) : prefixes_[id].has_copy;
    set_copy(id, true);
    if (lies_there) return;
  }
  const bool from_source = to.bytes > from.bytes || to.method != from.method;
  const std::uint32_t origin = from_source && from.method != kFullMethod ? lowest() : from.tier;
  read(origin, origin == from.tier ? from.bytes : full_bytes(id), now_s_);
  write(to.tier, to.bytes);
}

void TieredEngine::drop_full_copy(PlacementSlot, const PlacedPrefix& prefix) {
  set_copy(static_cast<ContextId>(prefix.id), false);
}

// Tells the state what each changed context can become now; what it dropped is forgotten.
void TieredEngine::catch_up() {
  while (!changed_.empty()) {
    const ContextId id = changed_.back();
    changed_.pop_back();
    Stored& prefix = prefixes_[id];
    if (!prefix.slot) continue;
    if (placed(id).tier == kDropped || prefix.missed) {
      forget(id);
      continue;
    }
    state_.update(*prefix.slot, offer(id, placed(id)));
  }
}

}  // namespace shale
