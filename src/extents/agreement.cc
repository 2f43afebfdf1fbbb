#include "extents/agreement.h"

#include <cstring>
#include <memory>

namespace shale {
namespace {

const Hash128& agreements_object() {
  static const Hash128 object = Hasher().add(std::string_view("agreements")).finish();
  return object;
}

}  // namespace

bool is_agreement(const BlobId& id) { return id.object == agreements_object(); }

Result<std::string> agree(Tier& tier, const Hash128& matter, std::string_view mine) {
  // No manifest's number.
  const BlobId id{agreements_object(), static_cast<std::uint32_t>(matter.low & 0x7fffffffu)};
  auto bytes = std::make_shared<AlignedBuffer>(mine.size());
  std::memcpy(bytes->data(), mine.data(), mine.size());
  SHALE_TRY(tier.write(id, std::move(bytes))->wait());  // leaves what is there
  SHALE_ASSIGN(const BlobBytes answer, tier.read(id)->take());
  if (answer->size() > 0 && answer->size() <= kAgreementBytesMax) {
    return std::string(reinterpret_cast<const char*>(answer->data()), answer->size());
  }
  return fail(ErrorCode::kCorrupt, "{} of {} has {} bytes and is no agreement", to_string(id), tier.name(),
              answer->size());
}

}  // namespace shale
