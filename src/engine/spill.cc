#include "engine/spill.h"

#include <algorithm>

namespace shale {
namespace {

constexpr std::size_t kPartBytes = std::size_t{4} << 20;

std::vector<PageId> pages_of(const Sequence& sequence) {
  const PageShape& shape = sequence.pool().shape();
  std::vector<PageId> pages;
  for (std::uint32_t i = 0; i < shape.pages_per_slab(); ++i) {
    for (const PageSlot slot : sequence.table(i / shape.kv_heads, i % shape.kv_heads).pages) pages.push_back(slot.page);
  }
  return pages;
}

std::size_t pages_per_part(const PageShape& shape) { return std::max<std::size_t>(1, kPartBytes / shape.page_bytes()); }

Result<std::vector<Hash128>> write_parts(const Sequence& sequence, std::span<const PageId> pages, Tier& tier,
                                         const Hash128& name) {
  const PageShape& shape = sequence.pool().shape();
  const std::size_t each = pages_per_part(shape), bytes = shape.page_bytes();
  std::vector<Hash128> checksums;
  std::vector<std::shared_ptr<TierWrite>> writes;
  for (std::size_t first = 0; first < pages.size(); first += each) {
    const std::size_t count = std::min(each, pages.size() - first);
    auto part = std::make_shared<AlignedBuffer>(count * bytes);
    for (std::size_t i = 0; i < count; ++i) {
      sequence.pool().copy_out(pages[first + i], part->bytes().subspan(i * bytes, bytes));
    }
    sequence.pool().fence();
    checksums.push_back(hash128(part->bytes()));
    writes.push_back(tier.write({name, static_cast<std::uint32_t>(checksums.size() - 1)}, std::move(part)));
  }
  Status written;
  for (const auto& write : writes) {
    if (Status done = write->wait(); !done && written) written = std::move(done);
  }
  if (written) return checksums;
  for (std::uint32_t part = 0; part < writes.size(); ++part) static_cast<void>(tier.remove({name, part}));
  return std::unexpected(std::move(written).error());
}

}  // namespace

Result<SpilledSequence> SpilledSequence::write(const Sequence& sequence, std::span<const std::unique_ptr<Tier>> tiers,
                                               const Hash128& name) {
  const std::vector<PageId> pages = pages_of(sequence);
  for (const auto& tier : tiers) {
    const auto checksums = write_parts(sequence, pages, *tier, name);
    if (!checksums) continue;
    SpilledSequence spilled(sequence.outline());
    spilled.tier_ = tier.get();
    for (std::uint32_t part = 0; part < checksums->size(); ++part) {
      spilled.parts_.push_back({{name, part}, (*checksums)[part]});
    }
    return spilled;
  }
  return fail(ErrorCode::kFull, "no tier has room for the {} bytes of a sequence that should make room in the pool",
              pages.size() * sequence.pool().shape().page_bytes());
}

SpilledSequence::~SpilledSequence() {
  for (const Part& part : parts_) static_cast<void>(tier_->remove(part.id));
}

Status SpilledSequence::read(Sequence& sequence) const {
  SHALE_TRY(sequence.lay_out(outline_));
  const std::vector<PageId> pages = pages_of(sequence);
  PagePool& pool = sequence.pool();
  const std::size_t bytes = pool.shape().page_bytes(), each = pages_per_part(pool.shape());
  std::vector<std::shared_ptr<TierRead>> reads;
  for (const Part& part : parts_) reads.push_back(tier_->read(part.id));
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    const auto part = reads[p]->take();
    const std::size_t count = std::min(each, pages.size() - p * each);
    const bool whole = part && (*part)->size() == count * bytes && hash128((*part)->bytes()) == parts_[p].checksum;
    if (!whole) {
      sequence.clear();
      if (!part) return std::unexpected(part.error());
      return fail(ErrorCode::kCorrupt, "part {} of a sequence on the {} tier is damaged", p, tier_->name());
    }
    for (std::size_t i = 0; i < count; ++i) {
      pool.copy_in((*part)->bytes().subspan(i * bytes, bytes), pages[p * each + i]);
    }
    pool.fence();
  }
  return {};
}

}  // namespace shale
