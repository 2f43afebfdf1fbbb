// A tiny demo: three documents on a random model, in seconds.
#include "cli/demo.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "cli/quantile.h"
#include "support/byte_tokenizer.h"
#include "support/gguf_writer.h"
#include "support/temporary_folder.h"

namespace shale {
namespace {

namespace fs = std::filesystem;
using testing::ByteTokenizer;

class Recorder final : public DemoReport {
 public:
  void begin(const ModelInfo&, std::span<const DemoTier> tiers, std::span<const DemoDocument> documents) override {
    tiers_ = tiers.size();
    documents_ = documents.size();
  }
  void met(const MetDocument& document) override { met_.push_back(document); }
  void answered(const AnsweredRequest& request, const DemoDocument&, const MetDocument&) override {
    requests_.push_back(request);
  }
  void compared(std::span<const DemoPolicy> policies, double) override {
    policies_.assign(policies.begin(), policies.end());
  }

  std::size_t tiers_ = 0, documents_ = 0;
  std::vector<MetDocument> met_;
  std::vector<AnsweredRequest> requests_;
  std::vector<DemoPolicy> policies_;
};

std::string numbered_text(int seed) {
  std::string text;
  for (int i = 0; i < 12; ++i) {
    text += "Paragraph " + std::to_string(i * seed) + " of text " + std::to_string(seed) + " is short.\n\n";
  }
  return text;
}

TEST(Demo, RunsSmall) {
  testing::TemporaryFolder folder;
  const fs::path path = folder.path() / "tiny.gguf";
  testing::write_tiny_model({}, path);
  const auto model = Model::load(path, {.weights = WeightChoice::kFile, .threads = 1}).value();
  const ByteTokenizer tokenizer;

  std::vector<DemoDocument> documents;
  std::uint64_t tokens = 0;
  for (int seed = 1; seed <= 3; ++seed) {
    DemoDocument document;
    document.name = "document " + std::to_string(seed);
    document.text = numbered_text(seed);
    document.tokens = static_cast<std::uint32_t>(document.text.size());
    document.profiling = {"what is it about?"};
    document.requests = {"who wrote it?", "how short is it?"};
    tokens += document.tokens;
    documents.push_back(std::move(document));
  }
  CacheOptions options;
  options.methods = {"keydiff", "int8"};
  DemoHardware hardware;
  hardware.disk = {"a slow disk", 1e-3, 50e6, 50e6};
  hardware.remote = {"a slower remote", 5e-3, 20e6, 20e6};
  auto stack = DemoStack::open(*model, tokenizer, options, hardware, tokens, 1024);
  ASSERT_TRUE(stack) << stack.error().message;

  Recorder recorder;
  const Status status = run_demo(**stack, documents, {.requests = 8, .answer_tokens = 4, .seed = 3}, recorder, {});
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(recorder.tiers_, 3u);
  EXPECT_EQ(recorder.documents_, 3u);
  ASSERT_EQ(recorder.met_.size(), 3u);
  for (const MetDocument& met : recorder.met_) {
    EXPECT_GT(met.recompute_s, 0);
    EXPECT_GT(met.pool_s, 0);
    EXPECT_EQ(met.profile.rows.size(), 1u + 4u + 1u);
    EXPECT_EQ(met.profile.rows.front().agreement, 1);
  }
  ASSERT_EQ(recorder.requests_.size(), 8u);
  for (std::size_t i = 0; i < 8; ++i) {
    const AnsweredRequest& request = recorder.requests_[i];
    EXPECT_GT(request.ttft_s, 0);
    if (i > 0) {
      EXPECT_GE(request.at_s, recorder.requests_[i - 1].at_s);
    }
    if (request.method.is_full()) {
      EXPECT_EQ(request.agreement, 1);
    }
  }
  std::vector<std::string> names;
  for (const DemoPolicy& policy : recorder.policies_) {
    names.push_back(policy.name.substr(0, policy.name.find(' ')));
    EXPECT_EQ(policy.ttft_s.size(), 8u);
    EXPECT_EQ(policy.hits[0] + policy.hits[1] + policy.hits[2] + policy.computed, 8u) << policy.name;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"prefill", "lru", "fixed", "shale", "shale"}));
  EXPECT_EQ(recorder.policies_.front().computed, 8u);
  EXPECT_TRUE((*stack)->cache().check_integrity());
}

TEST(Demo, TheFolderIsRemoved) {
  fs::path path;
  {
    const auto folder = TemporaryFolder::create();
    ASSERT_TRUE(folder) << folder.error().message;
    path = folder->path();
    EXPECT_TRUE(fs::exists(path));
    EXPECT_EQ(fs::status(path).permissions() & fs::perms::all, fs::perms::owner_all);
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST(Demo, RequestsFollowZipfAndTheSeed) {
  const auto requests = zipf_requests(12, 3, 6000, 5);
  std::map<std::size_t, int> asked;
  for (const DemoRequest& request : requests) {
    EXPECT_LT(request.question, 3u);
    ++asked[request.document];
  }
  std::vector<int> counts;
  for (const auto& [document, count] : asked) counts.push_back(count);
  std::ranges::sort(counts, std::greater());
  ASSERT_EQ(counts.size(), 12u) << "every document is asked about";
  EXPECT_NEAR(counts[0] / static_cast<double>(counts[1]), 2.0, 0.25);
  EXPECT_NEAR(counts[0] / static_cast<double>(counts[3]), 4.0, 0.7);
  const auto again = zipf_requests(12, 3, 6000, 5), other = zipf_requests(12, 3, 6000, 6);
  const auto same = [&](const auto& a) {
    return std::ranges::equal(requests, a, [](const DemoRequest& x, const DemoRequest& y) {
      return x.document == y.document && x.question == y.question;
    });
  };
  EXPECT_TRUE(same(again));
  EXPECT_FALSE(same(other));
}

TEST(Demo, DocumentsAreCutAtAParagraph) {
  const ByteTokenizer tokenizer;
  const std::string text = "first one\n\nsecond one\nof two lines\n\nthird";
  EXPECT_EQ(cut_to_fit(tokenizer, text, 1000), text);
  EXPECT_EQ(cut_to_fit(tokenizer, text, 40), "first one\n\nsecond one\nof two lines\n\n");
  EXPECT_EQ(cut_to_fit(tokenizer, text, 20), "first one\n\n");
  EXPECT_EQ(cut_to_fit(tokenizer, text, 10), "first one\n");
  EXPECT_EQ(cut_to_fit(tokenizer, text, 3), "");
  EXPECT_EQ(cut_to_fit(tokenizer, "x", 3), "x");
}

TEST(Demo, QuantilesAreNearestRank) {
  EXPECT_EQ(quantile({3, 1, 2, 4}, 0.5), 2);
  EXPECT_EQ(quantile({3, 1, 2, 4}, 0.9), 4);
  EXPECT_EQ(quantile({7}, 0.5), 7);
  EXPECT_EQ(quantile({}, 0.5), 0);
}

}  // namespace
}  // namespace shale
