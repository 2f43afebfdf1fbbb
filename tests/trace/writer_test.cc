// What is written is read back.
#include <gmock/gmock.h>

#include <random>

#include "trace/trace_files.h"
#include "trace/trace_writer.h"

namespace shale::testing {
namespace {

using ::testing::HasSubstr;

class WriterTest : public TraceFiles {
 protected:
  std::filesystem::path write(const std::vector<RawRequest>& requests, TraceForm form, const std::string& name) {
    const auto path = folder_.path() / name;
    auto writer = TraceWriter::create(path, form, kBlockTokens);
    EXPECT_TRUE(writer) << writer.error().message;
    for (const RawRequest& request : requests) EXPECT_TRUE(writer->write(request));
    EXPECT_TRUE(writer->finish());
    return path;
  }

  // Random ids among runs of consecutive ones, up to the largest there are; answers behind full prompts only.
  static std::vector<RawRequest> random_requests(std::mt19937_64& random) {
    std::vector<RawRequest> requests(1 + random() % 40);
    double now = 0;
    for (RawRequest& request : requests) {
      const std::uint64_t blocks = random() % 30;
      std::uint64_t id = random();
      for (std::uint64_t i = 0; i < blocks; ++i) {
        id = random() % 4 == 0 ? (random() % 3 == 0 ? ~std::uint64_t{0} - random() % 3 : random()) : id + 1;
        request.blocks.push_back(id);
      }
      request.output_blocks = static_cast<std::uint32_t>(random() % 2 ? 0 : random() % (blocks + 1));
      const auto prompt = static_cast<std::uint32_t>(blocks - request.output_blocks);
      const bool is_partial = request.output_blocks == 0 && prompt > 0 && random() % 2;
      const auto extra = static_cast<std::uint32_t>(random() % (kBlockTokens - 1));
      request.input_tokens = prompt * kBlockTokens + extra - (is_partial ? kBlockTokens - 1 : 0);
      request.output_tokens = static_cast<std::uint32_t>((request.output_blocks + 1) * kBlockTokens + random() % 9);
      request.arrival_s = now;
      now += random() % 3 == 0 ? 0 : static_cast<double>(random() % 1'000'000'007) * 1e-7;
    }
    requests[0].arrival_s = 0;
    return requests;
  }

  static constexpr std::uint32_t kBlockTokens = 48;
};

TEST_F(WriterTest, RandomTracesComeBack) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 60; ++round) {
    const auto requests = random_requests(random);
    for (const TraceForm form : {TraceForm::kPlain, TraceForm::kJsonLines}) {
      const bool is_plain = form == TraceForm::kPlain;
      const auto path = write(requests, form, round % 2 ? "t.gz" : "t");
      const auto read = requests_of(path);
      ASSERT_EQ(read.size(), requests.size());
      for (std::size_t i = 0; i < read.size(); ++i) {
        EXPECT_EQ(read[i].blocks, requests[i].blocks);
        EXPECT_EQ(read[i].output_blocks, requests[i].output_blocks);
        EXPECT_EQ(read[i].input_tokens, requests[i].input_tokens);
        EXPECT_EQ(read[i].output_tokens, requests[i].output_tokens);
        EXPECT_NEAR(read[i].arrival_s, requests[i].arrival_s, is_plain ? 0 : 1e-9);
      }
    }
  }
}

TEST_F(WriterTest, OnlyJsonLinesSayThatTokensAreInNoBlock) {
  const RawRequest request{.input_tokens = 2 * kBlockTokens + 100, .blocks = {1, 2}};
  const auto read = requests_of(write({request}, TraceForm::kJsonLines, "t"));
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0].input_tokens, request.input_tokens);
  EXPECT_EQ(read[0].blocks, request.blocks);
  auto plain = TraceWriter::create(folder_.path() / "plain", TraceForm::kPlain, kBlockTokens);
  ASSERT_TRUE(plain);
  const Status written = plain->write(request);
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().message, HasSubstr("100 tokens"));
  EXPECT_TRUE(plain->finish());
}

TEST_F(WriterTest, NamesThatEndInGzAreCompressed) {
  std::mt19937_64 random(1);
  const auto requests = random_requests(random);
  const auto starts = [&](const std::string& name) {
    std::ifstream stream(write(requests, TraceForm::kPlain, name), std::ios::binary);
    std::string bytes(2, '\0');
    stream.read(bytes.data(), 2);
    return bytes;
  };
  EXPECT_EQ(starts("a.trace"), "sh");
  EXPECT_EQ(starts("a.trace.gz"), "\x1f\x8b");
}

TEST_F(WriterTest, SaysWhatCannotBeWritten) {
  const auto nowhere = TraceWriter::create(folder_.path() / "no/such/folder", TraceForm::kPlain, 16);
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().code, ErrorCode::kIo);
  EXPECT_THAT(nowhere.error().message, HasSubstr("no/such/folder"));

  auto full = TraceWriter::create("/dev/full", TraceForm::kPlain, 16);
  ASSERT_TRUE(full);
  Status status = full->write({});
  if (status) status = full->finish();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kIo);
  EXPECT_THAT(status.error().message, HasSubstr("No space left"));
}

}  // namespace
}  // namespace shale::testing
