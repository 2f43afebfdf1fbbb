#include "engine/spill.h"

#include <algorithm>
#include <utility>

#include "cache/retrieval.h"

namespace shale {
namespace {

constexpr std::size_t kPartBytes = std::size_t{4} << 20;

std::size_t pages_per_part(const PageShape& shape) { return std::max<std::size_t>(1, kPartBytes / shape.page_bytes()); }

}  // namespace

SpilledSequence::SpilledSequence(const Sequence& sequence, Cache& cache, const Hash128& name)
    : outline_(sequence.outline()), cache_(cache), name_(name) {
  const std::vector<PageId> pages = sequence.page_ids();
  const PageShape& shape = sequence.pool().shape();
  const std::size_t each = pages_per_part(shape), bytes = shape.page_bytes();
  for (std::size_t first = 0; first < pages.size(); first += each) {
    const std::size_t count = std::min(each, pages.size() - first);
    auto part = std::make_shared<AlignedBuffer>(count * bytes);
    for (std::size_t i = 0; i < count; ++i) {
      sequence.pool().copy_out(pages[first + i], part->bytes().subspan(i * bytes, bytes));
    }
    sequence.pool().fence();
    const BlobId id{name, static_cast<std::uint32_t>(parts_.size())};
    parts_.push_back({.id = id, .checksum = hash128(part->bytes()), .bytes = std::move(part)});
  }
  write_parts();
}

// What is being written when it is removed would come back.
SpilledSequence::~SpilledSequence() {
  for (Part& part : parts_) {
    if (part.write) static_cast<void>(part.write->wait());
  }
  remove_parts();
}

void SpilledSequence::write_parts() {
  stage_ = Stage::kInMemory;
  const auto takes_it = [this] {
    if (tier().trouble()) return false;  // it may never answer
    std::uint64_t bytes = 0;
    for (const Part& part : parts_) bytes += tier().stored_bytes(part.bytes->size());
    return cache_.store().begin_own(tier_, name_, bytes);
  };
  while (tier_ < cache_.tiers().size() && !takes_it()) ++tier_;
  if (tier_ == cache_.tiers().size()) return;
  stage_ = Stage::kWriting;
  for (Part& part : parts_) part.write = tier().write(part.id, part.bytes);
}

void SpilledSequence::remove_parts() {
  if (stage_ != Stage::kInMemory) cache_.store().end_own(tier_, name_);
}

bool SpilledSequence::poll() {
  if (stage_ != Stage::kWriting) return false;
  if (!std::ranges::all_of(parts_, [](const Part& part) { return part.write->ready(); })) return true;
  bool stored = true;
  for (Part& part : parts_) stored = std::exchange(part.write, nullptr)->wait() && stored;
  if (!stored) {
    remove_parts();
    ++tier_;
    write_parts();
    return stage_ == Stage::kWriting;
  }
  stage_ = Stage::kStored;
  cache_.store().written_own(tier_, name_);
  for (Part& part : parts_) {
    if (!recalled_) part.bytes = nullptr;
  }
  return false;
}

void SpilledSequence::recall() {
  if (std::exchange(recalled_, true)) return;
  double expected_s = 0;
  for (Part& part : parts_) {
    if (part.bytes) continue;
    part.read = tier().read(part.id, kPartBytes);
    expected_s = tier().read_eta_s(0);
  }
  late_at_s_ = cache_.clock().now_s() + late_after_s(expected_s);
}

double SpilledSequence::overdue_s() const { return recalled_ && !ready() ? cache_.clock().now_s() - late_at_s_ : 0; }

bool SpilledSequence::ready() const {
  return recalled_ &&
         std::ranges::all_of(parts_, [](const Part& part) { return part.bytes || (part.read && part.read->ready()); });
}

Status SpilledSequence::restore(Sequence& sequence) {
  for (Part& part : parts_) {
    if (part.bytes) continue;
    SHALE_ASSIGN(part.bytes, std::exchange(part.read, nullptr)->take());
    if (hash128(part.bytes->bytes()) == part.checksum) continue;
    return fail(ErrorCode::kCorrupt, "part {} of a sequence on the {} tier is damaged", part.id.part, tier().name());
  }
  SHALE_TRY(sequence.lay_out(outline_));
  const std::vector<PageId> pages = sequence.page_ids();
  PagePool& pool = sequence.pool();
  const std::size_t bytes = pool.shape().page_bytes();
  std::size_t page = 0;
  for (const Part& part : parts_) {
    for (std::size_t at = 0; at < part.bytes->size(); at += bytes, ++page) {
      pool.copy_in(part.bytes->bytes().subspan(at, bytes), pages[page]);
    }
    pool.fence();
  }
  return {};
}

}  // namespace shale
