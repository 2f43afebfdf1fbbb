// The frame of files that hold numbers of one model (docs/formats/calibration.md, cachegen_tables.md): what they are,
// a checksum, the model's fingerprint and three dimensions, then the numbers. Little-endian.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/hash.h"

namespace shale {

// What a file is: eight bytes of magic, the last two a version and a line break; and for messages, "calibration".
struct ModelTableKind {
  std::string_view magic, name;
};

struct ModelTable {
  std::array<std::uint32_t, 3> dimensions = {};
  std::span<const std::byte> numbers;
};

std::vector<std::byte> serialize_model_table(const ModelTableKind& kind, const Hash128& model, const ModelTable& table);

// The table, whose numbers point into `bytes`. kCorrupt for bytes that are damaged, no such table, or whose length is
// not the product of the dimensions (each at most `dimension_max`) times `bytes_each`; kMismatch for another version,
// or another model's.
Result<ModelTable> parse_model_table(const ModelTableKind& kind, std::span<const std::byte> bytes, const Hash128& model,
                                     std::uint32_t dimension_max, std::size_t bytes_each);

}  // namespace shale
