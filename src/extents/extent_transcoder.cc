#include "extents/extent_transcoder.h"

#include <algorithm>
#include <utility>

namespace shale {
namespace {

constexpr std::uint32_t kNoWindow = 1u << 30;
const AttentionStatistics kNothingObserved = {};  // of what was stored long ago

}  // namespace

ExtentTranscoder::ExtentTranscoder(ExtentManifest manifest, std::shared_ptr<const ExtentBlobs> blobs,
                                   const Method& method, const TranscodeOptions& options)
    : manifest_(std::move(manifest)),
      blobs_(std::move(blobs)),
      method_(method),
      options_(options),
      bytes_(manifest_.geometry.bytes(manifest_.tokens)) {}

Result<ExtentTranscoder> ExtentTranscoder::start(ExtentManifest manifest, std::shared_ptr<const ExtentBlobs> blobs,
                                                 const Method& method, const TranscodeOptions& options) {
  ExtentTranscoder made(std::move(manifest), std::move(blobs), method, options);
  // Whoever loads less of the extent needs what a window hides from what follows all of it.
  ExtentManifest unhidden = made.manifest_;
  for (std::uint32_t& window : unhidden.windows) window = window == 0 ? 0 : kNoWindow;
  const std::uint32_t tokens = unhidden.tokens;
  const auto view = packed_view(unhidden.geometry, KvPacking::kTokensHeads, made.bytes_.data(), tokens);
  SHALE_ASSIGN(auto decoder, ExtentDecoder::start(unhidden, {.tokens = tokens}, view, options.tables));
  made.decoder_.emplace(std::move(decoder));
  return made;
}

KvView ExtentTranscoder::decoded() const {
  const std::byte* bytes = bytes_.data();
  return packed_view(manifest_.geometry, KvPacking::kTokensHeads, bytes, manifest_.tokens);
}

Result<bool> ExtentTranscoder::step(Executor& executor) {
  if (decoder_) return decode(executor);
  if (!ranker_) return encoder_->step(executor);
  if (ranker_->step(executor)) return true;
  SHALE_TRY(encode({ranker_->finish()}));
  ranker_.reset();
  return true;
}

Result<bool> ExtentTranscoder::decode(Executor& executor) {
  if (range_ == decoder_->ranges().size()) {
    decoder_.reset();
    SHALE_TRY(method_.scorer.empty() ? encode({}) : rank());
    return true;
  }
  const ExtentRange& range = decoder_->ranges()[range_];
  const auto bytes = blobs_->parts[range.blob]->bytes().subspan(range.offset, range.bytes);
  Status decoded = decoder_->decode(range_++, bytes, executor);
  if (decoded) return true;
  for (std::uint32_t i = 0; i < manifest_.chunks(); ++i) failed_chunks_ |= std::uint32_t{decoder_->failed(i)} << i;
  return std::unexpected(std::move(decoded).error());
}

Status ExtentTranscoder::rank() {
  if (auto stored = stored_ranking()) return encode({std::move(*stored)});
  ranking_damaged_ = true;
  SHALE_ASSIGN(auto ranker, RunRanker::start(decoded(), method_.ranking(), manifest_.first_position, options_.scorers,
                                             kNothingObserved, options_.model));
  ranker_.emplace(std::move(ranker));
  return {};
}

std::optional<Ranking> ExtentTranscoder::stored_ranking() const {
  const auto stored = std::ranges::find(manifest_.rankings, method_.ranking(), &RankingInfo::name);
  if (stored == manifest_.rankings.end()) return std::nullopt;
  const auto part = manifest_.blobs.size() + static_cast<std::size_t>(stored - manifest_.rankings.begin());
  const BlobBytes& bytes = blobs_->parts[part];
  if (!bytes || !manifest_.check_part(static_cast<std::uint32_t>(part), bytes->bytes())) return std::nullopt;
  const std::uint32_t heads = manifest_.geometry.layers * manifest_.geometry.kv_heads;
  auto tiers = TierMap::parse(heads, manifest_.tokens, bytes->bytes().first(stored->bytes));
  if (!tiers) return std::nullopt;
  return Ranking{stored->name, std::move(*tiers)};
}

Status ExtentTranscoder::encode(std::vector<Ranking> rankings) {
  ExtentManifest identity = manifest_;
  identity.packing = KvPacking::kHeadPages;
  identity.method = method_;
  identity.tiers = {};
  identity.rankings = {};
  identity.blobs = {};
  SHALE_ASSIGN(auto encoder, ExtentEncoder::start(decoded(), std::move(identity), std::move(rankings), options_.tables,
                                                  options_.buffers));
  encoder_.emplace(std::move(encoder));
  return {};
}

}  // namespace shale
