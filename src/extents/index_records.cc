#include "extents/index_records.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <string_view>

namespace shale {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");
using Type = IndexRecord::Type;

struct Frame {
  std::uint32_t bytes = 0;     // of the record after this
  std::uint32_t checksum = 0;  // low half of hash64 of it
};
constexpr std::uint32_t kRecordBytesMax = 1 << 20;
constexpr std::size_t kTextMax = 4096;

std::uint32_t checksum_of(std::span<const std::byte> record) { return static_cast<std::uint32_t>(hash64(record)); }

class Out {
 public:
  explicit Out(std::vector<std::byte>& bytes) : bytes_(bytes) {}
  template <class T>
  void number(const T& value) {
    raw(std::as_bytes(std::span(&value, 1)));
  }
  void hash(const Hash128& hash) {
    number(hash.high);
    number(hash.low);
  }
  void text(std::string_view text) {
    text = text.substr(0, kTextMax);
    number(static_cast<std::uint16_t>(text.size()));
    raw(std::as_bytes(std::span(text)));
  }
  void raw(std::span<const std::byte> bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }

 private:
  std::vector<std::byte>& bytes_;
};

// Reads in order; once anything is missing, everything is.
class In {
 public:
  explicit In(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <class T>
  void number(T& value) {
    raw(std::as_writable_bytes(std::span(&value, 1)));
  }
  void hash(Hash128& hash) {
    number(hash.high);
    number(hash.low);
  }
  void text(std::string& text) {
    std::uint16_t size = 0;
    number(size);
    if (size > bytes_.size()) good_ = false;
    if (!good_) return;
    text.assign(reinterpret_cast<const char*>(bytes_.data()), size);
    bytes_ = bytes_.subspan(size);
  }
  void raw(std::span<std::byte> into) {
    if (into.size() > bytes_.size()) good_ = false;
    if (!good_) return;
    if (!into.empty()) std::memcpy(into.data(), bytes_.data(), into.size());
    bytes_ = bytes_.subspan(into.size());
  }
  bool good() const { return good_; }
  bool finished() const { return good_ && bytes_.empty(); }

 private:
  std::span<const std::byte> bytes_;
  bool good_ = true;
};

void write_facts(Out& out, const ExtentFacts& facts) {
  out.hash(facts.name);
  out.hash(facts.run);
  out.text(facts.label);
  out.text(facts.method);
  out.text(facts.rankings);
  out.number(static_cast<std::uint8_t>(facts.exact));
  for (const float value : {facts.keep, facts.quality, facts.recompute_s, facts.frequency}) out.number(value);
  out.number(facts.bytes);
  out.number(facts.accessed_s);
  out.number(facts.expires_s);
  out.number(facts.first_block);
  out.number(facts.chunk_blocks);
  out.number(static_cast<std::uint32_t>(facts.prints.size()));
  out.raw(std::as_bytes(std::span(facts.tags)));
  out.raw(std::as_bytes(std::span(facts.prints)));
}

// Numbers that later decide, or divide, must be numbers.
bool sensible(const ExtentFacts& facts) {
  for (const double value : {double{facts.keep}, double{facts.quality}, double{facts.recompute_s},
                             double{facts.frequency}, facts.accessed_s, facts.expires_s}) {
    if (!std::isfinite(value) || value < 0) return false;
  }
  return true;
}

bool read_facts(In& in, ExtentFacts& facts) {
  std::uint8_t exact = 0;
  std::uint32_t blocks = 0;
  in.hash(facts.name);
  in.hash(facts.run);
  in.text(facts.label);
  in.text(facts.method);
  in.text(facts.rankings);
  in.number(exact);
  for (float* value : {&facts.keep, &facts.quality, &facts.recompute_s, &facts.frequency}) in.number(*value);
  in.number(facts.bytes);
  in.number(facts.accessed_s);
  in.number(facts.expires_s);
  in.number(facts.first_block);
  in.number(facts.chunk_blocks);
  in.number(blocks);
  if (!in.good() || exact > 1 || !sensible(facts) || blocks == 0 || blocks > kBlocksMax || facts.chunk_blocks == 0 ||
      facts.chunk_blocks > kBlocksMax || (blocks - 1) / facts.chunk_blocks >= kChunksMax) {
    return false;
  }
  facts.exact = exact == 1;
  facts.tags.resize((blocks + facts.chunk_blocks - 1) / facts.chunk_blocks);
  facts.prints.resize(blocks);
  in.raw(std::as_writable_bytes(std::span(facts.tags)));
  in.raw(std::as_writable_bytes(std::span(facts.prints)));
  return in.good();
}

// What its type gives it; `realms` are those that were introduced so far. False where that cannot be.
bool read_fields(In& in, IndexRecord& record, std::vector<Realm>& realms) {
  bool sound = std::isfinite(record.time_s);
  switch (record.type) {
    case Type::kRealm:
      in.number(record.realm_number);
      in.hash(record.realm.hash);
      in.text(record.realm.tenant);
      sound = sound && record.realm_number == realms.size();
      if (sound && in.good()) realms.push_back(record.realm);
      break;
    case Type::kStored:
      in.number(record.realm_number);
      sound = sound && record.realm_number < realms.size() && read_facts(in, record.facts);
      if (sound) record.realm = realms[record.realm_number];
      break;
    case Type::kWriting:
    case Type::kRemoved:
      in.hash(record.name);
      in.number(record.tag);
      in.number(record.bytes);
      break;
    case Type::kSettled:
      in.hash(record.name);
      in.number(record.tag);
      break;
    case Type::kLease:
      in.hash(record.name);
      in.number(record.until_s);
      in.number(record.expires_s);
      sound = sound && std::isfinite(record.until_s) && std::isfinite(record.expires_s) && record.expires_s >= 0;
      break;
    case Type::kUsed:
      in.hash(record.name);
      in.number(record.frequency);
      sound = sound && std::isfinite(record.frequency) && record.frequency >= 0;
      break;
    case Type::kDamaged:
    case Type::kUnread:
      in.hash(record.name);
      in.number(record.chunk);
      break;
    case Type::kConsumed:
      in.number(record.session);
      in.number(record.offset);
      break;
    case Type::kEnd:
      break;
    default:
      sound = false;
  }
  return sound;
}

}  // namespace

void RecordWriter::add(const IndexRecord& record) {
  if (record.type != Type::kStored) return frame(record);
  const auto [known, is_new] = realms_.emplace(record.realm.hash, static_cast<std::uint32_t>(realms_.size()));
  if (is_new) {
    IndexRecord introduction;
    introduction.type = Type::kRealm;
    introduction.time_s = record.time_s;
    introduction.realm_number = known->second;
    introduction.realm = record.realm;
    frame(introduction);
  }
  frame(record);
}

void RecordWriter::frame(const IndexRecord& record) {
  const std::size_t start = bytes_.size();
  bytes_.resize(start + sizeof(Frame));
  Out out(bytes_);
  out.number(record.type);
  out.number(record.time_s);
  switch (record.type) {
    case Type::kRealm:
      out.number(record.realm_number);
      out.hash(record.realm.hash);
      out.text(record.realm.tenant);
      break;
    case Type::kStored:
      out.number(realms_.at(record.realm.hash));
      write_facts(out, record.facts);
      break;
    case Type::kWriting:
    case Type::kRemoved:
      out.hash(record.name);
      out.number(record.tag);
      out.number(record.bytes);
      break;
    case Type::kSettled:
      out.hash(record.name);
      out.number(record.tag);
      break;
    case Type::kLease:
      out.hash(record.name);
      out.number(record.until_s);
      out.number(record.expires_s);
      break;
    case Type::kUsed:
      out.hash(record.name);
      out.number(record.frequency);
      break;
    case Type::kDamaged:
    case Type::kUnread:
      out.hash(record.name);
      out.number(record.chunk);
      break;
    case Type::kConsumed:
      out.number(record.session);
      out.number(record.offset);
      break;
    case Type::kEnd:
      break;
  }
  const auto body = std::span(bytes_).subspan(start + sizeof(Frame));
  const Frame frame{static_cast<std::uint32_t>(body.size()), checksum_of(body)};
  std::memcpy(bytes_.data() + start, &frame, sizeof frame);
}

Result<bool> RecordReader::next(std::span<const std::byte>& bytes, IndexRecord& record) {
  Frame frame;
  if (bytes.size() < sizeof frame) return false;
  std::memcpy(&frame, bytes.data(), sizeof frame);
  if (frame.bytes > kRecordBytesMax) return fail(ErrorCode::kCorrupt, "a record of {} bytes", frame.bytes);
  if (bytes.size() - sizeof frame < frame.bytes) return false;
  const auto body = bytes.subspan(sizeof frame, frame.bytes);
  if (checksum_of(body) != frame.checksum) return fail(ErrorCode::kCorrupt, "a record fails its checksum");
  In in(body);
  in.number(record.type);
  in.number(record.time_s);
  const bool sound = read_fields(in, record, realms_);
  if (!sound || !in.finished()) return fail(ErrorCode::kCorrupt, "a record that does not parse");
  bytes = bytes.subspan(sizeof frame + frame.bytes);
  return true;
}

}  // namespace shale
