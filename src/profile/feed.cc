#include "profile/feed.h"

#include <algorithm>
#include <vector>

namespace shale {

Stop::Stop(const Stop& one, const Stop& other) : pace_(one.pace_ ? one.pace_ : other.pace_) {
  if (!one.asked_ && !other.asked_) return;
  asked_ = [first = one.asked_, second = other.asked_] { return (first && first()) || (second && second()); };
}

Status check_stop(const Stop& stop, std::uint32_t depth) {
  if (stop.asked(depth)) return fail(ErrorCode::kCancelled, "measuring was stopped");
  return {};
}

std::uint32_t step_tokens(const Stop& stop) {
  return stop.pace() ? std::min(stop.pace()->tokens(), kStepTokens) : kStepTokens;
}

Result<std::span<const float>> step_at_pace(Model& model, std::span<const StepSequence> batch, const Stop& stop) {
  return stop.pace() ? stop.pace()->step(batch) : model.step(batch);
}

Status feed(Model& model, std::span<const Feed> feeds, const OnLogits& on_logits, const Stop& stop) {
  const std::size_t vocabulary = model.info().vocabulary;
  struct Piece {
    std::size_t feed, first;
  };
  std::size_t at = 0, offset = 0;  // the next token to take: token `offset` of feeds[at]
  while (at < feeds.size()) {
    std::vector<StepSequence> batch;
    std::vector<Piece> pieces;
    SHALE_TRY(check_stop(stop, feeds[at].sequence->length()));
    const Piece begin{at, offset};
    for (std::size_t room = step_tokens(stop); room > 0 && at < feeds.size();) {
      const auto rest = feeds[at].tokens.subspan(offset);
      const auto now = rest.first(std::min(rest.size(), room));
      if (!now.empty()) {
        SHALE_TRY(feeds[at].sequence->append(static_cast<std::uint32_t>(now.size())));
        batch.push_back({.sequence = feeds[at].sequence,
                         .tokens = now,
                         .logits_all = static_cast<bool>(on_logits),
                         .logits_none = !on_logits,
                         .capture = feeds[at].capture});
        pieces.push_back({at, offset});
      }
      room -= now.size();
      offset += now.size();
      if (offset == feeds[at].tokens.size()) {
        ++at;
        offset = 0;
      }
    }
    if (batch.empty()) continue;
    auto stepped = step_at_pace(model, batch, stop);
    if (!stepped && stepped.error().code == ErrorCode::kBusy) {
      for (const StepSequence& each : batch) {
        each.sequence->truncate(each.sequence->length() - static_cast<std::uint32_t>(each.tokens.size()));
      }
      at = begin.feed;
      offset = begin.first;
      continue;
    }
    if (!stepped) return std::unexpected(std::move(stepped).error());
    std::span<const float> logits = *stepped;
    for (std::size_t i = 0; on_logits && i < batch.size(); ++i) {
      const std::size_t count = batch[i].tokens.size() * vocabulary;
      on_logits(pieces[i].feed, pieces[i].first, logits.first(count));
      logits = logits.subspan(count);
    }
  }
  return {};
}

}  // namespace shale
