#include "bench/engine_speed.h"

#include <algorithm>
#include <random>

#include "core/clock.h"
#include "core/interrupt.h"

namespace shale {
namespace {

constexpr std::uint32_t kChunkTokens = 512;

}  // namespace

EngineSpeed::EngineSpeed(Model& model, std::unique_ptr<PagePool> pool) : model_(&model), pool_(std::move(pool)) {
  std::mt19937 random(1);
  tokens_.resize(kChunkTokens);
  for (Token& token : tokens_) token = static_cast<Token>(random() % model.info().vocabulary);
}

Result<EngineSpeed> EngineSpeed::create(Model& model, PageElement element, std::span<const SpeedTest> tests) {
  std::uint64_t single = 0, together = 0;
  for (const SpeedTest& test : tests) {
    const std::uint64_t length = test.depth + test.tokens;
    if (length > model.info().context_max) {
      return fail(ErrorCode::kInvalidArgument, "{} tokens exceed the model's context of {}: give fewer", length,
                  model.info().context_max);
    }
    (test.sequences == 1 ? single : together) =
        std::max(test.sequences == 1 ? single : together, length * test.sequences);
  }
  // A second copy of what is appended to forks, and the last block of each sequence.
  const PageShape shape = model.page_shape().with(element);
  const std::uint64_t tokens = 2 * single + 2 * together + 64 * shape.block_size;
  SHALE_ASSIGN(auto pool, PagePool::create(shape, shape.token_bytes() * tokens));
  return EngineSpeed(model, std::move(pool));
}

Status EngineSpeed::extend(Sequence& sequence, std::uint32_t tokens) {
  while (tokens > 0) {
    SHALE_TRY(check_interrupt());
    const std::uint32_t count = std::min(tokens, kChunkTokens);
    tokens -= count;
    SHALE_TRY(sequence.append(count));
    const StepSequence step{
        .sequence = &sequence, .tokens = std::span(tokens_).first(count), .logits_none = tokens > 0};
    SHALE_TRY(model_->step({&step, 1}));
  }
  return {};
}

// Copies to decode on, each sharing a prefix of `depth` tokens that no other sequence of the batch shares.
Result<std::vector<Sequence>> EngineSpeed::forks(const SpeedTest& test) {
  const std::size_t first = test.sequences == 1 ? 0 : 1;
  while (deep_.size() < first + test.sequences) deep_.emplace_back(*pool_);
  std::vector<Sequence> forks;
  for (std::size_t i = first; i < first + test.sequences; ++i) {
    if (deep_[i].length() < test.depth) SHALE_TRY(extend(deep_[i], test.depth - deep_[i].length()));
    forks.push_back(deep_[i].fork());
    forks.back().truncate(test.depth);
  }
  return forks;
}

Status EngineSpeed::decode(std::vector<Sequence>& sequences, const SpeedTest& test) {
  using enum StepSequence::Role;
  std::vector<StepSequence> batch(sequences.size());
  for (std::uint32_t i = 0; i < test.tokens; ++i) {
    SHALE_TRY(check_interrupt());
    for (std::size_t s = 0; s < sequences.size(); ++s) {
      SHALE_TRY(sequences[s].append(1));
      batch[s] = {.sequence = &sequences[s],
                  .tokens = std::span(tokens_).subspan((s + i) % kChunkTokens, 1),
                  .role = test.kind == SpeedTest::Kind::kExact ? kAnswer : kEither};
    }
    SHALE_TRY(model_->step(batch));
  }
  return {};
}

Result<double> EngineSpeed::measure(const SpeedTest& test) {
  const RealClock clock;
  if (test.kind == SpeedTest::Kind::kPrefill) {
    Sequence sequence(*pool_);
    const double start_s = clock.now_s();
    SHALE_TRY(extend(sequence, test.tokens));
    return test.tokens / (clock.now_s() - start_s);
  }
  SHALE_ASSIGN(std::vector<Sequence> sequences, forks(test));
  const double start_s = clock.now_s();
  SHALE_TRY(decode(sequences, test));
  return test.tokens * test.sequences / (clock.now_s() - start_s);
}

}  // namespace shale
