#include "report/background_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
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

std::string left_out(std::uint64_t lines) { return "left out: " + std::to_string(lines) + '\n'; }

TEST(BackgroundWriterTest, NobodyWaitsForTheReaderWhoFindsWhatFittedInOrder) {
  const auto reader = std::make_shared<LateReader>();
  std::string added;
  {
    BackgroundWriter writer([reader](std::string_view lines) { reader->write(lines); }, left_out);
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
    EXPECT_TRUE(writer.add("and on\n"));
    added += left_out(static_cast<std::uint64_t>(refused)) + "and on\n";
  }
  EXPECT_TRUE(eventually([&] { return reader->read() == added; }));
}

TEST(BackgroundWriterTest, WhoReadsSlowlyIsToldInTheEndHowManyLinesAreLeftOut) {
  const auto reader = std::make_shared<LateReader>();
  constexpr std::uint64_t kLines = 2000;
  std::uint64_t refused = 0;
  {
    BackgroundWriter writer([reader](std::string_view lines) { reader->write(lines); }, left_out);
    for (std::uint64_t i = 0; i < kLines; ++i) refused += !writer.add(std::string(999, 'x') + '\n');
    writer.finish();
  }
  EXPECT_GT(refused, 0u);
  reader->come.count_down();
  const auto last = [&] {
    const std::string text = reader->read();
    return text.substr(std::min(text.rfind("left out"), text.size()));
  };
  EXPECT_TRUE(eventually([&] { return !last().empty(); }));
  const std::uint64_t whole = static_cast<std::uint64_t>(std::ranges::count(reader->read(), '\n')) - 1;
  EXPECT_LE(whole, 4u) << "what was on its way";
  EXPECT_EQ(last(), left_out(kLines - whole));
}

TEST(BackgroundWriterTest, EndsThoughNobodyReads) {
  const auto reader = std::make_shared<LateReader>();
  {
    BackgroundWriter writer([reader](std::string_view lines) { reader->write(lines); }, left_out);
    EXPECT_TRUE(writer.add("for nobody\n"));
  }
  EXPECT_EQ(reader->read(), "");
  reader->come.count_down();
}

}  // namespace
}  // namespace shale
