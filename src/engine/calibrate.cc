#include "engine/calibrate.h"

#include <algorithm>

#include "engine/chunk.h"
#include "model/capture.h"
#include "scoring/query_moments.h"

namespace shale {
namespace {

constexpr std::uint32_t kStepTokens = 512;

Result<Observations> queries_of(Model& model, PagePool& pool, std::span<const Token> tokens) {
  const auto count = static_cast<std::uint32_t>(tokens.size());
  Sequence sequence(pool);
  Capture capture(model.info(), 0, count, {.last_queries = count});
  while (!tokens.empty()) {
    const auto chunk = tokens.first(next_chunk(static_cast<std::uint32_t>(tokens.size()), kStepTokens));
    SHALE_TRY(sequence.append(static_cast<std::uint32_t>(chunk.size())));
    const StepSequence step{.sequence = &sequence, .tokens = chunk, .logits_none = true, .capture = &capture};
    SHALE_TRY(model.step({&step, 1}));
    tokens = tokens.subspan(chunk.size());
  }
  return capture.take();
}

}  // namespace

Result<Calibration> calibrate(Model& model, std::span<const Token> tokens,
                              const std::function<bool(std::size_t, std::size_t)>& progress) {
  if (tokens.empty()) return fail(ErrorCode::kInvalidArgument, "no text to calibrate with");
  const ModelInfo& info = model.info();
  const PageShape shape = model.page_shape();
  const std::uint32_t sequence_max = std::min(kCalibrationTokens, info.context_max);
  SHALE_ASSIGN(const auto pool, PagePool::create(shape, (shape.pages_for(sequence_max) + 1) * shape.slab_bytes()));
  Calibrator calibrator(info.layers, info.query_heads, info.ropes[0]);
  for (std::size_t done = 0; done < tokens.size();) {
    if (progress && !progress(done, tokens.size())) return fail(ErrorCode::kCancelled, "calibration was stopped");
    const auto part = tokens.subspan(done, std::min<std::size_t>(sequence_max, tokens.size() - done));
    SHALE_ASSIGN(Observations seen, queries_of(model, *pool, part));
    const std::size_t per_head = part.size() * info.head_dim;
    model.executor().parallel_for(std::size_t{info.layers} * info.query_heads, [&](std::size_t i) {
      const std::span queries = std::span(seen.queries).subspan(i * per_head, per_head);
      const auto layer = static_cast<std::uint32_t>(i / info.query_heads);
      undo_rope(info.ropes[layer], 0, info.head_dim, queries);
      calibrator.add(layer, static_cast<std::uint32_t>(i % info.query_heads), queries, info.head_dim);
    });
    done += part.size();
  }
  return calibrator.finish();
}

}  // namespace shale
