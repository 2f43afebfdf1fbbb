#include <algorithm>
#include <cmath>

#include "store/store_save.h"

namespace shale {

std::uint64_t SaveJob::Plan::tag(std::uint32_t block) const {
  const std::uint64_t tag = chunk_tag(keys[block], realm);
  if (hints.method.is_full()) return tag;
  const auto keep = static_cast<std::uint64_t>(std::lround(1e6 * grid_keep(hints.keep)));
  return tag ^ Hasher().add(hints.method.text()).add(keep).finish().low;
}

void plan_pieces(StoreCore& core, SaveJob::Plan& plan) {
  const std::span<const BlockKey> keys = plan.keys;
  const auto end = static_cast<std::uint32_t>(keys.size());
  const std::uint32_t chunk = core.chunk_blocks();
  SpanFilter filter{.wall_s = core.wall_s()};
  if (!plan.hints.method.is_full()) {
    filter.only_named = true;
    filter.method = core.index.text(plan.hints.method.text());
    filter.keep = static_cast<float>(grid_keep(plan.hints.keep));
  }
  // How many blocks from `block` on are there, or being saved.
  const auto there = [&](std::uint32_t block) -> std::uint32_t {
    std::uint32_t alike = 0;
    if (const auto saving = core.saving.find(plan.tag(block)); saving != core.saving.end()) {
      const auto differ = std::ranges::mismatch(saving->second, keys.subspan(block)).in1;
      alike = static_cast<std::uint32_t>(differ - saving->second.begin());
    }
    const auto spans = core.index.match(keys.subspan(block), plan.realm, filter);
    return spans.empty() ? alike : std::max(alike, spans.back().first_block + spans.back().blocks);
  };
  // From the chain's start, so that a view that begins inside a chunk that is there goes on where that ends.
  std::uint32_t block = std::max(plan.view_block, there(0));
  while (block < end) {
    if (const std::uint32_t known = there(block); known > 0) {
      block += known;
      continue;
    }
    std::uint32_t stop = std::min(end, block + kChunksMax * chunk);
    const auto boundary = std::ranges::upper_bound(plan.hints.boundaries, block);
    if (boundary != plan.hints.boundaries.end()) stop = std::min(stop, *boundary);
    SaveJob::Plan::Piece piece{block, std::min(chunk, stop - block)};
    while (block + piece.blocks < stop && there(block + piece.blocks) == 0) {
      piece.blocks = std::min(piece.blocks + chunk, stop - block);
    }
    plan.pieces.push_back(piece);
    block += piece.blocks;
  }
  for (const auto& piece : plan.pieces) {
    for (std::uint32_t b = 0; b < piece.blocks; b += chunk) {
      const auto blocks = keys.subspan(piece.first_block + b, std::min(chunk, piece.blocks - b));
      core.saving[plan.tag(piece.first_block + b)].assign(blocks.begin(), blocks.end());
    }
  }
}

void forget_saving(StoreCore& core, const SaveJob::Plan& plan, const SaveJob::Plan::Piece& piece) {
  for (std::uint32_t b = 0; b < piece.blocks; b += core.chunk_blocks()) {
    core.saving.erase(plan.tag(piece.first_block + b));
  }
}

}  // namespace shale
