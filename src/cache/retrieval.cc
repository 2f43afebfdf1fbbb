#include "cache/retrieval.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "cache/cache_state.h"

namespace shale {
namespace {

constexpr double kMissingNapS = 5e-5;  // while what is missing is on its way

}  // namespace

std::optional<double> expected_quality(std::span<const SourceUsed> sources) {
  double least = 1;
  for (const SourceUsed& source : sources) {
    if (!source.quality) return std::nullopt;
    least = std::min(least, *source.quality);
  }
  return least;
}

std::vector<SourceUsed> first_of(std::vector<SourceUsed> sources, std::uint32_t tokens) {
  for (SourceUsed& source : sources) {
    source.tokens = std::min(source.tokens, tokens);
    tokens -= source.tokens;
  }
  std::erase_if(sources, [](const SourceUsed& source) { return source.tokens == 0; });
  return sources;
}

Retrieval::Retrieval() = default;
Retrieval::~Retrieval() = default;
Retrieval::Retrieval(Retrieval&&) noexcept = default;
Retrieval& Retrieval::operator=(Retrieval&&) noexcept = default;

std::uint32_t Retrieval::tokens() const { return state_ ? state_->tokens : 0; }
std::uint32_t Retrieval::tokens_loaded() const { return state_ ? state_->tokens_loaded : 0; }
std::string_view Retrieval::salt() const { return state_ ? std::string_view(state_->salt) : std::string_view(); }
bool Retrieval::lossy() const { return state_ && state_->lossy; }

std::uint32_t Retrieval::lossy_from() const {
  return lossy() ? std::min(state_->lossy_from, state_->tokens) : kAllTokens;
}

std::uint32_t Retrieval::reproducible() const {
  const bool all = !state_ || (loaded() && state_->tokens <= state_->reproducible);
  return all ? kAllTokens : state_->reproducible;
}

const std::vector<SourceUsed>& Retrieval::sources() const {
  static const std::vector<SourceUsed> kNone;
  return state_ ? state_->sources : kNone;
}

const std::optional<Retrieval::Failure>& Retrieval::failure() const {
  static const std::optional<Failure> kNone;
  return state_ ? state_->failure : kNone;
}

// Once it is known what each head gets, pages that nothing is written to go back to the pool.
bool Retrieval::State::note_plan() {
  if (planned || !load->planned()) return false;
  planned = true;
  const std::uint32_t block_tokens = sequence.pool().shape().block_size;
  if (tokens > lossy_from) {
    lossy = true;
    sequence.mark_lossy();
  }
  for (const StoreRun& run : load->runs()) {
    if (run.method.is_full()) continue;
    lossy = true;
    sequence.mark_lossy();
    if (run.rows.empty()) continue;
    sequence.keep_rows(first_token + run.first_block * block_tokens, run.blocks * block_tokens, run.rows);
  }
  return true;
}

void Retrieval::State::note_end() {
  const std::vector<StoreFailure>& failures = load->failures();
  const auto first = std::ranges::min_element(failures, {}, &StoreFailure::first_block);
  if (first != failures.end()) {
    const std::uint32_t block_tokens = sequence.pool().shape().block_size;
    failure = Failure{first_token / block_tokens + first->first_block, first->error};
  }
  load.reset();
}

// For those who come after it.
void Retrieval::State::keep_lossy() {
  if (!lossy || !sequence.lossy()) return;
  // Layers with a window have what is seen from the end of all that came, and from no earlier one.
  const std::uint32_t from = cache.windowed() ? tokens_loaded : std::min(lossy_from, tokens_loaded);
  LossyPrefix prefix{.keys = cache.keys_of(chain, salt),
                     .lossy_from = from,
                     .pages = sequence.fork(),
                     .sources = sources,
                     .used_s = cache.clock.now_s()};
  prefix.pages.truncate(tokens_loaded);
  cache.keep_lossy(std::move(prefix), chain, salt, reproducible);
}

// Once the front reaches what came, that becomes the sequence's.
bool Retrieval::State::meet(Executor& executor, double budget_s, double before_s) {
  const std::uint32_t block_tokens = sequence.pool().shape().block_size;
  if (sequence.ragged()) {  // its front dropped tokens, or found single pages alone: blocks cannot join it any more
    meeting.reset();
    return true;
  }
  if (const std::uint32_t overdue = meeting->overdue(); overdue != 0) {
    cache.leave_alone(overdue);
    meeting->give_up();
  }
  const std::uint32_t computed = (sequence.length() + block_tokens - 1) / block_tokens;
  const bool worked = meeting->poll(executor, budget_s, computed, before_s);
  if (sequence.length() < meeting->limit() * block_tokens || !meeting->arrived()) return worked;
  const std::vector<Meeting::Brought> brought = meeting->join(sequence);
  for (std::size_t tier = 0; tier < brought.size(); ++tier) {
    if (brought[tier].tokens == 0) continue;
    SourceUsed& source = sources.emplace_back();
    source.where = cache.tiers[tier]->name();
    source.tokens = brought[tier].tokens;
    source.bytes = brought[tier].bytes;
    cache.stats.cached.add(source.where, source.tokens);
    tokens += source.tokens;
  }
  tokens_loaded = sequence.length();
  meeting.reset();
  return true;
}

Result<bool> Retrieval::poll(Executor& executor, double budget_s, double before_s) {
  if (loaded()) return false;
  State& s = *state_;
  if (s.meeting) return s.meet(executor, budget_s, before_s);
  const std::uint64_t decoded_before = s.load->decoded_bytes();
  const double start_s = s.cache.clock.now_s();
  const bool done = s.load->poll(executor, budget_s);
  const bool worked = s.note_plan();
  const std::uint64_t decoded = s.load->decoded_bytes() - decoded_before;
  if (decoded > 0 && !s.quantizer.empty()) s.cache.costs.decoded(s.quantizer, decoded, s.cache.clock.now_s() - start_s);
  if (!done) return worked || decoded > 0;
  s.note_end();
  if (s.failure) return std::unexpected(s.failure->error);
  s.keep_lossy();
  return true;
}

bool Retrieval::layer_loaded(std::uint32_t layer) const {
  if (loaded()) return true;
  if (state_->meeting) return false;
  // What failed is known at the end: the last layer is not there before.
  const bool last = layer + 1 == state_->sequence.pool().shape().layers;
  return !last && state_->planned && state_->load->layer_ready(layer);
}

bool Retrieval::loaded() const { return !state_ || (!state_->load && !state_->meeting); }

std::uint64_t Retrieval::load_number() const { return loaded() ? 0 : state_->number; }

std::uint32_t Retrieval::compute_until() const {
  return state_ && state_->meeting ? state_->meeting->limit() * state_->sequence.pool().shape().block_size : 0;
}

bool Retrieval::meeting() const { return state_ && state_->meeting && !state_->meeting->arrived(); }

std::uint32_t Retrieval::blocks_held() const { return state_ && state_->meeting ? state_->meeting->blocks_held() : 0; }

bool Retrieval::late() const {
  if (loaded() || state_->meeting) return false;
  const double patience_s = state_->cache.options.load_always ? kPatienceAlwaysS : kPatienceS;
  if (state_->cache.clock.now_s() - state_->begun_s < late_after_s(state_->expected_s, patience_s)) return false;
  return state_->load->owing() != 0;
}

Status Retrieval::ensure_all(Executor& executor) {
  while (!loaded()) {
    SHALE_ASSIGN(const bool worked, poll(executor, std::numeric_limits<double>::infinity()));
    const Clock& clock = state_->cache.clock;
    if (!worked) clock.sleep_until_s(clock.now_s() + kMissingNapS);
  }
  return {};
}

}  // namespace shale
