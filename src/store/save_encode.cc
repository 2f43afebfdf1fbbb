// A save's first half: what is not there yet is ranked and encoded, extent by extent.
#include <algorithm>
#include <utility>

#include "store/store_save.h"

namespace shale {
namespace {

constexpr auto kWritingMax = 4;  // extents of a save, so that encoding and writing overlap

}  // namespace

// True when it did something.
bool SaveJob::encode(Executor& executor) {
  if (next_ == plan_.pieces.size()) return false;
  if (!encoder_share_) {
    const auto to_be_placed = std::ranges::count(writings_, false, &Writing::stored);
    if (to_be_placed >= kWritingMax) return false;
    const std::uint32_t tokens = plan_.pieces[next_].blocks * core_.options.geometry.block_tokens;
    const bool within = core_.staging.used(StagedFor::kSaves) < core_.staging.bytes_max();
    encoder_share_ =
        core_.staging.take(StagedFor::kSaves, core_.options.geometry.bytes(tokens), to_be_placed == 0 && within);
    if (!encoder_share_) return false;
  }
  Status encoded = no_memory_is_an_error([&] { return encode_piece(executor); }, kNoMemory);
  if (!encoded) give_up(std::move(encoded));
  return true;
}

Status SaveJob::encode_piece(Executor& executor) {
  bool more = false;
  {
    const std::lock_guard reading(handle_->view_mutex);
    if (handle_->cancelled) return {};
    const double since_s = core_.clock.now_s();
    if (!encoder_ && !ranker_) SHALE_TRY(start_next());
    more = encoder_ ? encoder_->step(executor) : ranker_->step(executor);
    core_.encode_seconds += core_.clock.now_s() - since_s;
  }
  if (!more && encoder_) {
    finish_encoder();
  } else if (!more) {
    rankings_.push_back(ranker_->finish());
    ranker_.reset();
  }
  return {};
}

// What is ranked, is ranked as a whole first, what is there already with it. A ranking to be kept that cannot be made
// is left out.
Status SaveJob::start_ranker() {
  const std::string ranking = std::move(to_rank_.back());
  to_rank_.pop_back();
  auto ranker = RunRanker::start(plan_.view, ranking, plan_.view_block * core_.options.geometry.block_tokens,
                                 core_.options.scorers, plan_.hints.statistics, core_.options.model);
  if (ranker) {
    ranker_.emplace(std::move(*ranker));
  } else if (!plan_.hints.method.is_full()) {
    return std::unexpected(std::move(ranker).error());
  }
  return {};
}

// The next ranker, or else encoder.
Status SaveJob::start_next() {
  while (!to_rank_.empty() && !ranker_) SHALE_TRY(start_ranker());
  if (ranker_) return {};
  const std::uint32_t block_tokens = core_.options.geometry.block_tokens;
  const Method& method = plan_.hints.method;
  const auto& piece = plan_.pieces[next_];
  const auto first = static_cast<std::ptrdiff_t>(piece.first_block);
  ExtentManifest identity;
  identity.name_space = core_.name_space;
  identity.tenant = plan_.realm;
  identity.run = plan_.hints.run;
  identity.label = plan_.hints.label;
  identity.geometry = core_.options.geometry;
  if (method.is_full() && !identity.geometry.opaque()) identity.packing = core_.options.packing;
  identity.method = method;
  identity.chunk_tokens = core_.options.chunk_tokens;
  identity.tokens = piece.blocks * block_tokens;
  identity.first_position = piece.first_block * block_tokens;
  if (first > 0) identity.parent = plan_.keys[piece.first_block - 1];
  identity.keys.assign(plan_.keys.begin() + first, plan_.keys.begin() + first + piece.blocks);
  const std::size_t from = identity.first_position, to = from + identity.tokens;
  if (plan_.tokens.size() >= to) {
    identity.token_ids.assign(plan_.tokens.begin() + static_cast<std::ptrdiff_t>(from),
                              plan_.tokens.begin() + static_cast<std::ptrdiff_t>(to));
  }
  identity.windows.assign(core_.options.model.windows.begin(), core_.options.model.windows.end());
  std::vector<Ranking> rankings;
  const std::uint32_t in_view = (piece.first_block - plan_.view_block) * block_tokens;
  for (const Ranking& ranking : rankings_) {
    rankings.push_back({ranking.name, ranking.tiers.part(in_view, identity.tokens)});
  }
  const KvView part = plan_.view.part(in_view, identity.tokens);
  SHALE_ASSIGN(encoder_, ExtentEncoder::start(part, std::move(identity), std::move(rankings), core_.options.tables,
                                              core_.buffers.get()));
  return {};
}

void SaveJob::finish_encoder() {
  ExtentEncoder::Encoded encoded = encoder_->finish();
  encoder_.reset();
  const double keep = plan_.hints.keep;
  auto blobs = blobs_of(encoded.manifest, std::move(encoded.parts), keep, *core_.buffers);
  Writing writing;
  writing.facts = facts_of(encoded.manifest, plan_.realm, keep, blobs->bytes());
  core_.encoded_bytes += writing.facts.bytes;
  writing.facts.quality = static_cast<float>(writing.facts.exact ? 1 : plan_.hints.quality);
  writing.piece = plan_.pieces[next_];
  const auto all = plan_.pieces.back().first_block + plan_.pieces.back().blocks - plan_.pieces.front().first_block;
  writing.facts.recompute_s = static_cast<float>(plan_.hints.recompute_s * writing.piece.blocks / all);
  writing.facts.accessed_s = core_.wall_s();
  if (plan_.hints.time_to_live_s > 0) writing.facts.expires_s = core_.wall_s() + plan_.hints.time_to_live_s;
  blobs->tag = writing.facts.tags.front();
  core_.manifests.put(blobs->name, std::make_shared<ExtentManifest>(std::move(encoded.manifest)),
                      2 * blobs->manifest->size());
  writing.blobs = std::move(blobs);
  writing.share = std::exchange(encoder_share_, {});
  writing.share.turn_into(StagedFor::kSaves, writing.facts.bytes);
  writing.since_s = core_.clock.now_s();
  writings_.push_back(std::move(writing));
  if (++next_ == plan_.pieces.size()) handle_->set_released();
}

}  // namespace shale
