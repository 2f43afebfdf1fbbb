// What happened to the extents of a folder, record by record: snapshots and logs are made of them
// (docs/formats/store.md).
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/error.h"
#include "extents/extent_index.h"

namespace shale {

struct IndexRecord {
  enum class Type : std::uint8_t {
    kRealm = 1,     // realm_number stands for `realm` in what follows
    kStored = 2,    // facts: the extent is whole
    kWriting = 3,   // name, tag, bytes: its blobs are being written
    kRemoved = 4,   // name, tag: it is not to be found any more, its blobs are being removed
    kSettled = 5,   // name, tag: writing was given up, removing has ended, or what lies there is found not to be whole
    kLease = 6,     // name, until_s, expires_s
    kUsed = 7,      // name, frequency, at time_s
    kDamaged = 8,   // name, chunk
    kConsumed = 9,  // snapshots: the log of `session` is in it up to `offset`
    kEnd = 10,      // snapshots: the last record
    kUnread = 11,   // snapshots: name, chunk: the object and part of a manifest that could not be read so far
  };
  Type type = Type::kEnd;
  double time_s = 0;
  std::uint32_t realm_number = 0;
  Realm realm = {};  // of an extent that is stored, too
  ExtentFacts facts = {};
  Hash128 name = {};
  std::uint64_t tag = 0;
  std::uint64_t bytes = 0;
  double until_s = 0, expires_s = 0;
  float frequency = 0;
  std::uint32_t chunk = 0;
  std::uint64_t session = 0, offset = 0;
  bool operator==(const IndexRecord&) const = default;
};

// Bytes of records in a row. Realms are numbered as they come.
class RecordWriter {
 public:
  void add(const IndexRecord& record);
  // Appends what was added since it was last taken.
  std::vector<std::byte> take() { return std::exchange(bytes_, {}); }
  std::size_t size() const { return bytes_.size(); }

 private:
  void frame(const IndexRecord& record);
  std::unordered_map<Hash128, std::uint32_t> realms_;
  std::vector<std::byte> bytes_;
};

// Reads records that follow one another, perhaps in several goes.
class RecordReader {
 public:
  // Takes the first record off `bytes`. False when they end before it does. kCorrupt for what is no record, or names a
  // realm that was not introduced; nothing after it can be read. `record` keeps its memory from call to call.
  Result<bool> next(std::span<const std::byte>& bytes, IndexRecord& record);

 private:
  std::vector<Realm> realms_;
};

}  // namespace shale
