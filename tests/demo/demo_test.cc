// A tiny demo: three documents on a random model, in seconds.
#include "demo/demo.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/quantile.h"
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
  void ingested(const IngestedDocument& document) override { ingested_.push_back(document); }
  void answered(std::string_view planner, const AnsweredRequest& request, const DemoDocument&,
                const IngestedDocument&) override {
    requests_[std::string(planner)].push_back(request);
  }
  void compared(std::span<const DemoPolicy> policies, double) override {
    policies_.assign(policies.begin(), policies.end());
  }

  std::size_t tiers_ = 0, documents_ = 0;
  std::vector<IngestedDocument> ingested_;
  std::map<std::string, std::vector<AnsweredRequest>> requests_;
  std::vector<DemoPolicy> policies_;
};

std::string numbered_text(int seed) {
  std::string text;
  for (int i = 0; i < 12; ++i) {
    text += "Paragraph " + std::to_string(i * seed) + " of text " + std::to_string(seed) + " is short.\n\n";
  }
  return text;
}

std::vector<DemoDocument> three_documents() {
  std::vector<DemoDocument> documents;
  for (int seed = 1; seed <= 3; ++seed) {
    DemoDocument document;
    document.name = "document " + std::to_string(seed);
    document.text = numbered_text(seed);
    document.tokens = static_cast<std::uint32_t>(document.text.size());
    document.profiling = {"what is it about?"};
    document.requests = {"who wrote it?", "how short is it?"};
    documents.push_back(std::move(document));
  }
  return documents;
}

TEST(Demo, RunsSmall) {
  testing::TemporaryFolder folder;
  const fs::path path = folder.path() / "tiny.gguf";
  testing::write_tiny_model({.tied_head = false}, path);
  const auto model = Model::load(path, {.weights = WeightChoice::kFile, .threads = 1}).value();
  const ByteTokenizer tokenizer;

  const std::vector<DemoDocument> documents = three_documents();
  std::uint64_t tokens = 0;
  for (const DemoDocument& document : documents) tokens += document.tokens;
  CacheOptions options;
  options.methods = {"keydiff", "int8"};
  DemoHardware hardware;
  hardware.disk = {"a slow disk", 1e-3, 50e6, 50e6};
  hardware.remote = {"a slower remote", 5e-3, 20e6, 20e6};
  const auto open = [&](const std::string& planner) {
    CacheOptions its_own = options;
    its_own.planner = planner;
    return DemoStack::open(*model, tokenizer, its_own, hardware, tokens, 1024);
  };
  const std::vector<std::string> planners = {"prefill", "lru", "fixed:global:kvzip@0.5", "shale", "impress"};

  Recorder recorder;
  const Status status =
      run_demo(open, planners, documents, {.requests = 8, .answer_tokens = 4, .seed = 3}, recorder, {});
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(recorder.tiers_, 3u);
  EXPECT_EQ(recorder.documents_, 3u);
  ASSERT_EQ(recorder.ingested_.size(), 3u);
  for (const IngestedDocument& ingested : recorder.ingested_) {
    EXPECT_GT(ingested.recompute_s, 0);
    EXPECT_GT(ingested.pool_s, 0);
    EXPECT_EQ(ingested.profile.rows.size(), 1u + 4u + 1u + 4u + 4u) << "what others fix is measured, too";
    EXPECT_EQ(ingested.profile.rows.front().agreement, 1);
  }
  ASSERT_EQ(recorder.policies_.size(), planners.size());
  for (std::size_t p = 0; p < planners.size(); ++p) {
    const DemoPolicy& policy = recorder.policies_[p];
    EXPECT_EQ(policy.planner, planners[p]);
    EXPECT_EQ(policy.ttft_s.size(), 8u);
    EXPECT_EQ(policy.hits[0] + policy.hits[1] + policy.hits[2] + policy.computed, 8u) << policy.planner;
    const std::vector<AnsweredRequest>& requests = recorder.requests_[planners[p]];
    ASSERT_EQ(requests.size(), 8u);
    for (std::size_t i = 0; i < 8; ++i) {
      EXPECT_GT(requests[i].ttft_s, 0);
      EXPECT_EQ(requests[i].document, recorder.requests_["lru"][i].document) << "the same requests";
      if (i > 0) {
        EXPECT_GE(requests[i].at_s, requests[i - 1].at_s);
      }
      if (requests[i].method.is_full()) {
        EXPECT_EQ(requests[i].agreement, 1);
      }
    }
  }
  EXPECT_EQ(recorder.policies_.front().computed, 8u);
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
  std::vector<DemoDocument> documents(12);
  for (DemoDocument& document : documents) document.requests = {"one", "two", "three"};
  documents[7].requests = {"one"};
  const auto requests = zipf_requests(documents, 6000, 5);
  std::map<std::size_t, int> asked;
  for (const DemoRequest& request : requests) {
    EXPECT_LT(request.question, documents[request.document].requests.size());
    ++asked[request.document];
  }
  std::vector<int> counts;
  for (const auto& [document, count] : asked) counts.push_back(count);
  std::ranges::sort(counts, std::greater());
  ASSERT_EQ(counts.size(), 12u) << "every document is asked about";
  EXPECT_NEAR(counts[0] / static_cast<double>(counts[1]), 2.0, 0.25);
  EXPECT_NEAR(counts[0] / static_cast<double>(counts[3]), 4.0, 0.7);
  const auto again = zipf_requests(documents, 6000, 5), other = zipf_requests(documents, 6000, 6);
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
