#include "engine/spans/span_repetition.h"

#include <algorithm>
#include <utility>

namespace shale {

Result<std::unique_ptr<SpanRepetition>> SpanRepetition::start(const Model& model, const Tokenizer& tokenizer,
                                                              NewRun part, const Sequence& exact, std::uint32_t first,
                                                              std::uint32_t end) {
  if (end <= first) return fail(ErrorCode::kInvalidArgument, "there is no whole block to repeat");
  Sequence whole_blocks = exact.fork();
  whole_blocks.truncate(end);
  std::unique_ptr<SpanRepetition> started(new SpanRepetition(std::move(part), std::move(whole_blocks)));
  const auto tokens = std::span<const Token>(started->part_.tokens).first(end).subspan(first);
  SHALE_ASSIGN(started->repetition_, Repetition::begin(model, tokenizer, started->exact_, tokens));
  started->next_turn();
  return started;
}

Status SpanRepetition::step(Model& model, std::uint32_t tokens) {
  const auto now = rest_.first(std::min<std::size_t>(tokens, rest_.size()));
  SHALE_TRY(repetition_->sequence().append(static_cast<std::uint32_t>(now.size())));
  const StepSequence step{
      .sequence = &repetition_->sequence(), .tokens = now, .logits_none = true, .capture = &repetition_->capture()};
  SHALE_TRY(model.step({&step, 1}));
  rest_ = rest_.subspan(now.size());
  if (rest_.empty()) next_turn();
  return {};
}

NewRun SpanRepetition::take() {
  if (over()) part_.statistics.merge(repetition_->take());
  return std::move(part_);
}

}  // namespace shale
