#include "engine/text_stream.h"

#include <gtest/gtest.h>

namespace shale {
namespace {

TEST(TextStream, ShowsBytesOnlyAsWholeCharacters) {
  TextStream stream({});
  EXPECT_EQ(stream.push("caf\xc3"), "caf");
  EXPECT_EQ(stream.push("\xa9 \xe2\x82"), "\xc3\xa9 ");
  EXPECT_EQ(stream.push("\xac!"), "\xe2\x82\xac!");
  EXPECT_EQ(stream.finish(), "");
  EXPECT_EQ(stream.text(), "caf\xc3\xa9 \xe2\x82\xac!");
}

TEST(TextStream, HoldsBackWhatMayBecomeAStopString) {
  TextStream stream({"END", "\n\n"});
  EXPECT_EQ(stream.push("a E"), "a ");
  EXPECT_EQ(stream.push("N"), "");
  EXPECT_EQ(stream.push("ough\n"), "ENough");
  EXPECT_EQ(stream.push("x"), "\nx");
  EXPECT_EQ(stream.push(" EN"), " ");
  EXPECT_EQ(stream.push("D and more"), "");
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(stream.push("never"), "");
  EXPECT_EQ(stream.finish(), "");
  EXPECT_EQ(stream.text(), "a ENough\nx ");
}

TEST(TextStream, TheEarliestStopStringWins) {
  TextStream stream({"later", "soon"});
  EXPECT_EQ(stream.push("very soon, later"), "very ");
  EXPECT_EQ(stream.text(), "very ");
}

TEST(TextStream, TheStopStringThatIsCompleteFirstWinsHoweverTheBytesAreCut) {
  for (const bool include : {false, true}) {
    TextStream whole({"b cd", "c"}, include), cut({"b cd", "c"}, include);
    whole.push("a b cd e");
    for (const char byte : std::string_view("a b cd e")) cut.push({&byte, 1});
    EXPECT_EQ(whole.text(), include ? "a b c" : "a b ");
    EXPECT_EQ(cut.text(), whole.text());
  }
}

TEST(TextStream, ShowsTheStopStringWhereToldTo) {
  TextStream stream({"END"}, true);
  EXPECT_EQ(stream.push("a E"), "a ");
  EXPECT_EQ(stream.push("ND and more"), "END");
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(stream.push("never"), "");
  EXPECT_EQ(stream.finish(), "");
  EXPECT_EQ(stream.text(), "a END");
}

TEST(TextStream, TheEndReleasesWhatWasHeld) {
  TextStream stream({"stop"});
  EXPECT_EQ(stream.push("sto"), "");
  EXPECT_EQ(stream.finish(), "sto");
}

TEST(TextStream, EmptyStopStringsMeanNothing) {
  TextStream stream({""});
  EXPECT_EQ(stream.push("text"), "text");
  EXPECT_FALSE(stream.stopped());
}

}  // namespace
}  // namespace shale
