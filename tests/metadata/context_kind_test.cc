#include "metadata/context_kind.h"

#include <gtest/gtest.h>

#include <string>

namespace shale {
namespace {

TEST(ContextKind, NamesComeBack) {
  for (std::size_t i = 0; i < kContextKinds; ++i) {
    const auto kind = static_cast<ContextKind>(i);
    EXPECT_EQ(kind_named(name_of(kind)), kind);
  }
  EXPECT_FALSE(kind_named("poetry"));
}

TEST(ContextKind, IsToldByTheText) {
  const std::string prose =
      "The mill stood at the end of the lane, and in the winter nobody went there but the miller's son. He said that "
      "it "
      "was haunted by a cat, which was true in a way, for it was the cat that ate the flour.";
  EXPECT_EQ(kind_of(prose), ContextKind::kProse);
  EXPECT_EQ(kind_of("for (int i = 0; i < n; ++i) {\n  sum += values[i] * weights[i];\n}\nreturn sum / n;\n"),
            ContextKind::kCode);
  EXPECT_EQ(kind_of("Anna: Are you coming?\nJo Ann: In an hour.\nAnna: Bring the map.\nDr. Wu: I have it.\n"),
            ContextKind::kDialogue);
  std::string records, keys;
  for (int i = 0; i < 20; ++i) {
    records += "The code of room " + std::to_string(100 + i) + " is " + std::to_string(7919 * i) + ".\n";
    keys += "7f3a0c" + std::to_string(i) + "-be91 9d02" + std::to_string(i) + "-17aa\n";
  }
  EXPECT_EQ(kind_of(records), ContextKind::kRecords);
  EXPECT_EQ(kind_of(keys), ContextKind::kRecords);
  EXPECT_EQ(
      kind_of("Der Müller wohnte am Ende des Weges, und im Winter ging außer seinem Sohn niemand hin. Er sagte, es "
              "spuke dort eine Katze, und in gewisser Weise stimmte das auch."),
      ContextKind::kLanguage);
  EXPECT_EQ(kind_of("石の工場は道の終わりにあり、冬には誰もそこへ行かなかった。"), ContextKind::kLanguage);
}

// What a server samples of a text holds few words where each takes dozens of tokens.
TEST(ContextKind, OfFewLongWordsIsToldByTheirDigits) {
  std::string pairs, hashes;
  for (int i = 0; i < 5; ++i) {
    const std::string digit = std::to_string(i);
    pairs +=
        "\"2a8d601d-1d69-4e64-9f90-8ad825a7419" + digit + "\": \"bb3ba2a5-7de8-434b-a86e-a88bb9fa7b8" + digit + "\", ";
    hashes += "74656e0a12c044b9bb26e09d8824b2ac08b10bcc" + digit + "\nd8e0124ac38681b812c044b5f00dfeed1234abcd\n";
  }
  EXPECT_EQ(kind_of(pairs), ContextKind::kRecords);
  EXPECT_EQ(kind_of(hashes), ContextKind::kRecords);
  EXPECT_EQ(kind_of("Room 101 is free from 9 to 12."), ContextKind::kProse) << "too little to tell";
}

TEST(ContextKind, OfNothingAndOfAnyBytesIsSomething) {
  EXPECT_EQ(kind_of(""), ContextKind::kProse);
  EXPECT_EQ(kind_of("\n\n \n"), ContextKind::kProse);
  EXPECT_EQ(kind_of("one word"), ContextKind::kProse);
  std::string bytes;
  for (int i = 0; i < 4096; ++i) bytes += static_cast<char>(i * 37 % 256);
  static_cast<void>(kind_of(bytes));
  EXPECT_EQ(kind_of(":\n: \n:::\n a:\n"), ContextKind::kProse);
}

}  // namespace
}  // namespace shale
