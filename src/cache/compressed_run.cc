#include "cache/compressed_run.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "codec/ranking.h"
#include "codec/views/sequence_view.h"

namespace shale {
namespace {

// A lossy codec reads and writes halves: where pages are not, a copy stands between.
std::optional<StagedTokens> staging_for(const PageShape& shape, std::uint32_t tokens, const Method& method) {
  if (shape.element == PageElement::kHalf || method.is_full()) return std::nullopt;
  return StagedTokens(shape, tokens);
}

}  // namespace

std::uint64_t CompressedRun::bytes_for(double keep) const {
  std::uint64_t bytes = 0;
  for (const auto& extent : extents) bytes += extent.manifest.bytes_for(keep) + extent.manifest.tiers.bytes().size();
  return bytes;
}

struct RunCompressor::State {
  RunCodec codec;
  const Sequence& from;
  std::uint32_t first = 0;
  AttentionStatistics statistics;
  CompressedRun run;
  std::optional<StagedTokens> staged = {};  // until it is read, `view` is of undefined bytes
  bool staged_read = false;
  KvView view = {};
  std::optional<RunRanker> ranker = {};
  std::optional<Ranking> ranking = {};
  std::uint32_t encoded = 0;  // tokens
  std::optional<ExtentEncoder> encoder = {};

  void look_at_blocks() {
    staged = staging_for(from.pool().shape(), run.tokens, run.method);
    view = staged ? readable(staged->view()) : view_of(from, first, run.tokens);
  }

  Status start_ranker() {
    SHALE_ASSIGN(ranker, RunRanker::start(view, run.method.ranking(), first, codec.scorers, statistics, codec.model));
    return {};
  }

  // Extents as a store cuts them.
  Status start_extent() {
    ExtentManifest identity;
    identity.geometry = view.geometry;
    identity.method = run.method;
    identity.chunk_tokens = codec.chunk_tokens;
    identity.tokens = std::min(run.tokens - encoded, kExtentChunksMax * codec.chunk_tokens);
    identity.first_position = first + encoded;
    identity.keys.resize(identity.tokens / identity.geometry.block_tokens);
    identity.windows.assign(codec.model.windows.begin(), codec.model.windows.end());
    std::vector<Ranking> rankings;
    if (ranking) rankings.push_back({ranking->name, ranking->tiers.part(encoded, identity.tokens)});
    const std::uint32_t begin = std::exchange(encoded, encoded + identity.tokens);
    SHALE_ASSIGN(encoder, ExtentEncoder::start(view.part(begin, identity.tokens), std::move(identity),
                                               std::move(rankings), codec.tables));
    return {};
  }
};

RunCompressor::RunCompressor(std::unique_ptr<State> state) : state_(std::move(state)) {}
RunCompressor::~RunCompressor() = default;
RunCompressor::RunCompressor(RunCompressor&&) noexcept = default;
RunCompressor& RunCompressor::operator=(RunCompressor&&) noexcept = default;

Result<RunCompressor> RunCompressor::start(const RunCodec& codec, const Sequence& from, std::uint32_t first,
                                           std::uint32_t tokens, const Method& method, AttentionStatistics statistics) {
  SHALE_TRY(method.check());
  std::unique_ptr<State> state(new State{codec, from, first, std::move(statistics), {method, tokens, {}}});
  state->look_at_blocks();
  if (!method.scorer.empty()) SHALE_TRY(state->start_ranker());
  return RunCompressor(std::move(state));
}

Result<RunCompressor> RunCompressor::start(const RunCodec& codec, const Sequence& from, std::uint32_t first,
                                           std::uint32_t tokens, const Method& method, TierMap tiers) {
  SHALE_TRY(method.check());
  std::unique_ptr<State> state(new State{codec, from, first, {}, {method, tokens, {}}});
  state->look_at_blocks();
  if (!method.scorer.empty()) state->ranking = Ranking{method.ranking(), std::move(tiers)};
  return RunCompressor(std::move(state));
}

Result<bool> RunCompressor::step(Executor& executor) {
  State& s = *state_;
  if (s.staged && !std::exchange(s.staged_read, true)) {
    s.staged->read(s.from, s.first, executor);
    return true;
  }
  if (s.ranker) {
    if (s.ranker->step(executor)) return true;
    s.ranking = s.ranker->finish();
    s.ranker.reset();
  }
  if (!s.encoder) {
    if (s.encoded == s.run.tokens) return false;
    SHALE_TRY(s.start_extent());
  }
  if (!s.encoder->step(executor)) {
    s.run.extents.push_back(s.encoder->finish());
    s.encoder.reset();
  }
  return true;
}

CompressedRun RunCompressor::finish() { return std::move(state_->run); }

struct RunExpander::State {
  const CompressedRun& run;
  Sequence& into;
  std::uint32_t first = 0;  // of the run's tokens, in `into`
  std::optional<StagedTokens> staged = {};
  std::vector<ExtentDecoder> decoders = {};  // of each extent
  std::size_t extent = 0;                    // the next to decode, and its next range
  std::uint32_t range = 0;
  bool done = false;

