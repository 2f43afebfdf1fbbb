#include "model/weight_choice.h"

#include <unistd.h>

#include <algorithm>

#include "model/weight_timing.h"

namespace shale {
namespace {

// Candidates stand in the order of preference: the file's own types need no copy, and BF16 multiplies unrounded
// activations where narrow types round them to 8 bits. A later one must be faster than the one preferred to it by this
// much, which also keeps the choice the same from run to run.
constexpr double kWorthwhile = 1.15;
// A second copy may take this share of the memory that is free.
constexpr double kMemoryShare = 0.5;

std::uint64_t memory_free() {
  return static_cast<std::uint64_t>(::sysconf(_SC_AVPHYS_PAGES)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

const WeightTiming& fastest(const std::vector<WeightTiming>& timings, std::size_t tokens) {
  const WeightTiming* best = &timings[0];
  for (const WeightTiming& timing : timings) {
    if (timing.seconds[tokens] * kWorthwhile < best->seconds[tokens]) best = &timing;
  }
  return *best;
}

std::string describe(const WeightTiming& chosen, const WeightTiming& own, std::size_t tokens) {
  if (&chosen == &own) return fmt::format("{} (as in the file, fastest measured)", own.name);
  return fmt::format("{} (measured {:.1f}x {})", chosen.name, own.seconds[tokens] / chosen.seconds[tokens], own.name);
}

}  // namespace

Result<RunningWeights> RunningWeights::create(const FileTensors& file, const ModelOptions& options,
                                              ComputeThreads& threads) {
  const auto build = [&](std::optional<ggml_type> type, bool stack) -> Result<std::shared_ptr<const MatrixSet>> {
    SHALE_ASSIGN(MatrixSet set, MatrixSet::create(file, type, stack, 0, threads));
    return std::make_shared<const MatrixSet>(std::move(set));
  };
  RunningWeights weights;
  if (options.float32 || options.weights == WeightChoice::kFile) {
    SHALE_ASSIGN(weights.prefill_, options.float32 ? build(GGML_TYPE_F32, true) : build(std::nullopt, false));
    weights.decode_ = weights.prefill_;
    weights.prefill_name_ = weights.decode_name_ =
        weights.prefill_->type_name() + (options.float32 ? " (asked for)" : " (as in the file)");
    return weights;
  }

  SHALE_ASSIGN(const std::vector<WeightTiming> timings, time_weights(file, threads));
  constexpr std::size_t kOne = 0, kMany = kTimedTokens.size() - 1;
  const WeightTiming& decode = fastest(timings, kOne);
  const WeightTiming& prefill = fastest(timings, kMany);
  SHALE_ASSIGN(weights.prefill_, build(prefill.type, true));
  weights.prefill_name_ = describe(prefill, timings[0], kMany);
  if (&decode == &prefill ||
      static_cast<double>(weights.prefill_->bytes()) > kMemoryShare * static_cast<double>(memory_free())) {
    weights.decode_ = weights.prefill_;
    weights.decode_name_ = describe(prefill, timings[0], kOne);
    return weights;
  }
  SHALE_ASSIGN(weights.decode_, build(decode.type, true));
  weights.decode_name_ = describe(decode, timings[0], kOne);
  std::size_t crossover = kMany;
  while (crossover > 1 && prefill.seconds[crossover - 1] < decode.seconds[crossover - 1]) --crossover;
  weights.prefill_from_ = kTimedTokens[crossover];
  return weights;
}

std::uint64_t RunningWeights::bytes() const { return prefill_->bytes() + (decode_ == prefill_ ? 0 : decode_->bytes()); }

}  // namespace shale
