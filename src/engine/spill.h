// A sequence's pages on a tier, while its request waits for room in the pool. Nothing here waits for the tier.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cache/cache.h"
#include "core/hash.h"
#include "paging/sequence.h"
#include "tier/tier.h"

namespace shale {

// Removes what it wrote when it goes, and waits until it is written: let go of it once poll() says that nothing is
// being written. The cache outlives it. Not thread-safe.
class SpilledSequence {
 public:
  // Copies the pages of a sequence without an overlay, ragged or not; it may then be cleared. Starts to write them to
  // the first tier that takes them, under a name that nobody else uses.
  SpilledSequence(const Sequence& sequence, Cache& cache, const Hash128& name);
  ~SpilledSequence();
  SpilledSequence(const SpilledSequence&) = delete;
  SpilledSequence& operator=(const SpilledSequence&) = delete;

  // Pages that it will take.
  std::uint32_t pages() const { return outline_.pages(); }

  // Moves the writing along, from a tier that has no room to the next one; false once nothing is being written any
  // more.
  bool poll();
  // Whether no tier took the bytes, which stay in memory.
  bool in_memory() const { return stage_ == Stage::kInMemory; }
  // The bytes are wanted: starts to read them where they are on a tier alone.
  void recall();
  // How long after they should have come the tier still owes bytes; not above 0 where it does not, or not yet.
  double overdue_s() const;
  bool late() const { return overdue_s() > 0; }
  // Where the bytes lie. Requires that they are not in memory.
  const std::string& tier_name() const { return tier().name(); }
  // Whether `restore` has what it needs.
  bool ready() const;
  // Fills an empty sequence with the same tables and the same bytes. Requires ready(). kFull: the pool has no room yet,
  // nothing changed; any other error, kCorrupt among them: the bytes are lost.
  Status restore(Sequence& sequence);

 private:
  struct Part {
    BlobId id;
    Hash128 checksum;
    BlobBytes bytes = {};  // none while they are on the tier alone
    std::shared_ptr<TierWrite> write = {};
    std::shared_ptr<TierRead> read = {};
  };
  enum class Stage { kWriting, kStored, kInMemory };
  void write_parts();
  void remove_parts();

  Tier& tier() const { return *cache_.tiers()[tier_]; }

  Sequence::Outline outline_;
  Cache& cache_;
  const Hash128 name_;
  std::uint32_t tier_ = 0;  // where it is; none where it is beyond the last
  Stage stage_ = Stage::kInMemory;
  bool recalled_ = false;
  double late_at_s_ = 0;
  std::vector<Part> parts_;
};

}  // namespace shale
