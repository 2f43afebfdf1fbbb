// What all users of a shared tier must have alike and each would find out by measuring: the first one's word holds.
#pragma once

#include <string>
#include <string_view>

#include "core/error.h"
#include "core/hash.h"
#include "tier/tier.h"

namespace shale {

inline constexpr std::size_t kAgreementBytesMax = 4096;

// Whether a blob is such a word, which is no part of an extent.
bool is_agreement(const BlobId& id);

// What whoever came first said about `matter`: `mine`, of 1 to kAgreementBytesMax bytes, where nobody did. Blocks. As
// the tier's errors; kCorrupt where something else lies there.
Result<std::string> agree(Tier& tier, const Hash128& matter, std::string_view mine);

}  // namespace shale
