#include "core/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace shale {
namespace {

TEST(Utf8, FindsTheFirstByteOutOfPlace) {
  const std::string prefix = "déjà vu, 漢字 and 🪨: ";
  EXPECT_EQ(find_invalid_utf8(prefix), std::string_view::npos);
  EXPECT_EQ(find_invalid_utf8(""), std::string_view::npos);
  EXPECT_EQ(find_invalid_utf8(std::string_view("\0\x7f", 2)), std::string_view::npos);
  for (const char* bad : {"\x80", "\xc1\x81", "\xe0\x80\x80", "\xed\xa0\x80", "\xf0\x80\x80\x80", "\xf4\x90\x80\x80",
                          "\xf5", "\xe6\xbc", "\xc3"}) {
    for (std::size_t cut = 0; cut < 9; ++cut) {  // at every place within eight bytes
      const std::string text = prefix + std::string(cut, 'x');
      EXPECT_EQ(find_invalid_utf8(text + bad), text.size());
      EXPECT_EQ(find_invalid_utf8(text + bad + " and more text"), text.size());
    }
  }
}

}  // namespace
}  // namespace shale
