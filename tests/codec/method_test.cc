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
  for (const char* text : {"full", "keydiff", "kivi4", "snapkv+int8", "knorm+int8/kivi2"})
    EXPECT_EQ(Method::parse(text)->text(), text);
}

TEST(Method, GivesTiersQuantizersOfTheirOwn) {
  const Method method = *Method::parse("snapkv+none/int8/int8/kivi2/kivi2");
  EXPECT_EQ(method.text(), "snapkv+none/int8/int8/kivi2");
  const std::array<std::string_view, 5> expected = {"none", "int8", "int8", "kivi2", "kivi2"};
  for (std::uint32_t s = 0; s < 5; ++s) EXPECT_EQ(method.quantizer_of(s), expected[s]);
  EXPECT_EQ(Method::parse("snapkv+int8/int8")->text(), "snapkv+int8");
  EXPECT_EQ(Method::parse("snapkv+none/none")->text(), "snapkv");
  EXPECT_TRUE(method.check());
  for (const char* text : {"nope+int8", "knorm+int8/nope", "nope"}) {
    EXPECT_EQ(Method::parse(text)->check().error().code, ErrorCode::kInvalidArgument) << text;
  }
}

TEST(Method, MayNameABudget) {
  EXPECT_EQ(*Method::parse("adakv:snapkv+kivi2"), (Method{"snapkv", "kivi2", "adakv"}));
  EXPECT_EQ(*Method::parse("uniform:snapkv"), *Method::parse("snapkv"));
  for (const char* text : {"adakv:snapkv", "pyramid:keydiff+int8"}) {
    EXPECT_EQ(Method::parse(text)->text(), text);
    EXPECT_TRUE(Method::parse(text)->check());
  }
  EXPECT_EQ(Method::parse("nothing:snapkv")->check().error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(Method::parse("uniform:snapkv")->check());
}

TEST(Method, RefusesOtherForms) {
  for (const char* text : {"",
                           "+",
                           "keydiff+",
                           "+int8",
                           "a+b+c",
                           "full+int8",
                           "keydiff+full",
                           "Key",
                           "key diff",
                           "k\n",
                           "int8/kivi2",
                           ":",
                           ":snapkv",
                           "adakv:",
                           "a:b:c",
                           "adakv:full",
                           "knorm+/int8",
                           "knorm+int8/",
                           "knorm+int8//kivi2",
                           "knorm+int8/full",
                           "knorm+none/int8/none/int8/none/int8"}) {
    const auto method = Method::parse(text);
    ASSERT_FALSE(method) << text;
    EXPECT_EQ(method.error().code, ErrorCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace shale
