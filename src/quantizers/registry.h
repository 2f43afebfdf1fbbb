// The quantizers there are, made by files of quantizers/; adding one adds its file and its line here.
#pragma once

#include <array>
#include <memory>
#include <string_view>

#include "quantizers/quantizer.h"

// Alphabetical.
#define SHALE_QUANTIZERS(X) \
  X(cachegen)               \
  X(int8)                   \
  X(kivi2)                  \
  X(kivi4)                  \
  X(layered)                \
  X(layered2)               \
  X(none)                   \
  X(turboquant2)            \
  X(turboquant3)            \
  X(turboquant4)

namespace shale {

// Defined by the quantizer's file: make_int8 and so on. Tables are read by those that need them; null: generic ones.
#define SHALE_DECLARE(name) std::unique_ptr<Quantizer> make_##name(const CachegenTables* tables);
SHALE_QUANTIZERS(SHALE_DECLARE)
#undef SHALE_DECLARE

struct QuantizerEntry {
  std::string_view name;
  std::unique_ptr<Quantizer> (*make)(const CachegenTables*);
};

#define SHALE_ENTRY(name) QuantizerEntry{#name, make_##name},
inline constexpr auto kQuantizers = std::to_array<QuantizerEntry>({SHALE_QUANTIZERS(SHALE_ENTRY)});
#undef SHALE_ENTRY

}  // namespace shale
