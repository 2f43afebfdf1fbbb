#include "engine/spans/span_compression.h"

#include <utility>

namespace shale {

SpanCompression::SpanCompression(Cache& cache, NewRun run, const Sequence& exact, RunCompressor compressor)
    : cache_(cache), run_(std::move(run)), exact_(exact), result_(cache.pool()), compressor_(std::move(compressor)) {}

Result<std::unique_ptr<SpanCompression>> SpanCompression::start(Cache& cache, NewRun run, const Sequence& exact) {
  const std::uint32_t tokens = exact.length() - run.first;
  SHALE_ASSIGN(RunCompressor compressor,
               RunCompressor::start(cache.codec(), exact, run.first, tokens, *run.method, run.statistics));
  return std::unique_ptr<SpanCompression>(new SpanCompression(cache, std::move(run), exact, std::move(compressor)));
}

std::uint32_t SpanCompression::blocks_needed() const {
  return compressor_ || expander_ ? 0 : cache_.pool().shape().pages_for(exact_.length() - run_.first) + 1;
}

Result<bool> SpanCompression::step(Executor& executor) {
  if (compressor_) {
    SHALE_ASSIGN(const bool more, compressor_->step(executor));
    if (!more) {
      compressed_ = compressor_->finish();
      compressor_.reset();
    }
    return true;
  }
  if (!expander_) {
    if (run_.first > 0) result_.adopt_prefix(exact_.blocks(run_.first), run_.first);
    SHALE_ASSIGN(expander_, cache_.expand(compressed_, run_.keep, result_));
  }
  return expander_->step(executor);
}

}  // namespace shale
