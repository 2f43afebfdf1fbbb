#include "model/weights/weight_choice.h"

#include <algorithm>

#include "core/resources.h"
#include "model/weights/row_unit.h"
#include "model/weights/weight_record.h"
#include "model/weights/weight_timing.h"

namespace shale {
namespace {

// Candidates stand in the order of preference: the file's own types need no copy, and BF16 multiplies unrounded
// activations where narrow types round them to 8 bits. A later one must be faster than the one preferred to it by this
// much, which also keeps the choice the same from run to run.
constexpr double kWorthwhile = 1.15;
// There is a second copy where one takes no more than this share of the memory that this process may use: not of what
// is free just now, for what is stored under the one choice is not found under the other.
constexpr double kMemoryShare = 0.25;

const WeightTiming& fastest(const std::vector<WeightTiming>& timings, std::size_t tokens) {
  const WeightTiming* best = &timings[0];
  for (const WeightTiming& timing : timings) {
    if (timing.seconds[tokens] * kWorthwhile < best->seconds[tokens]) best = &timing;
  }
  return *best;
}

WeightRecord decide(const std::vector<WeightTiming>& timings) {
  constexpr std::size_t kOne = 0, kMany = kTimedTokens.size() - 1;
  const auto winner = [&](const WeightTiming& timing, std::size_t tokens) {
    return WeightRecord::Winner{timing.type, timings[0].seconds[tokens] / timing.seconds[tokens]};
  };
  const WeightTiming& decode = fastest(timings, kOne);
  const WeightTiming& prefill = fastest(timings, kMany);
  WeightRecord record{winner(prefill, kMany), winner(decode, kOne)};
  if (&decode == &prefill) return record;
  std::size_t crossover = kMany;
  while (crossover > 1 && prefill.seconds[crossover - 1] < decode.seconds[crossover - 1]) --crossover;
  record.prefill_from = kTimedTokens[crossover];
  return record;
}

struct Choice {
  WeightRecord record;
  bool read;            // not measured by this load
  bool agreed = false;  // those who share what is stored run it
};

Result<Choice> read_or_measure(const FileTensors& file, const Hash128& content, const std::filesystem::path& folder,
                               ComputeThreads& threads) {
  const WeightRecordFile memory(folder, content, threads.threads());
  if (!folder.empty()) {
    if (const auto record = memory.read(candidate_types(file))) return Choice{*record, true};
  }
  SHALE_ASSIGN(const std::vector<WeightTiming> timings, time_weights(file, threads));
  const WeightRecord record = decide(timings);
  if (!folder.empty()) memory.write(record);
  return Choice{record, false};
}

// As those run who share what is stored.
Choice agreed(Choice mine, const FileTensors& file, const Hash128& content, const ModelOptions& options) {
  if (!options.agree) return mine;
  const std::string answer = options.agree(weight_matter(content), mine.record.text());
  const auto record = WeightRecord::parse(answer, candidate_types(file));
  if (!record) return mine;
  mine.agreed = true;
  return answer == mine.record.text() ? mine : Choice{*record, true, true};
}

// Why a set's types were chosen.
std::string describe(const MatrixSet& set, const WeightRecord::Winner& winner, const std::string& own, bool read) {
  const char* when = read ? " when first loaded" : "";
  if (winner.type == RunType::kFile)
    return fmt::format("{} (as in the file, fastest measured{})", set.type_name(), when);
  return fmt::format("{} (measured {:.1f}x {}{})", set.type_name(), winner.speed, own, when);
}

}  // namespace

Result<RunningWeights> RunningWeights::create(const FileTensors& file, const Hash128& content,
                                              const ModelOptions& options, ComputeThreads& threads) {
  SHALE_ASSIGN(RunningWeights weights, choose(file, content, options, threads));
  weights.row_unit_ = find_row_unit(*weights.prefill_, threads);
  weights.decode_row_unit_ =
      weights.decode_ == weights.prefill_ ? weights.row_unit_ : find_row_unit(*weights.decode_, threads);
  weights.arithmetic_ += fmt::format(" in {}", weights.row_unit_);
  return weights;
}

Result<RunningWeights> RunningWeights::choose(const FileTensors& file, const Hash128& content,
                                              const ModelOptions& options, ComputeThreads& threads) {
  const auto build = [&](RunType type, bool stack) -> Result<std::shared_ptr<const MatrixSet>> {
    SHALE_ASSIGN(MatrixSet set, MatrixSet::create(file, type, stack, 0, threads));
    return std::make_shared<const MatrixSet>(std::move(set));
  };
  RunningWeights weights;
  if (options.float32 || options.weights == WeightChoice::kFile) {
    SHALE_ASSIGN(weights.prefill_, options.float32 ? build(RunType::kF32, true) : build(RunType::kFile, false));
    weights.decode_ = weights.prefill_;
    weights.prefill_name_ = weights.decode_name_ =
        weights.prefill_->type_name() + (options.float32 ? " (asked for)" : " (as in the file)");
    weights.arithmetic_ = options.float32 ? "f32" : "file";
    return weights;
  }

  SHALE_ASSIGN(const Choice mine, read_or_measure(file, content, options.choices_folder, threads));
  const auto [record, read, is_agreed] = agreed(mine, file, content, options);
  const std::string own = main_type_name(file);
  SHALE_ASSIGN(weights.prefill_, build(record.prefill.type, true));
  weights.decode_ = weights.prefill_;
  weights.prefill_name_ = describe(*weights.prefill_, record.prefill, own, read);
  weights.arithmetic_ = "stacked " + std::string(to_string(record.prefill.type));
  if (record.decode.type == record.prefill.type) {
    weights.decode_name_ = describe(*weights.prefill_, record.decode, own, read);
    return weights;
  }
  const std::uint64_t memory = options.memory_bytes > 0 ? options.memory_bytes : usable_memory();
  if (static_cast<double>(weights.prefill_->bytes()) > kMemoryShare * static_cast<double>(memory)) {
    weights.as_agreed_ = !is_agreed;
    weights.decode_name_ = weights.prefill_->type_name() + " (as for prefill, no memory for a second copy)";
    return weights;
  }
  SHALE_ASSIGN(weights.decode_, build(record.decode.type, true));
  weights.prefill_from_ = record.prefill_from;
  weights.decode_name_ = describe(*weights.decode_, record.decode, own, read);
  weights.arithmetic_ += fmt::format(", {}", to_string(record.decode.type));
  return weights;
}

std::uint64_t RunningWeights::bytes() const { return prefill_->bytes() + (decode_ == prefill_ ? 0 : decode_->bytes()); }

}  // namespace shale
