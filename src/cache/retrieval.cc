#include "cache/retrieval.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>
#include <utility>

#include "cache/cache_state.h"

namespace shale {

Retrieval::Retrieval() = default;
Retrieval::~Retrieval() = default;
Retrieval::Retrieval(Retrieval&&) noexcept = default;
Retrieval& Retrieval::operator=(Retrieval&&) noexcept = default;

std::uint32_t Retrieval::tokens() const { return state_ ? state_->tokens : 0; }
std::uint32_t Retrieval::tokens_loaded() const { return state_ ? state_->tokens_loaded : 0; }
bool Retrieval::lossy() const { return state_ && state_->lossy; }

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
  const std::uint32_t block_tokens = sequence.pool().shape().page_tokens;
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
    const std::uint32_t block_tokens = sequence.pool().shape().page_tokens;
    failure = Failure{first_token / block_tokens + first->first_block, first->error};
  }
  load.reset();
}

Result<bool> Retrieval::poll(Executor& executor, double budget_s) {
  if (loaded()) return false;
  State& s = *state_;
  const std::uint64_t decoded_before = s.load->decoded_bytes();
  const double start_s = s.clock.now_s();
  const bool done = s.load->poll(executor, budget_s);
  const bool worked = s.note_plan();
  const std::uint64_t decoded = s.load->decoded_bytes() - decoded_before;
  if (decoded > 0 && !s.quantizer.empty()) s.costs.decoded(s.quantizer, decoded, s.clock.now_s() - start_s);
  if (!done) return worked || decoded > 0;
  s.note_end();
  if (s.failure) return std::unexpected(s.failure->error);
  return true;
}

bool Retrieval::layer_loaded(std::uint32_t layer) const {
  if (loaded()) return true;
  // What failed is known at the end: the last layer is not there before.
  const bool last = layer + 1 == state_->sequence.pool().shape().layers;
  return !last && state_->planned && state_->load->layer_ready(layer);
}

bool Retrieval::loaded() const { return !state_ || !state_->load; }

bool Retrieval::late() const {
  if (loaded() || state_->clock.now_s() - state_->begun_s < late_after_s(state_->expected_s)) return false;
  return state_->load->owing() != 0;
}

Status Retrieval::ensure_all(Executor& executor) {
  using namespace std::chrono_literals;
  while (!loaded()) {
    SHALE_ASSIGN(const bool worked, poll(executor, std::numeric_limits<double>::infinity()));
    if (!worked) std::this_thread::sleep_for(50us);
  }
  return {};
}

}  // namespace shale
