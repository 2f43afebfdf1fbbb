#include "runtime/engine_stack.h"

#include <utility>

namespace shale {

Result<std::unique_ptr<EngineStack>> EngineStack::open(Model& model, const Tokenizer& tokenizer,
                                                       EngineStackOptions options, std::vector<StoreTier> tiers,
                                                       std::unique_ptr<MetadataStore> metadata_store,
                                                       const Clock& clock) {
  std::unique_ptr<EngineStack> stack(new EngineStack);
  SHALE_ASSIGN(stack->pool_, PagePool::create(model.page_shape(), options.pool_bytes));
  ModelTraits traits = model.info().traits();
  traits.calibration = options.cache.model.calibration;
  options.cache.model = traits;
  options.cache.quick_answers = model.has_quick();
  SHALE_ASSIGN(stack->cache_, Cache::open(std::move(options.cache), {model.fingerprint(), model.info().name},
                                          *stack->pool_, std::move(tiers), std::move(metadata_store), clock));
  stack->engine_ = std::make_unique<Engine>(options.engine, model, tokenizer, *stack->cache_, clock);
  return stack;
}

void EngineStack::empty_pool() {
  cache_->drain(engine_->model().executor());
  cache_->evict_until_free(pool_->blocks_total());
}

}  // namespace shale
