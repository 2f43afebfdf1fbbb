// Records of a store's snapshots and logs: any bytes are damage, the beginning of a record, or records that are written
// as they were read and that the index takes or refuses.
#include <algorithm>
#include <cstring>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "extents/index_records.h"
#include "input.h"

namespace {

using namespace shale;

constexpr std::size_t kFrame = 8;       // docs/formats/store.md: size, checksum
constexpr std::size_t kTextMax = 4096;  // what is written of a text

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

// What a writer makes of a record that was read: realms have one name each, and numbers as they come.
class Written {
 public:
  void add(IndexRecord record) {
    if (record.type == IndexRecord::Type::kRealm) return;
    if (record.type == IndexRecord::Type::kStored) {
      const auto number = static_cast<std::uint32_t>(realms_.size());
      const auto known = realms_.try_emplace(record.realm.hash, number, record.realm.tenant).first;
      std::tie(record.realm_number, record.realm.tenant) = known->second;
      ExtentFacts& facts = record.facts;
      for (std::string* text : {&facts.label, &facts.method, &facts.rankings, &record.realm.tenant}) {
        text->resize(std::min(text->size(), kTextMax));
      }
    }
    writer_.add(record);
    records_.push_back(std::move(record));
  }

  void check_read() {
    const auto bytes = writer_.take();
    std::span<const std::byte> rest = bytes;
    RecordReader reader;
    for (const IndexRecord& expected : records_) {
      IndexRecord record;
      do {
        record = {};
        const auto read = reader.next(rest, record);
        check(read && *read);
      } while (record.type == IndexRecord::Type::kRealm);
      check(record == expected);
    }
    check(rest.empty());
  }

 private:
  RecordWriter writer_;
  std::vector<IndexRecord> records_;
  std::unordered_map<Hash128, std::pair<std::uint32_t, std::string>> realms_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  Input input(data, size);
  seal_records(input.bytes());
  std::span<const std::byte> rest = input.bytes();
  RecordReader reader;
  Written written;
  ExtentIndex index;
  for (;;) {
    IndexRecord record;
    const auto read = reader.next(rest, record);
    if (!read || !*read) break;
    written.add(record);
    if (record.type != IndexRecord::Type::kStored) continue;
    const auto realm = index.realm(record.realm);
    const auto id = realm ? index.add(record.facts, *realm) : std::nullopt;
    check(id.has_value());
    index.at(*id).tiers = 1;
  }
  check(index.check_integrity().has_value());
  written.check_read();
  return 0;
}
