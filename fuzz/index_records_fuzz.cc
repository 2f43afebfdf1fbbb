// Records of a store's snapshots and logs: any bytes are damage, the beginning of a record, or records that are written
// as they were read and that the index takes or refuses.
#include <algorithm>
#include <cstring>

#include "extents/index_records.h"
#include "input.h"

namespace {

using namespace shale;

constexpr std::size_t kFrame = 8;  // docs/formats/store.md: size, checksum

// Gives every record the checksum that it would have, so that damage is seen by the checks behind it.
void seal_records(std::span<std::byte> bytes) {
  while (bytes.size() >= kFrame) {
    std::uint32_t size = 0;
    std::memcpy(&size, bytes.data(), sizeof size);
    if (size > bytes.size() - kFrame) return;
    const auto checksum = static_cast<std::uint32_t>(hash64(bytes.subspan(kFrame, size)));
    std::memcpy(bytes.data() + sizeof size, &checksum, sizeof checksum);
    bytes = bytes.subspan(kFrame + size);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  Input input(data, size);
  seal_records(input.bytes());
  std::span<const std::byte> rest = input.bytes();
  RecordReader reader;
  RecordWriter writer;
  ExtentIndex index;
  IndexRecord record;
  for (auto read = reader.next(rest, record); read && *read; read = reader.next(rest, record)) {
    if (record.type != IndexRecord::Type::kStored) continue;
    const auto realm = index.realm(record.realm);
    const auto id = realm ? index.add(record.facts, *realm) : std::nullopt;
    check(id.has_value());
    index.at(*id).tiers = 1;
    writer.add(record);
  }
  check(index.check_integrity().has_value());
  const auto bytes = writer.take();
  rest = bytes;
  RecordReader again;
  for (auto read = again.next(rest, record); !rest.empty(); read = again.next(rest, record)) check(read && *read);
  return 0;
}
