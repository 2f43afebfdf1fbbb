#include "cache/meeting.h"

#include <algorithm>
#include <utility>

#include "cache/retrieval.h"
#include "codec/views/sequence_view.h"
#include "placement/load_and_compute.h"

namespace shale {
namespace {

// Asked for ahead of what is being read: enough to keep a tier busy, little to be read in vain.
constexpr std::size_t kAskedAhead = 2;

}  // namespace

Meeting::Meeting(const Context& context, std::span<const BlockKey> keys, std::span<const std::int32_t> tokens,
                 const StoreLookup& found, std::uint32_t computed)
    : context_(context), keys_(keys.begin(), keys.end()), tokens_(tokens.begin(), tokens.end()), end_block_(computed) {
  for (const StoreLookup::PrefixSpan& span : found.spans) {
    if (!span.exact) break;
    const std::uint32_t end = span.first_block + span.blocks;
    for (std::uint32_t first = span.first_block; first < end; first += context_.chunk_blocks) {
      if (first < computed) continue;
      const std::uint32_t blocks = std::min(context_.chunk_blocks, end - first);
      pieces_.push_back(
          {.first_block = first, .blocks = blocks, .tier = span.tier, .bytes = span.bytes * blocks / span.blocks});
    }
    end_block_ = std::max(end_block_, end);
  }
  asked_ = pieces_.size();
}

double Meeting::estimate_s(const CostModel& costs, const StoreLookup& found, std::uint32_t computed,
                           std::uint32_t block_tokens, double slowdown) {
  const double compute_s =
      slowdown * costs.prefill_s((found.exact_blocks - computed) * block_tokens, computed * block_tokens);
  double load_s = 0;
  for (const StoreLookup::PrefixSpan& span : found.spans) {
    if (!span.exact) break;
    load_s = std::max(load_s, span.ready_s);
  }
  return met_after_s(compute_s, load_s);
}

bool Meeting::poll(Executor& executor, double budget_s, std::uint32_t computed, double before_s) {
  const double until_s = context_.clock.now_s() + budget_s;
  bool worked = false;
  std::size_t in_flight = 0;
  for (std::size_t i = pieces_.size(); i-- > asked_;) {
    Piece& piece = pieces_[i];
    if (!piece.load) continue;
    ++in_flight;
    const bool done = piece.load->poll(executor, std::max(0.0, until_s - context_.clock.now_s()));
    if (done) {
      --in_flight;
      worked = true;
      const bool came = piece.load->blocks() == piece.blocks && piece.load->failures().empty();
      piece.load.reset();
      if (!came) {
        lose(i);
        break;
      }
    }
    if (context_.clock.now_s() > until_s) break;
  }
  while (!ended_ && asked_ > 0 && in_flight < kAskedAhead && pays(pieces_[asked_ - 1], computed, before_s)) {
    if (!ask(pieces_[asked_ - 1])) {
      ended_ = true;
      break;
    }
    --asked_;
    ++in_flight;
    worked = true;
  }
  return worked;
}

// Whether it comes before computing would have passed it.
bool Meeting::pays(const Piece& piece, std::uint32_t computed, double before_s) const {
  if (piece.first_block < computed) return false;
  const std::uint32_t block = context_.pool.shape().block_size;
  const double comes_s = context_.tiers[piece.tier]->read_eta_s(piece.bytes);
  const std::uint32_t tokens = (piece.first_block + piece.blocks - computed) * block;
  return comes_s < before_s + context_.slowdown * context_.costs.prefill_s(tokens, computed * block);
}

bool Meeting::ask(Piece& piece) {
  const std::uint32_t block = context_.pool.shape().block_size;
  auto pages = std::make_unique<Sequence>(context_.pool);
  const bool room =
      context_.pool.blocks_free() >= piece.blocks || (context_.ensure_free && context_.ensure_free(piece.blocks));
  if (!room || !pages->append(piece.blocks * block)) return false;
  StoreLoadOptions options;
  options.needs = context_.needs;
  options.tenant = context_.tenant;
  options.first_block = piece.first_block;
  options.end_block = piece.first_block + piece.blocks;
  options.tokens = tokens_;
  options.counts = false;  // the whole prefix was, when it was found
  const double expected_s = context_.tiers[piece.tier]->read_eta_s(piece.bytes);
  auto load =
      context_.store.load(std::span(keys_).first(options.end_block), view_of(*pages, 0, piece.blocks * block), options);
  if (!load) return false;
  piece.pages = std::move(pages);
  piece.load = std::move(*load);
  piece.late_at_s = context_.clock.now_s() + late_after_s(expected_s);
  return true;
}

// It is computed, and so is all before it: what was asked for there is in vain.
void Meeting::lose(std::size_t piece) {
  for (std::size_t i = asked_; i <= piece; ++i) {
    pieces_[i].load.reset();
    pieces_[i].pages.reset();
  }
  asked_ = piece + 1;
  ended_ = true;
}

std::uint32_t Meeting::limit() const { return asked_ < pieces_.size() ? pieces_[asked_].first_block : end_block_; }

bool Meeting::arrived() const {
  return std::all_of(pieces_.begin() + static_cast<std::ptrdiff_t>(asked_), pieces_.end(),
                     [](const Piece& piece) { return !piece.load; });
}

std::uint32_t Meeting::overdue() const {
  std::uint32_t tiers = 0;
  for (std::size_t i = asked_; i < pieces_.size(); ++i) {
    if (pieces_[i].load && context_.clock.now_s() > pieces_[i].late_at_s) tiers |= 1u << pieces_[i].tier;
  }
  return tiers;
}

void Meeting::give_up() {
  for (std::size_t i = pieces_.size(); i-- > asked_;) {
    if (pieces_[i].load) return lose(i);
  }
  ended_ = true;
}

std::vector<Meeting::Brought> Meeting::join(Sequence& sequence) {
  std::vector<Brought> brought(context_.tiers.size());
  for (std::size_t i = asked_; i < pieces_.size(); ++i) {
    const std::uint32_t tokens = pieces_[i].blocks * context_.pool.shape().block_size;
    sequence.append_blocks(pieces_[i].pages->blocks(tokens));
    brought[pieces_[i].tier].tokens += tokens;
    brought[pieces_[i].tier].bytes += pieces_[i].bytes;
  }
  pieces_.clear();
  asked_ = 0;
  return brought;
}

std::uint32_t Meeting::blocks_held() const {
  std::uint32_t blocks = 0;
  for (const Piece& piece : pieces_) blocks += piece.pages ? piece.blocks : 0;
  return blocks;
}

}  // namespace shale
