#include "engine/calibrate.h"

#include <algorithm>

#include "codec/extent.h"
#include "codec/views/sequence_pages.h"
#include "codec/views/sequence_view.h"
#include "engine/chunk.h"
#include "model/capture.h"
#include "quantizers/token_copy.h"
#include "scoring/query_moments.h"

namespace shale {
namespace {

constexpr std::uint32_t kStepTokens = 512;

using Progress = std::function<bool(std::size_t, std::size_t)>;

// Calls use(sequence, what was observed of it) for the text in sequences of kCalibrationTokens.
Status for_each_sequence(Model& model, std::span<const Token> tokens, const ScorerNeeds& needs,
                         const Progress& progress,
                         const std::function<void(const Sequence&, AttentionStatistics)>& use) {
  if (tokens.empty()) return fail(ErrorCode::kInvalidArgument, "no text to calibrate with");
  const PageShape shape = model.page_shape();
  const std::uint32_t sequence_max = std::min(kCalibrationTokens, model.info().context_max);
  SHALE_ASSIGN(const auto pool, PagePool::create(shape, (shape.pages_for(sequence_max) + 1) * shape.block_bytes()));
  for (std::size_t done = 0; done < tokens.size();) {
    if (progress && !progress(done, tokens.size())) return fail(ErrorCode::kCancelled, "calibration was stopped");
    auto part = tokens.subspan(done, std::min<std::size_t>(sequence_max, tokens.size() - done));
    done += part.size();
    const auto count = static_cast<std::uint32_t>(part.size());
    Sequence sequence(*pool);
    ScorerNeeds all = needs;
    if (all.last_queries > 0) all.last_queries = count;
    Capture capture(model.info(), 0, count, all);
    while (!part.empty()) {
      const auto chunk = part.first(next_chunk(static_cast<std::uint32_t>(part.size()), kStepTokens));
      SHALE_TRY(sequence.append(static_cast<std::uint32_t>(chunk.size())));
      const StepSequence step{.sequence = &sequence, .tokens = chunk, .logits_none = true, .capture = &capture};
      SHALE_TRY(model.step({&step, 1}));
      part = part.subspan(chunk.size());
    }
    use(sequence, capture.take());
  }
  return {};
}

}  // namespace

Result<Calibration> calibrate(Model& model, std::span<const Token> tokens, const Progress& progress) {
  const ModelInfo& info = model.info();
  Calibrator calibrator(info.layers, info.query_heads, info.ropes[0]);
  const auto add = [&](const Sequence& sequence, AttentionStatistics seen) {
    const std::size_t per_head = std::size_t{sequence.length()} * info.head_dim;
    model.executor().parallel_for(std::size_t{info.layers} * info.query_heads, [&](std::size_t i) {
      const std::span queries = std::span(seen.queries).subspan(i * per_head, per_head);
      const auto layer = static_cast<std::uint32_t>(i / info.query_heads);
      undo_rope(info.ropes[layer], 0, info.head_dim, queries);
      calibrator.add(layer, static_cast<std::uint32_t>(i % info.query_heads), queries, info.head_dim);
    });
  };
  SHALE_TRY(for_each_sequence(model, tokens, {.last_queries = 1}, progress, add));
  return calibrator.finish();
}

Result<CachegenTables> calibrate_cachegen(Model& model, std::span<const Token> tokens, const CachegenWidths& widths,
                                          const Progress& progress) {
  const PageShape shape = model.page_shape();
  SHALE_TRY(check_encodable(geometry_of(shape.with(PageElement::kHalf)), Method{"", "cachegen"}));
  CachegenCalibrator calibrator(shape.layers, shape.kv_heads, shape.head_dim, widths);
  for (const std::size_t pass : {0, 1}) {
    const auto add = [&](const Sequence& sequence, const AttentionStatistics&) {
      const std::uint32_t count = sequence.length();
      const SequencePages pages(sequence, count, model.executor());
      model.executor().parallel_for(shape.pages_per_block(), [&](std::size_t i) {
        const auto index = static_cast<std::uint32_t>(i);
        std::vector<Half> keys(std::size_t{shape.head_dim} * count), values(keys.size());
        const KvRows<Half> rows{keys.data(), values.data(), count, count, shape.head_dim};
        gather_tokens(pages->head(index / shape.kv_heads, index % shape.kv_heads).pages, shape, 0, count, rows, 0);
        const KvRows<const Half> read{keys.data(), values.data(), count, count, shape.head_dim};
        pass == 0 ? calibrator.add_spread(index, read) : calibrator.add_codes(index, read);
      });
    };
    const auto of_both = [&](std::size_t done, std::size_t total) {
      return !progress || progress(pass * total + done, 2 * total);
    };
    SHALE_TRY(for_each_sequence(model, tokens, {}, of_both, add));
    if (pass == 0) calibrator.set_widths();
  }
  return calibrator.finish();
}

}  // namespace shale
