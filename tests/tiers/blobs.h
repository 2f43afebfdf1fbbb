// Blobs whose bytes follow from their name and size, so that a test can tell whether what it reads is whole.
#pragma once

#include <cstring>
#include <memory>

#include "tier/tier.h"

namespace shale::testing {

inline BlobId blob_id(std::uint64_t object, std::uint32_t part) {
  return {{object * 0x9e3779b97f4a7c15u, ~object}, part};
}

inline BlobBytes blob_bytes(const BlobId& id, std::size_t size) {
  auto bytes = std::make_shared<AlignedBuffer>(size);
  std::uint64_t state = id.object.high ^ (std::uint64_t{id.part} << 32) ^ size;
  for (std::size_t i = 0; i < size; i += sizeof state) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    std::memcpy(bytes->data() + i, &state, std::min(sizeof state, size - i));
  }
  return bytes;
}

inline bool same_bytes(const AlignedBuffer& a, const AlignedBuffer& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

inline ErrorCode code_of(const auto& result) { return result ? ErrorCode::kInternal : result.error().code; }

}  // namespace shale::testing
