#include "report/background_writer.h"

#include <gtest/gtest.h>

#include <latch>
#include <memory>
#include <mutex>
#include <string>

#include "support/eventually.h"

namespace shale {
namespace {

using testing::eventually;

// A reader who comes late.
struct LateReader {
  std::latch come{1};
  std::mutex mutex;
  std::string text;

  void write(std::string_view lines) {
    come.wait();
    const std::lock_guard lock(mutex);
    text += lines;
  }
  std::string read() {
    const std::lock_guard lock(mutex);
    return text;
  }
};

TEST(BackgroundWriterTest, NobodyWaitsForTheReaderWhoFindsWhatFittedInOrder) {
  const auto reader = std::make_shared<LateReader>();
  std::string added;
  {
    BackgroundWriter writer([reader](std::string_view lines) { reader->write(lines); });
    int refused = 0;
    for (int i = 0; i < 100'000; ++i) {
      const std::string line = "request " + std::to_string(i) + " has ended\n";
      if (writer.add(line)) {
        added += line;
      } else {
        ++refused;
      }
    }
    EXPECT_GT(refused, 0);
    EXPECT_LE(added.size(), BackgroundWriter::kBytesMax);
    EXPECT_GT(added.size(), BackgroundWriter::kBytesMax - 100);
    reader->come.count_down();
    EXPECT_TRUE(eventually([&] { return reader->read() == added; }));
    EXPECT_TRUE(eventually([&] { return writer.add("and on\n"); }));
  }
  EXPECT_TRUE(eventually([&] { return reader->read() == added + "and on\n"; }));
}

TEST(BackgroundWriterTest, EndsThoughNobodyReads) {
  const auto reader = std::make_shared<LateReader>();
  {
    BackgroundWriter writer([reader](std::string_view lines) { reader->write(lines); });
    EXPECT_TRUE(writer.add("for nobody\n"));
  }
  EXPECT_EQ(reader->read(), "");
  reader->come.count_down();
}

}  // namespace
}  // namespace shale
