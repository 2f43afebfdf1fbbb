// What S3 says in XML: lists of objects, and errors. A scanner of just that, for text that a server sends: it knows
// elements and character data, skips attributes, comments, declarations and elements that it does not look for, and
// refuses what is not well-formed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace shale {

struct S3Listing {
  struct Object {
    std::string key;
    std::uint64_t bytes = 0;
  };
  std::vector<Object> objects;
  std::string next;  // where the list goes on (continuation token); empty at its end
};
// kCorrupt where the text is no list, or says that it goes on and not where.
Result<S3Listing> parse_s3_listing(std::string_view xml);

struct S3Complaint {
  std::string code;     // "NoSuchBucket"; empty where the text is no error of S3
  std::string message;  // for people
  std::string region;   // where the bucket lies, if the error is about that
};
S3Complaint parse_s3_complaint(std::string_view xml);

}  // namespace shale
