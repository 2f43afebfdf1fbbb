// Copies of arrays between two layouts, planned once and run for every block.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/half.h"

namespace shale {

// One dimension of an array, and how far apart its elements lie in either layout, in bytes.
struct CopyDimension {
  std::size_t extent = 1;
  std::int64_t from = 0;
  std::int64_t to = 0;

  bool operator==(const CopyDimension&) const = default;
};

// Whether the copy's bytes are soon read again, or go past the caches (then flush_stream() when all is written).
enum class CopyTo { kCache, kMemory };

// A copy of up to four dimensions, of which at most three are left once what lies together is one. Dimensions that lie
// one after another in both layouts become one run of bytes; where neither side's runs are the other's, two dimensions
// change places. Thread-safe.
class StridedCopy {
 public:
  StridedCopy() = default;  // copies nothing
  // `element_bytes` 2 or 4, or any where all of it is one run.
  StridedCopy(std::span<const CopyDimension> dimensions, std::size_t element_bytes, CopyTo to);

  void run(const std::byte* from, std::byte* to) const;
  // Does the work of `other` too, whose arrays begin so many bytes after these; false, and nothing changes, where the
  // two do not make one copy.
  bool join(const StridedCopy& other, std::int64_t from_after, std::int64_t to_after);

 private:
  static constexpr std::size_t kDimensions = 3;
  enum class Kernel { kNothing, kRuns, kTranspose };

  void widen();
  void run_kernel(const std::byte* from, std::byte* to) const;

  Kernel kernel_ = Kernel::kNothing;
  CopyTo to_ = CopyTo::kCache;
  std::size_t run_bytes_ = 0;                     // contiguous on both sides
  CopyDimension rows_;                            // of runs; of a transpose, what is contiguous in `to`
  CopyDimension columns_;                         // of a transpose, what is contiguous in `from`
  std::array<CopyDimension, kDimensions> outer_;  // what is left, those of one at the end
};

// Elements to binary16 and back, a multiple of 16 of them. What is too large for binary16 becomes its largest number;
// NaN stays NaN; to bf16 is rounded to nearest, ties to even.
void halves_of_bf16(std::span<const std::uint16_t> from, Half* to);
void halves_of_f32(std::span<const float> from, Half* to);
void bf16_of_halves(std::span<const Half> from, std::uint16_t* to);
void f32_of_halves(std::span<const Half> from, float* to);

}  // namespace shale
