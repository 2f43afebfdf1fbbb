#include "codec/method.h"

#include <gtest/gtest.h>

namespace shale {
namespace {

TEST(Method, ReadsAndWritesItsThreeForms) {
  EXPECT_EQ(*Method::parse("full"), Method::full());
  EXPECT_EQ(*Method::parse("none"), Method::full());
  EXPECT_EQ(*Method::parse("keydiff"), (Method{"keydiff", "none"}));
  EXPECT_EQ(*Method::parse("keydiff+none"), (Method{"keydiff", "none"}));
  EXPECT_EQ(*Method::parse("kivi4"), (Method{"", "kivi4"}));
  EXPECT_EQ(*Method::parse("snapkv+int8"), (Method{"snapkv", "int8"}));
  for (const char* text : {"full", "keydiff", "kivi4", "snapkv+int8"}) EXPECT_EQ(Method::parse(text)->text(), text);
}

TEST(Method, RefusesOtherForms) {
  for (const char* text :
       {"", "+", "keydiff+", "+int8", "a+b+c", "full+int8", "keydiff+full", "Key", "key diff", "k\n"}) {
    const auto method = Method::parse(text);
    ASSERT_FALSE(method) << text;
    EXPECT_EQ(method.error().code, ErrorCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace shale
