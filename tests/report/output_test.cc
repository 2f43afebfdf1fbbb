#include "report/output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace shale {
namespace {

// Where every write fails as on a full disk.
TEST(Output, ALogThatCannotBeWrittenIsLostAndNothingElse) {
  const int before = dup(STDERR_FILENO), full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  dup2(full, STDERR_FILENO);
  EXPECT_NO_THROW(print_note("the disk is full"));
  {
    Progress progress({.progress = true}, "still at it");
    EXPECT_NO_THROW(progress(1, 2));
  }
  dup2(before, STDERR_FILENO);
  close(before);
  close(full);
  print_note("and said again");
}

}  // namespace
}  // namespace shale
