// What an S3 server says in XML: any text is refused, or a list whose objects have keys and that ends or says where it
// goes on.
#include <algorithm>

#include "input.h"
#include "io/s3_xml.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace shale;
  Input input(data, size);
  const std::string_view text(reinterpret_cast<const char*>(input.bytes().data()), size);
  const S3Complaint complaint = parse_s3_complaint(text);
  check(complaint.code.size() <= size);
  const auto listing = parse_s3_listing(text);
  if (!listing) {
    check(!listing.error().message.empty());
    return 0;
  }
  check(complaint.code.empty());  // it has one root
  check(std::ranges::none_of(listing->objects, [](const S3Listing::Object& object) { return object.key.empty(); }));
  check(listing->objects.size() <= size && listing->next.size() <= size);
  return 0;
}
