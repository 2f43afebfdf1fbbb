// A sequence's pages on a tier, while its run waits for room in the pool.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/hash.h"
#include "paging/sequence.h"
#include "tier/tier.h"

namespace shale {

// Removes what it wrote when it goes. The tiers outlive it.
class SpilledSequence {
 public:
  // Copies the pages of a sequence without strata, with every token in place, to the first tier that has room, under a
  // name that nobody else uses. kFull when none has: then nothing was written. The sequence is as it was.
  static Result<SpilledSequence> write(const Sequence& sequence, std::span<const std::unique_ptr<Tier>> tiers,
                                       const Hash128& name);
  ~SpilledSequence();
  SpilledSequence(SpilledSequence&& other) noexcept = default;
  SpilledSequence& operator=(SpilledSequence&&) = delete;

  // Pages that it will take.
  std::uint32_t pages() const { return outline_.pages(); }
  // Fills an empty sequence with the same tables and the same bytes. kFull: the pool has no room yet, nothing changed;
  // any other error, kCorrupt among them: the bytes are lost.
  Status read(Sequence& sequence) const;

 private:
  struct Part {
    BlobId id;
    Hash128 checksum;
  };
  explicit SpilledSequence(Sequence::Outline outline) : outline_(std::move(outline)) {}

  Sequence::Outline outline_;
  Tier* tier_ = nullptr;
  std::vector<Part> parts_;
};

}  // namespace shale
