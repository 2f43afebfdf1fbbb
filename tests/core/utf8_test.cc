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

TEST(Utf8, CutsBetweenCharacters) {
  const std::string text = "aé漢🪨";  // of 1, 2, 3 and 4 bytes
  const std::string_view fronts[] = {"", "a", "a", "aé", "aé", "aé", "aé漢", "aé漢", "aé漢", "aé漢", text, text};
  const std::string_view backs[] = {"", "", "", "", "🪨", "🪨", "🪨", "漢🪨", "漢🪨", "é漢🪨", text, text};
  for (std::size_t bytes = 0; bytes < 12; ++bytes) {
    EXPECT_EQ(utf8_front(text, bytes), fronts[bytes]) << bytes;
    EXPECT_EQ(utf8_back(text, bytes), backs[bytes]) << bytes;
  }
}

TEST(Utf8, PrintsOneLineThatNoTerminalObeys) {
  EXPECT_EQ(printable("déjà\n\x1b[2J\x7f漢", 100), "déjà??[2J?漢");
  EXPECT_EQ(printable("\xc2\x9b"
                      "2J\xc2\xa0",
                      100),
            "??2J\xc2\xa0")
      << "a control character of the second set";
  EXPECT_EQ(printable("a\x80\xe6\xbc\xc2", 100), "a????");
  EXPECT_EQ(printable("aé漢", 4), "aé");
  EXPECT_EQ(printable("", 4), "");
}

}  // namespace
}  // namespace shale
