// Names of blocks: one 32-byte key per block of a chain of tokens, made by the caller. A key stands for its block and
// for everything before it, so equal keys mean equal prefixes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/hash.h"

namespace shale {

using BlockKey = std::array<std::byte, 32>;

// What a block's key covers beside the parent and the tokens, the same for every block: an adapter's name, hashes of
// images, a salt.
using KeyExtras = std::vector<std::string>;

// Keys of the whole blocks of `tokens`, as vLLM makes them with `--prefix-caching-hash-algo sha256_cbor`:
//   key[-1] = SHA-256(CBOR(seed));  key[i] = SHA-256(CBOR([key[i - 1], [tokens of block i …], extras or null]))
// with `seed` in the place of PYTHONHASHSEED. Tokens after the last whole block have no key. `block_tokens` ≥ 1.
std::vector<BlockKey> block_keys(std::string_view seed, std::span<const std::int32_t> tokens,
                                 std::uint32_t block_tokens, const KeyExtras& extras = {});

// Likewise of tokens that follow the block `parent` of a chain without extras; zero: its first tokens.
std::vector<BlockKey> block_keys_after(std::string_view seed, const BlockKey& parent,
                                       std::span<const std::int32_t> tokens, std::uint32_t block_tokens);

// The keys under which KV computed on top of lossy blocks is saved and looked up: SHA-256(key, lineage), where
// `lineage` is StoreLoad::lineage() of those blocks. Nobody who computed on exact blocks ever meets them.
std::vector<BlockKey> lineage_keys(std::span<const BlockKey> keys, const Hash128& lineage);

}  // namespace shale
