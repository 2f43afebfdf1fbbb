#include "paging/page_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <limits>
#include <set>
#include <vector>

#include "core/huge_pages.h"

namespace shale {
namespace {

enum class SlabState : std::uint8_t { kFree, kWhole, kSplit };

struct Slab {
  SlabState state = SlabState::kFree;
  std::uint32_t references = 0;           // while whole
  std::vector<std::uint32_t> free_pages;  // while split: indices within the slab, a stack
};

}  // namespace

struct PagePool::State {
  std::byte* arena = nullptr;
  std::size_t arena_bytes = 0;
  std::vector<Slab> slabs;
  std::vector<std::uint32_t> page_references;  // of pages of split slabs, 0 elsewhere
  std::vector<SlabId> free_slabs;              // a stack
  std::set<SlabId> roomy;                      // split slabs with a free page; the lowest fills first, so others empty
  std::size_t free_split_pages = 0;

  ~State() {
    if (arena) munmap(arena, arena_bytes);
  }
};

Result<std::unique_ptr<PagePool>> PagePool::create(const PageShape& shape, std::size_t bytes) {
  const bool tokens_ok =
      shape.page_tokens == 8 || shape.page_tokens == 16 || shape.page_tokens == 32 || shape.page_tokens == 64;
  if (!tokens_ok)
    return fail(ErrorCode::kInvalidArgument, "a page holds 8, 16, 32 or 64 tokens, not {}", shape.page_tokens);
  if (shape.layers == 0 || shape.kv_heads == 0 || shape.head_dim == 0 || shape.head_dim % 8 != 0) {
    return fail(
        ErrorCode::kInvalidArgument,
        "pages of {} layers, {} KV heads, head dimension {}: none may be zero and the last must be a multiple of 8",
        shape.layers, shape.kv_heads, shape.head_dim);
  }
  const std::size_t slabs = std::max<std::size_t>(1, bytes / shape.slab_bytes());
  if (slabs > std::numeric_limits<PageId>::max() / shape.pages_per_slab()) {
    return fail(ErrorCode::kInvalidArgument, "a pool of {} slabs has more pages than can be numbered", slabs);
  }
  auto state = std::make_unique<State>();
  state->arena_bytes = slabs * shape.slab_bytes();
  void* arena =
      mmap(nullptr, state->arena_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (arena == MAP_FAILED) {
    return fail(ErrorCode::kIo, "cannot reserve {} bytes for the page pool: {}", state->arena_bytes,
                std::strerror(errno));
  }
  state->arena = static_cast<std::byte*>(arena);
  prefer_huge_pages(arena, state->arena_bytes);
  state->slabs.resize(slabs);
  state->page_references.resize(slabs * shape.pages_per_slab());
  for (std::size_t slab = slabs; slab-- > 0;) state->free_slabs.push_back(static_cast<SlabId>(slab));
  return std::unique_ptr<PagePool>(new PagePool(shape, std::move(state)));
}

PagePool::PagePool(const PageShape& shape, std::unique_ptr<State> state) : shape_(shape), state_(std::move(state)) {}
PagePool::~PagePool() = default;

std::uint32_t PagePool::slabs_total() const { return static_cast<std::uint32_t>(state_->slabs.size()); }
std::uint32_t PagePool::slabs_free() const { return static_cast<std::uint32_t>(state_->free_slabs.size()); }
std::uint32_t PagePool::pages_free() const {
  return slabs_free() * shape_.pages_per_slab() + static_cast<std::uint32_t>(state_->free_split_pages);
}

Result<SlabId> PagePool::allocate_slab() {
  if (state_->free_slabs.empty())
    return fail(ErrorCode::kFull, "the page pool's {} slabs are all in use", slabs_total());
  const SlabId slab = state_->free_slabs.back();
  state_->free_slabs.pop_back();
  state_->slabs[slab].state = SlabState::kWhole;
  state_->slabs[slab].references = 1;
  return slab;
}

Result<PageId> PagePool::allocate_page() {
  if (state_->roomy.empty()) {
    SHALE_ASSIGN(const SlabId fresh, allocate_slab());
    Slab& slab = state_->slabs[fresh];
    slab.state = SlabState::kSplit;
    slab.references = 0;
    for (std::uint32_t index = shape_.pages_per_slab(); index-- > 0;) slab.free_pages.push_back(index);
    state_->free_split_pages += shape_.pages_per_slab();
    state_->roomy.insert(fresh);
  }
  const SlabId id = *state_->roomy.begin();
  Slab& slab = state_->slabs[id];
  const PageId page = page_of(id, slab.free_pages.back());
  slab.free_pages.pop_back();
  --state_->free_split_pages;
  if (slab.free_pages.empty()) state_->roomy.erase(id);
  state_->page_references[page] = 1;
  return page;
}

void PagePool::retain_slab(SlabId id) {
  assert(state_->slabs[id].state == SlabState::kWhole);
  ++state_->slabs[id].references;
}

void PagePool::release_slab(SlabId id) {
  Slab& slab = state_->slabs[id];
  assert(slab.state == SlabState::kWhole && slab.references > 0);
  if (--slab.references > 0) return;
  slab.state = SlabState::kFree;
  state_->free_slabs.push_back(id);
}

void PagePool::retain_page(PageId page) {
  assert(is_split(slab_of(page)) && state_->page_references[page] > 0);
  ++state_->page_references[page];
}

void PagePool::release_page(PageId page) {
  const SlabId id = slab_of(page);
  assert(is_split(id) && state_->page_references[page] > 0);
  if (--state_->page_references[page] > 0) return;
  Slab& slab = state_->slabs[id];
  slab.free_pages.push_back(page - page_of(id, 0));
  ++state_->free_split_pages;
  if (slab.free_pages.size() < shape_.pages_per_slab()) {
    state_->roomy.insert(id);
    return;
  }
  state_->roomy.erase(id);
  state_->free_split_pages -= slab.free_pages.size();
  slab.free_pages = {};
  slab.state = SlabState::kFree;
  state_->free_slabs.push_back(id);
}

void PagePool::split_slab(SlabId id) {
  Slab& slab = state_->slabs[id];
  assert(slab.state == SlabState::kWhole && slab.references == 1);
  slab.state = SlabState::kSplit;
  slab.references = 0;
  for (std::uint32_t index = 0; index < shape_.pages_per_slab(); ++index)
    state_->page_references[page_of(id, index)] = 1;
}

bool PagePool::is_split(SlabId slab) const { return state_->slabs[slab].state == SlabState::kSplit; }

std::uint32_t PagePool::references(SlabId slab) const { return state_->slabs[slab].references; }

std::uint32_t PagePool::page_references(PageId page) const {
  const SlabId slab = slab_of(page);
  return is_split(slab) ? state_->page_references[page] : references(slab);
}

std::span<const std::byte> PagePool::bytes(PageId page) const {
  return {state_->arena + page * shape_.page_bytes(), shape_.page_bytes()};
}

std::span<std::byte> PagePool::writable_bytes(PageId page) {
  assert(page_references(page) == 1);
  return {state_->arena + page * shape_.page_bytes(), shape_.page_bytes()};
}

PageView PagePool::page(PageId page) const {
  assert(shape_.element == PageElement::kHalf);
  return PageView::of(bytes(page).data(), shape_);
}

MutablePageView PagePool::writable_page(PageId page) {
  assert(shape_.element == PageElement::kHalf);
  return MutablePageView::of(writable_bytes(page).data(), shape_);
}

void PagePool::copy_slab(SlabId from, SlabId to) {
  std::memcpy(writable_bytes(page_of(to, 0)).data(), bytes(page_of(from, 0)).data(), shape_.slab_bytes());
}

void PagePool::copy_page(PageId from, PageId to) {
  std::memcpy(writable_bytes(to).data(), bytes(from).data(), shape_.page_bytes());
}

Status PagePool::check_integrity() const {
  std::size_t free_slabs = 0, free_split_pages = 0;
  for (SlabId id = 0; id < slabs_total(); ++id) {
    const Slab& slab = state_->slabs[id];
    if ((slab.references > 0) != (slab.state == SlabState::kWhole)) {
      return fail(ErrorCode::kInternal, "slab {} has {} references in state {}", id, slab.references,
                  static_cast<int>(slab.state));
    }
    std::size_t unused = 0;
    for (std::uint32_t index = 0; index < shape_.pages_per_slab(); ++index) {
      unused += state_->page_references[page_of(id, index)] == 0;
    }
    const bool split = slab.state == SlabState::kSplit;
    if (unused != (split ? slab.free_pages.size() : shape_.pages_per_slab())) {
      return fail(ErrorCode::kInternal, "slab {} has {} unreferenced pages, {} in its free list", id, unused,
                  slab.free_pages.size());
    }
    for (const std::uint32_t index : slab.free_pages) {
      if (state_->page_references[page_of(id, index)] != 0) {
        return fail(ErrorCode::kInternal, "page {} is free and referenced", page_of(id, index));
      }
    }
    if (state_->roomy.contains(id) != !slab.free_pages.empty()) {
      return fail(ErrorCode::kInternal, "slab {} is listed as roomy with {} free pages", id, slab.free_pages.size());
    }
    if (split && unused == shape_.pages_per_slab()) return fail(ErrorCode::kInternal, "slab {} is split and empty", id);
    free_slabs += slab.state == SlabState::kFree;
    free_split_pages += slab.free_pages.size();
  }
  if (std::set(state_->free_slabs.begin(), state_->free_slabs.end()).size() != free_slabs ||
      state_->free_slabs.size() != free_slabs) {
    return fail(ErrorCode::kInternal, "{} slabs are free, {} in the free list", free_slabs, state_->free_slabs.size());
  }
  if (free_split_pages != state_->free_split_pages) {
    return fail(ErrorCode::kInternal, "{} pages of split slabs are free, {} counted", free_split_pages,
                state_->free_split_pages);
  }
  return {};
}

}  // namespace shale
