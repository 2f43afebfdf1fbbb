#include "paging/page_pool.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <set>
#include <vector>

namespace shale {
namespace {

enum class BlockState : std::uint8_t { kFree, kWhole, kSplit };

struct Block {
  BlockState state = BlockState::kFree;
  std::vector<std::uint32_t> free_pages;  // while split: indices within the block, a stack
};

}  // namespace

struct PagePool::State {
  std::vector<Block> blocks;
  std::vector<std::uint32_t> references;  // of whole blocks, 0 elsewhere; by themselves, since forks count them all
  std::vector<std::uint32_t> page_references;  // of pages of split blocks, 0 elsewhere
  std::vector<PoolBlockId> free_blocks;        // a stack
  std::set<PoolBlockId> roomy;                 // split blocks with a free page; the lowest fills first, so others empty
  std::size_t free_split_pages = 0;
  std::uint64_t sharings = 0;
};

Result<std::unique_ptr<PagePool>> PagePool::create(const PageShape& shape, std::size_t bytes, const Device& device) {
  const bool tokens_ok =
      shape.block_size == 8 || shape.block_size == 16 || shape.block_size == 32 || shape.block_size == 64;
  if (!tokens_ok)
    return fail(ErrorCode::kInvalidArgument, "a page holds 8, 16, 32 or 64 tokens, not {}", shape.block_size);
  if (shape.layers == 0 || shape.kv_heads == 0 || shape.head_dim == 0 || shape.head_dim % 8 != 0) {
    return fail(
        ErrorCode::kInvalidArgument,
        "pages of {} layers, {} KV heads, head dimension {}: none may be zero and the last must be a multiple of 8",
        shape.layers, shape.kv_heads, shape.head_dim);
  }
  const std::size_t blocks = std::max<std::size_t>(1, bytes / shape.block_bytes());
  if (blocks > std::numeric_limits<PageId>::max() / shape.pages_per_block()) {
    return fail(ErrorCode::kInvalidArgument, "a pool of {} blocks has more pages than can be numbered", blocks);
  }
  SHALE_ASSIGN(auto memory, device.allocate(blocks * shape.block_bytes()));
  auto state = std::make_unique<State>();
  state->blocks.resize(blocks);
  state->references.resize(blocks);
  state->page_references.resize(blocks * shape.pages_per_block());
  for (std::size_t block = blocks; block-- > 0;) state->free_blocks.push_back(static_cast<PoolBlockId>(block));
  return std::unique_ptr<PagePool>(new PagePool(shape, std::move(memory), std::move(state)));
}

PagePool::PagePool(const PageShape& shape, std::unique_ptr<DeviceMemory> memory, std::unique_ptr<State> state)
    : shape_(shape), memory_(std::move(memory)), state_(std::move(state)) {}
PagePool::~PagePool() = default;

std::uint32_t PagePool::blocks_total() const { return static_cast<std::uint32_t>(state_->blocks.size()); }
std::uint32_t PagePool::blocks_free() const { return static_cast<std::uint32_t>(state_->free_blocks.size()); }
std::uint32_t PagePool::pages_free() const {
  return blocks_free() * shape_.pages_per_block() + static_cast<std::uint32_t>(state_->free_split_pages);
}

Result<PoolBlockId> PagePool::allocate_block() {
  if (state_->free_blocks.empty())
    return fail(ErrorCode::kFull, "the block pool's {} blocks are all in use", blocks_total());
  const PoolBlockId block = state_->free_blocks.back();
  state_->free_blocks.pop_back();
  state_->blocks[block].state = BlockState::kWhole;
  state_->references[block] = 1;
  return block;
}

Result<PageId> PagePool::allocate_page() {
  if (state_->roomy.empty()) {
    SHALE_ASSIGN(const PoolBlockId fresh, allocate_block());
    Block& block = state_->blocks[fresh];
    block.state = BlockState::kSplit;
    state_->references[fresh] = 0;
    for (std::uint32_t index = shape_.pages_per_block(); index-- > 0;) block.free_pages.push_back(index);
    state_->free_split_pages += shape_.pages_per_block();
    state_->roomy.insert(fresh);
  }
  const PoolBlockId id = *state_->roomy.begin();
  Block& block = state_->blocks[id];
  const PageId page = page_of(id, block.free_pages.back());
  block.free_pages.pop_back();
  --state_->free_split_pages;
  if (block.free_pages.empty()) state_->roomy.erase(id);
  state_->page_references[page] = 1;
  return page;
}

void PagePool::retain_blocks(std::span<const PoolBlockId> blocks) {
  for (const PoolBlockId id : blocks) {
    assert(state_->blocks[id].state == BlockState::kWhole);
    ++state_->references[id];
  }
  state_->sharings += blocks.size();
}

void PagePool::release_blocks(std::span<const PoolBlockId> blocks) {
  for (const PoolBlockId id : blocks) {
    assert(state_->blocks[id].state == BlockState::kWhole && state_->references[id] > 0);
    if (--state_->references[id] > 0) {
      ++state_->sharings;
      continue;
    }
    state_->blocks[id].state = BlockState::kFree;
    state_->free_blocks.push_back(id);
  }
}

void PagePool::retain_page(PageId page) {
  assert(is_split(block_of(page)) && state_->page_references[page] > 0);
  ++state_->page_references[page];
  ++state_->sharings;
}

void PagePool::release_page(PageId page) {
  const PoolBlockId id = block_of(page);
  assert(is_split(id) && state_->page_references[page] > 0);
  if (--state_->page_references[page] > 0) {
    ++state_->sharings;
    return;
  }
  Block& block = state_->blocks[id];
  block.free_pages.push_back(page - page_of(id, 0));
  ++state_->free_split_pages;
  if (block.free_pages.size() < shape_.pages_per_block()) {
    state_->roomy.insert(id);
    return;
  }
  state_->roomy.erase(id);
  state_->free_split_pages -= block.free_pages.size();
  block.free_pages = {};
  block.state = BlockState::kFree;
  state_->free_blocks.push_back(id);
}

void PagePool::split_block(PoolBlockId id) {
  Block& block = state_->blocks[id];
  assert(block.state == BlockState::kWhole && state_->references[id] == 1);
  block.state = BlockState::kSplit;
  state_->references[id] = 0;
  for (std::uint32_t index = 0; index < shape_.pages_per_block(); ++index)
    state_->page_references[page_of(id, index)] = 1;
}

bool PagePool::is_split(PoolBlockId block) const { return state_->blocks[block].state == BlockState::kSplit; }

std::uint32_t PagePool::references(PoolBlockId block) const { return state_->references[block]; }
std::uint64_t PagePool::sharings() const { return state_->sharings; }

std::uint32_t PagePool::page_references(PageId page) const {
  const PoolBlockId block = block_of(page);
  return is_split(block) ? state_->page_references[page] : references(block);
}

void PagePool::copy_block(PoolBlockId from, PoolBlockId to) {
  assert(references(to) == 1);
  memory_->copy_within(from * shape_.block_bytes(), to * shape_.block_bytes(), {.bytes = shape_.block_bytes()});
}

void PagePool::copy_page(PageId from, PageId to) {
  assert(page_references(to) == 1);
  memory_->copy_within(from * shape_.page_bytes(), to * shape_.page_bytes(), {.bytes = shape_.page_bytes()});
}

void PagePool::copy_tokens(PageId from, std::uint32_t from_slot, PageId to, std::uint32_t to_slot,
                           std::uint32_t count) {
  assert(page_references(to) == 1 && std::max(from_slot, to_slot) + count <= shape_.block_size);
  for (const PagePlane& plane : shape_.planes()) {
    memory_->copy_within(from * shape_.page_bytes() + plane.offset + from_slot * plane.token_bytes,
                         to * shape_.page_bytes() + plane.offset + to_slot * plane.token_bytes,
                         {.bytes = count * plane.token_bytes, .count = plane.rows, .stride = plane.stride});
  }
}

void PagePool::copy_in(std::span<const std::byte> from, PageId to) {
  assert(page_references(to) == 1 && from.size() == shape_.page_bytes());
  memory_->copy_in(from, to * shape_.page_bytes());
}

void PagePool::copy_out(PageId from, std::span<std::byte> to) const {
  assert(to.size() == shape_.page_bytes());
  memory_->copy_out(from * shape_.page_bytes(), to);
}

Status PagePool::check_integrity() const {
  std::size_t free_blocks = 0, free_split_pages = 0;
  for (PoolBlockId id = 0; id < blocks_total(); ++id) {
    const Block& block = state_->blocks[id];
    const std::uint32_t references = state_->references[id];
    if ((references > 0) != (block.state == BlockState::kWhole)) {
      return fail(ErrorCode::kInternal, "block {} has {} references in state {}", id, references,
                  static_cast<int>(block.state));
    }
    std::size_t unused = 0;
    for (std::uint32_t index = 0; index < shape_.pages_per_block(); ++index) {
      unused += state_->page_references[page_of(id, index)] == 0;
    }
    const bool split = block.state == BlockState::kSplit;
    if (unused != (split ? block.free_pages.size() : shape_.pages_per_block())) {
      return fail(ErrorCode::kInternal, "block {} has {} unreferenced pages, {} in its free list", id, unused,
                  block.free_pages.size());
    }
    for (const std::uint32_t index : block.free_pages) {
      if (state_->page_references[page_of(id, index)] != 0) {
        return fail(ErrorCode::kInternal, "page {} is free and referenced", page_of(id, index));
      }
    }
    if (state_->roomy.contains(id) != !block.free_pages.empty()) {
      return fail(ErrorCode::kInternal, "block {} is listed as roomy with {} free pages", id, block.free_pages.size());
    }
    if (split && unused == shape_.pages_per_block())
      return fail(ErrorCode::kInternal, "block {} is split and empty", id);
    free_blocks += block.state == BlockState::kFree;
    free_split_pages += block.free_pages.size();
  }
  if (std::set(state_->free_blocks.begin(), state_->free_blocks.end()).size() != free_blocks ||
      state_->free_blocks.size() != free_blocks) {
    return fail(ErrorCode::kInternal, "{} blocks are free, {} in the free list", free_blocks,
                state_->free_blocks.size());
  }
  if (free_split_pages != state_->free_split_pages) {
    return fail(ErrorCode::kInternal, "{} pages of split blocks are free, {} counted", free_split_pages,
                state_->free_split_pages);
  }
  return {};
}

}  // namespace shale