  Status start_decoders(const RunCodec& codec, double keep) {
    const MutableKvView view = staged ? staged->view() : view_of(into, first, run.tokens);
    std::uint32_t begin = 0;
    for (const auto& encoded : run.extents) {
      const std::uint32_t tokens = encoded.manifest.tokens;
      const ExtentSpan span{.tokens = tokens, .keep = keep, .tokens_after = run.tokens - begin - tokens};
      SHALE_ASSIGN(auto decoder, ExtentDecoder::start(encoded.manifest, span, view.part(begin, tokens), codec.tables));
      decoders.push_back(std::move(decoder));
      begin += tokens;
    }
    return {};
  }

  void finish(Executor& executor) {
    if (staged) staged->write(into, first, executor);
    std::uint32_t begin = first;
    for (std::size_t e = 0; e < decoders.size(); ++e) {
      const ExtentManifest& manifest = run.extents[e].manifest;
      if (!run.method.scorer.empty()) {
        std::vector<std::uint32_t> rows(into.pool().shape().pages_per_block());
        for (std::uint32_t head = 0; head < rows.size(); ++head) rows[head] = decoders[e].rows(head, manifest.chunks());
        into.keep_rows(begin, manifest.tokens, rows);
      }
      begin += manifest.tokens;
    }
    if (!run.method.is_full()) into.mark_lossy();
    done = true;
  }
};

RunExpander::RunExpander(std::unique_ptr<State> state) : state_(std::move(state)) {}
RunExpander::~RunExpander() = default;
RunExpander::RunExpander(RunExpander&&) noexcept = default;
RunExpander& RunExpander::operator=(RunExpander&&) noexcept = default;

Result<RunExpander> RunExpander::start(const RunCodec& codec, const CompressedRun& run, double keep, Sequence& into) {
  std::unique_ptr<State> state(new State{run, into, into.length()});
  SHALE_TRY(into.append(run.tokens));
  state->staged = staging_for(into.pool().shape(), run.tokens, run.method);
  if (Status started = state->start_decoders(codec, keep); !started) {
    into.truncate(state->first);
    return std::unexpected(std::move(started).error());
  }
  return RunExpander(std::move(state));
}

Result<bool> RunExpander::step(Executor& executor) {
  State& s = *state_;
  if (s.extent == s.decoders.size()) {
    if (s.done) return false;
    s.finish(executor);
    return true;
  }
  ExtentDecoder& decoder = s.decoders[s.extent];
  if (s.range == decoder.ranges().size()) {
    ++s.extent;
    s.range = 0;
    return true;
  }
  const ExtentRange& range = decoder.ranges()[s.range];
  const std::span<const std::byte> part = s.run.extents[s.extent].parts[range.blob].bytes();
  SHALE_TRY(decoder.decode(s.range++, part.subspan(range.offset, range.bytes), executor));
  return true;
}

}  // namespace shale
