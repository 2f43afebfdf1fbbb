#include "engine/block_manager.h"

#include <algorithm>

#include "engine/spans/repetition.h"

namespace shale {
namespace {

constexpr std::uint64_t kLoadsAlways = 2;  // whatever share of the pool they need

}  // namespace

// All its tokens, one block more for a shared last block that is copied, and while a method that the request names is
// applied a second copy of the prompt, or before that its repetition.
std::uint32_t BlockManager::blocks_max(const RequestState& run) const {
  const PageShape& shape = cache_.pool().shape();
  const std::uint32_t whole =
      shape.pages_for(static_cast<std::uint32_t>(std::min<std::uint64_t>(run.tokens_max(), model_.context_max))) + 1;
  const auto prompt = static_cast<std::uint32_t>(run.prompt.size());
  if (run.budget) {
    const KvBudgetOptions& budget = run.budget->options();
    // Layers with a window keep the prompt until it is computed, and later what came between two looks behind it.
    const std::uint32_t window = std::ranges::max(model_.windows);
    const std::uint32_t prefill = budget.prefill == BudgetPrefill::kWhole || window > 0
                                      ? prompt
                                      : std::min(prompt, run.budget->tokens() + chunk_tokens_);
    const std::uint32_t sliding = window > 0 ? window + kWindowInterval + shape.block_size : 0;
    return std::min(whole, shape.pages_for(std::max({prefill, sliding, run.budget->decoding_max()})) + 2);
  }
  if (!run.request.policy.named()) return whole;
  const auto needs = cache_.needs(*run.request.policy.method);
  const std::uint32_t repeated = needs && needs->repeat_attention ? repetition_tokens_max(prompt) : 0;
  return whole + shape.pages_for(std::max(prompt, repeated)) + 1;
}

std::uint32_t BlockManager::blocks_to_begin(const RequestState& run) const {
  if (run.spilled) return cache_.pool().shape().blocks_for_pages(run.spilled->pages());
  if (run.budget || run.request.policy.named()) return blocks_max(run);
  return cache_.pool().shape().pages_for(static_cast<std::uint32_t>(run.known())) + 1;
}

// That it is sure of while its prompt is computed, and does not hold yet. Where what was loaded has dropped tokens,
// that is what is left to compute; as long as loading may fail, all of it. What another loads for it, too, is held by
// that one.
std::uint32_t BlockManager::blocks_missing(const RequestState& run) const {
  const PageShape& shape = cache_.pool().shape();
  const std::uint32_t held =
      shape.blocks_for_pages(run.sequence.pages()) + run.retrieval.blocks_held() + shape.pages_for(run.awaits.tokens);
  const std::uint32_t all = blocks_to_begin(run), missing = all - std::min(all, held);
  if (run.budget || run.request.policy.named() || run.bytes_missing()) return missing;
  return std::min(missing, shape.pages_for(static_cast<std::uint32_t>(run.known()) - run.sequence.length()) + 1);
}

bool BlockManager::fits(const RequestState& run, std::span<const std::unique_ptr<RequestState>> running,
                        std::uint32_t margin) const {
  std::uint64_t needed = blocks_to_begin(run) + margin;
  for (const auto& each : running) {
    if (!each->over && each->prefilling()) needed += blocks_missing(*each);
  }
  // Decoding runs have the rest of their last block, and what is free when it is full.
  const PagePool& pool = cache_.pool();
  const std::uint32_t shared =
      run.spilled || !run.request.use_cache ? 0 : cache_.pool_blocks_in_use(run.prompt, run.request.policy);
  needed -= std::min<std::uint64_t>(needed, std::max(shared, pool.shape().pages_for(run.awaits.tokens)));
  if (needed <= pool.blocks_free()) return true;
  return needed <= std::uint64_t{pool.blocks_free()} + cache_.blocks_evictable() + cache_.blocks_waiting_to_be_stored();
}

bool BlockManager::may_load(const RequestState& run, std::span<const std::unique_ptr<RequestState>> running) const {
  std::uint64_t loads = 0, loading = 0;
  for (const auto& each : running) {
    if (each->over || !each->fetching() || each->awaits_all()) continue;
    loads += each->asking || each->awaiting() || each->bytes_missing() ? 1 : 0;
    loading += blocks_to_begin(*each);
  }
  if (loads < kLoadsAlways) return true;
  const std::uint32_t block = cache_.pool().shape().block_size;
  const bool uses_pool = run.request.use_cache && !run.request.policy.named();
  const std::uint32_t pooled = uses_pool ? cache_.pool_prefix(run.prompt, run.request.policy.salt) / block : 0;
  const std::uint32_t whole = blocks_to_begin(run), missing = whole - std::min(whole, pooled);
  return 4 * missing <= whole || 2 * (loading + missing) <= cache_.pool().blocks_total();
}

// Into single pages, where too few blocks are whole. Prefixes of the run are not kept from then on. What is being
// loaded, or is to be compressed by the method that the request names, is read block by block.
bool BlockManager::append_scattered(RequestState& run, std::uint32_t tokens) {
  const PagePool& pool = cache_.pool();
  const bool scattered = pool.pages_free() >= (pool.shape().pages_for(tokens) + 1) * pool.shape().pages_per_block();
  const bool needs_blocks = run.loading() || (run.request.policy.named() && !run.sequence.lossy());
  if (!scattered || needs_blocks || run.sequence.ragged() || run.sequence.has_overlay()) return false;
  run.sequence.part();
  return run.sequence.append(tokens).has_value();
}

bool BlockManager::append(RequestState& run, std::uint32_t tokens) {
  if (run.sequence.append(tokens)) return true;
  const std::uint32_t blocks = cache_.pool().shape().pages_for(tokens) + 1;
  static_cast<void>(cache_.evict_until_free(blocks));
  while (!run.sequence.append(tokens) && !append_scattered(run, tokens)) {
    if (!give_up_one(blocks)) return false;
  }
  return true;
}

bool BlockManager::ensure_free(std::uint32_t blocks) {
  if (cache_.evict_until_free(blocks)) return true;
  if (cache_.blocks_free_without_storing(storing_.blocks_repeated()) < blocks) return false;
  while (cache_.pool().blocks_free() < blocks) {
    if (!give_up_one(blocks)) return false;
  }
  return true;
}

bool BlockManager::give_up_one(std::uint32_t blocks) {
  if (!storing_.give_up_repeating() && !cache_.give_up_storing()) return false;
  static_cast<void>(cache_.evict_until_free(blocks));
  return true;
}

void BlockManager::ensure_owned(const Sequence& sequence) {
  const PagePool& pool = cache_.pool();
  const std::uint32_t single = pool.pages_free() - pool.blocks_free() * pool.shape().pages_per_block();
  const std::uint32_t pages = sequence.pages_to_own();
  const std::uint32_t blocks = pool.shape().blocks_for_pages(pages - std::min(pages, single));
  if (!cache_.evict_if_enough(blocks)) cache_.give_up(sequence.shared_blocks());
}

}  // namespace shale
