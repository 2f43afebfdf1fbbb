// Whole traces: the numbers that blocks get, and real files.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "trace/trace_files.h"

namespace shale::testing {
namespace {

class LoadTest : public TraceFiles {};

// A reader of made-up requests, whose ids collide often: few raw ids, in many places.
class RandomReader final : public TraceReader {
 public:
  RandomReader(std::uint32_t seed, std::size_t requests, std::uint64_t ids)
      : random_(seed), left_(requests), ids_(ids) {}
  std::string_view format() const override { return "random"; }
  std::uint32_t block_tokens() const override { return 16; }
  Result<bool> next(RawRequest& request) override {
    if (left_-- == 0) return false;
    const std::size_t blocks = random_() % 12;
    request.blocks.clear();
    for (std::size_t i = 0; i < blocks; ++i) request.blocks.push_back((random_() % ids_) << (random_() % 2 ? 32 : 0));
    request.output_blocks = static_cast<std::uint32_t>(blocks == 0 ? 0 : random_() % blocks);
    request.input_tokens = static_cast<std::uint32_t>((blocks - request.output_blocks) * 16);
    request.arrival_s += 1;
    return true;
  }

 private:
  std::mt19937 random_;
  std::size_t left_;
  std::uint64_t ids_;
};

TEST_F(LoadTest, BlocksAreNumberedByFirstAppearanceOfTheirWholePrefix) {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    const std::uint64_t ids = 1 + seed % 7;
    RandomReader reader(seed, 2000, ids), again(seed, 2000, ids);
    const auto trace = load_trace(reader, "random");
    ASSERT_TRUE(trace) << trace.error().message;
    std::map<Ids, BlockId> numbers;  // by whole prefix
    RawRequest raw;
    for (std::size_t i = 0; *again.next(raw); ++i) {
      const Blocks blocks = blocks_of(*trace, i);
      ASSERT_EQ(blocks.size(), raw.blocks.size());
      EXPECT_EQ(trace->requests[i].output_blocks, raw.output_blocks);
      Ids prefix;
      BlockId parent = kNoBlock;
      for (std::size_t k = 0; k < blocks.size(); ++k) {
        prefix.push_back(raw.blocks[k]);
        const auto [at, is_new] = numbers.try_emplace(prefix, numbers.size());
        ASSERT_EQ(blocks[k], at->second) << "seed " << seed << " request " << i << " block " << k;
        ASSERT_EQ(trace->parents[blocks[k]], parent);
        parent = blocks[k];
      }
    }
    EXPECT_EQ(trace->unique_blocks(), numbers.size());
  }
}

struct Facts {
  const char* file;
  std::uint32_t block_tokens;
  std::size_t requests, prompt_blocks, output_blocks, unique;
};

class RealTraceTest : public ::testing::TestWithParam<Facts> {};

TEST_P(RealTraceTest, HasThePublishedCounts) {
  const char* folder = std::getenv("SHALE_DATA_DIR");
  const auto path = std::filesystem::path(folder ? folder : "") / "traces" / GetParam().file;
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "SHALE_DATA_DIR names no folder with traces/" << GetParam().file;
  const auto trace = load_trace(path);
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_EQ(trace->block_tokens, GetParam().block_tokens);
  EXPECT_EQ(trace->requests.size(), GetParam().requests);
  std::size_t prompt = 0, output = 0;
  for (const TraceRequest& request : trace->requests) {
    prompt += request.prompt_blocks;
    output += request.output_blocks;
  }
  EXPECT_EQ(prompt, GetParam().prompt_blocks);
  EXPECT_EQ(output, GetParam().output_blocks);
  EXPECT_EQ(trace->unique_blocks(), GetParam().unique);
}

// Mooncake's and Azure's counts as published; the sessions' blocks counted apart by a script of another language.
INSTANTIATE_TEST_SUITE_P(Files, RealTraceTest,
                         ::testing::Values(Facts{"mooncake_conversation_trace.jsonl", 512, 12'031, 288'500, 0, 182'790},
                                           Facts{"mooncake_synthetic_trace.jsonl", 512, 3'993, 121'877, 0, 43'924},
                                           Facts{"claude_code_sessions.jsonl.gz", 64, 49'334, 94'310'647, 291'266,
                                                 3'450'959},
                                           Facts{"azure_llm_2023_code.csv", 512, 8'819, 40'014, 0, 40'014},
                                           Facts{"azure_llm_2023_conv.csv", 512, 19'366, 52'913, 0, 52'913}),
                         [](const auto& facts) {
                           std::string name = facts.param.file;
                           std::erase_if(name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); });
                           return name;
                         });

}  // namespace
}  // namespace shale::testing
