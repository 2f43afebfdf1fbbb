// Calibrations and cachegen's tables: any bytes are an error, or a table that is written as it was read. By tables that
// parse, any keys and values are packed to bytes that unpack to the same codes, and any bytes unpack or are refused.
#include <algorithm>
#include <vector>

#include "core/model_table.h"
#include "input.h"
#include "quantizers/cachegen_tables.h"
#include "scoring/calibration.h"

namespace {

using namespace shale;

constexpr std::size_t kChecksum = 8, kModel = 24, kReserved = 52, kHeader = 56;  // docs/formats/calibration.md
constexpr std::uint32_t kTokens = kBlockTokens + 5;

// Gives a table the checksum that it would have, so that damage is seen by the checks behind it; and says whose it is.
Hash128 seal_table(std::span<std::byte> bytes) {
  Hash128 model;
  if (bytes.size() < kHeader) return model;
  std::memcpy(&model.high, &bytes[kModel], 8);
  std::memcpy(&model.low, &bytes[kModel + 8], 8);
  std::ranges::fill(bytes.subspan(kReserved, kHeader - kReserved), std::byte{0});
  const Hash128 sum = hash128(bytes.subspan(kModel));
  std::memcpy(&bytes[kChecksum], &sum.high, 8);
  std::memcpy(&bytes[kChecksum + 8], &sum.low, 8);
  return model;
}

void code_by(const CachegenTables& tables, std::span<const std::byte> bytes) {
  const std::uint32_t dim = tables.head_dim();
  if (dim > 256 || tables.layers() > 16 || tables.kv_heads() > 16) return;
  const auto quantizer = make_quantizer("cachegen", &tables).value();
  const Quantizer& head = quantizer->of_head(tables.layers() * tables.kv_heads() - 1);
  if (dim % head.channel_multiple() != 0) return;

  std::vector<Half> elements(2 * std::size_t{kTokens} * dim), decoded(elements.size());
  const auto memory = std::as_writable_bytes(std::span(elements));
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = bytes[i % bytes.size()];
  const auto rows = []<class Element>(Element* first, std::uint32_t channels) {
    return KvRows<Element>{first, first + std::size_t{kTokens} * channels, kTokens, kTokens, channels};
  };
  std::vector<std::byte> codes(head.base_bytes(kTokens, dim)), unpacked(codes.size()), packed;
  head.encode(rows(static_cast<const Half*>(elements.data()), dim), {codes});
  head.pack(codes, kTokens, dim, packed);
  check(packed.size() <= head.packed_bytes_max(kTokens, dim));
  check(head.unpack(packed, kTokens, dim, unpacked) && unpacked == codes);
  (void)head.unpack(bytes, kTokens, dim, unpacked);
  head.decode({unpacked}, rows(decoded.data(), dim));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  Input input(data, size);
  (void)Calibration::parse(input.bytes(), {});
  (void)CachegenTables::parse(input.bytes(), {});
  const Hash128 model = seal_table(input.bytes());
  if (const auto calibration = Calibration::parse(input.bytes(), model)) {
    check(std::ranges::equal(calibration->serialize(model), input.bytes()));
  }
  if (const auto tables = CachegenTables::parse(input.bytes(), model)) {
    check(std::ranges::equal(tables->serialize(model), input.bytes()));
    code_by(*tables, input.bytes());
  }
  return 0;
}
