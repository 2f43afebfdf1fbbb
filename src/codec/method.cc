#include "codec/method.h"

#include <algorithm>

#include "codec/quantizer.h"

namespace shale {
namespace {

bool is_name(std::string_view text) {
  const auto allowed = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  return !text.empty() && std::all_of(text.begin(), text.end(), allowed);
}

}  // namespace

std::string Method::text() const {
  if (is_full()) return "full";
  if (scorer.empty()) return quantizer;
  return quantizer == "none" ? scorer : scorer + "+" + quantizer;
}

Result<Method> Method::parse(std::string_view text) {
  if (text == "full") return full();
  const std::size_t plus = text.find('+');
  const std::string_view first = text.substr(0, plus);
  const std::string_view second = plus == text.npos ? "none" : text.substr(plus + 1);
  if (!is_name(first) || !is_name(second) || first == "full" || second == "full") {
    return fail(ErrorCode::kInvalidArgument,
                "'{}' is not a method: scorer[+quantizer], quantizer or full, such as keydiff, kivi4, snapkv+int8",
                text);
  }
  const auto quantizers = quantizer_names();
  if (plus == text.npos && std::find(quantizers.begin(), quantizers.end(), first) != quantizers.end()) {
    return Method{"", std::string(first)};
  }
  return Method{std::string(first), std::string(second)};
}

}  // namespace shale
