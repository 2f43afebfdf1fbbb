#include "core/error.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

namespace shale {
namespace {

Result<int> half_of(int number) {
  if (number % 2 != 0) return fail(ErrorCode::kInvalidArgument, "{} is odd", number);
  return number / 2;
}

Result<int> quarter_of(int number) {
  SHALE_ASSIGN(int half, half_of(number));
  SHALE_ASSIGN(half, half_of(half));
  return half;
}

Status divisible_by_four(int number) {
  SHALE_TRY(quarter_of(number));
  return {};
}

Result<std::unique_ptr<int>> boxed(int number) {
  SHALE_ASSIGN(auto box, Result<std::unique_ptr<int>>(std::make_unique<int>(number)));
  return box;
}

TEST(Error, TravelsUpToWhoeverWantsIt) {
  EXPECT_EQ(quarter_of(12).value(), 3);
  EXPECT_TRUE(divisible_by_four(8));
  const Status status = divisible_by_four(6);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(status.error().message, "3 is odd");
}

TEST(Error, AssignMovesWhatCannotBeCopied) { EXPECT_EQ(**boxed(7), 7); }

TEST(Error, SaysWhereItHappened) {
  const Status status = fail_in("file x", {ErrorCode::kCorrupt, "bad magic"});
  EXPECT_EQ(status.error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(status.error().message, "file x: bad magic");
}

TEST(Error, EveryCodeHasItsOwnName) {
  std::set<std::string_view> names;
  for (int code = 0; code <= static_cast<int>(ErrorCode::kInternal); ++code) {
    names.insert(to_string(static_cast<ErrorCode>(code)));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(ErrorCode::kInternal) + 1);
  EXPECT_FALSE(names.contains("unknown error"));
}

}  // namespace
}  // namespace shale
