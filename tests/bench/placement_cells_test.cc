// What a placement benchmark keeps, and what it makes of it.
#include "loadtest/placement/placement_cells.h"

#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <fstream>
#include <string>
#include <string_view>

#include "loadtest/placement/placement_compare.h"
#include "loadtest/placement/placement_quality.h"
#include "loadtest/placement/placement_report.h"
#include "loadtest/placement/placement_rest.h"
#include "support/temporary_folder.h"

namespace shale {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ServeRow row_of(std::string planner, std::initializer_list<double> ttfts, std::vector<ServedForm> forms = {}) {
  ServeRow row;
  row.planner = std::move(planner);
  row.rate = 2;
  row.rate_to_prefill = 0.5;
  for (const double ttft : ttfts) {
    row.load.push_back({.at_s = 10.0 * static_cast<double>(row.load.size()), .context = row.load.size() % 2});
    ServedAnswer answer;
    answer.pieces_s = {ttft};
    answer.prompt_tokens = 100;
    answer.completion_tokens = 7;
    answer.computed_tokens = 40;
    answer.cached_tokens = {{"disk", 60}};
    answer.forms = forms;
    answer.text = "a rock";
    row.answers.push_back(std::move(answer));
  }
  return row;
}

class PlacementFileTest : public ::testing::Test {
 protected:
  PlacementFile open(const std::string& setting = "here") { return PlacementFile::open(path_, setting).value(); }

  testing::TemporaryFolder folder_;
  std::string path_ = folder_.path() / "cells.jsonl";
};

TEST_F(PlacementFileTest, GoesOnWhereItStopped) {
  const FormKey key{.context = 1, .question = 0, .method = "knorm+int8", .keep = 0.5};
  {
    PlacementFile file = open();
    EXPECT_TRUE(file.is_new());
    ASSERT_TRUE(file.add("tokens_per_s", 900));
    PlacementCell cell = cell_of("shale, alpha 1", row_of("shale", {1, 2, 3}, {{"knorm+int8", 0.5, 60, "disk"}}));
    cell.settle_s = 60;
    ASSERT_TRUE(file.add(cell));
    ASSERT_TRUE(file.add(key, 0.75));
    ASSERT_TRUE(file.add_reference(1, 0, "a \"rock\"\n"));
  }
  std::ofstream(path_, std::ios::app) << R"({"cell": "cut sho)";
  for (int i = 0; i < 2; ++i) {
    const PlacementFile file = open();
    EXPECT_FALSE(file.is_new());
    EXPECT_EQ(file.value("tokens_per_s"), 900);
    EXPECT_FALSE(file.value("requests_per_s"));
    ASSERT_EQ(file.cells().size(), 1u);
    EXPECT_EQ(file.has("shale, alpha 1", 0.5, 1, 60), true);
    EXPECT_EQ(file.has("shale, alpha 1", 0.5, 2, 5), false);
    EXPECT_EQ(file.has("shale, alpha 2", 0.5, 1, 5), false);
    const auto rested = file.has("shale, alpha 1", 0.5, 1, 5);
    ASSERT_FALSE(rested);
    EXPECT_THAT(rested.error().message, HasSubstr("after 60 s of rest, not 5"));
    const PlacementCell& cell = file.cells().front();
    ASSERT_EQ(cell.answers.size(), 3u);
    EXPECT_EQ(cell.answers[1].arrival_s, 10);
    EXPECT_EQ(cell.answers[1].prompt_tokens, 100u);
    EXPECT_EQ(cell.answers[1].completion_tokens, 7u);
    EXPECT_EQ(cell.answers[1].ttft_s, 2);
    EXPECT_EQ(cell.answers[1].forms.front(), (ServedForm{"knorm+int8", 0.5, 60, "disk"}));
    EXPECT_EQ(cell.cached_tokens.at("disk"), 180u);
    EXPECT_EQ(file.agreement().at(key), 0.75);
    EXPECT_EQ(file.references().at({1, 0}), "a \"rock\"\n");
    EXPECT_EQ(agreement_of(cell.answers[1], file), 0.75);
    EXPECT_EQ(agreement_of(PlacementAnswer(), file), 1) << "exact";
  }
}

// Its last byte is a write of its own where a row is large.
TEST_F(PlacementFileTest, DropsARowThatLacksItsEndAlone) {
  {
    PlacementFile file = open();
    ASSERT_TRUE(file.add("kept", 1));
    ASSERT_TRUE(file.add("dropped", 2));
  }
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) - 1);
  {
    PlacementFile file = open();
    EXPECT_FALSE(file.value("dropped"));
    ASSERT_TRUE(file.add("next", 3));
  }
  const PlacementFile file = open();
  EXPECT_EQ(file.value("kept"), 1);
  EXPECT_EQ(file.value("next"), 3);
}

TEST_F(PlacementFileTest, BeginsAnewWhereItsFirstLineWasCutShort) {
  std::ofstream(path_) << R"({"setting": "he)";
  EXPECT_TRUE(open().is_new());
  EXPECT_FALSE(open().is_new());
}

TEST_F(PlacementFileTest, LeavesAloneWhatIsNoFileOfCells) {
  constexpr std::string_view kOther = R"({"a": 1})";  // a line without its end, too
  std::ofstream(path_) << kOther;
  const auto opened = PlacementFile::open(path_, "here");
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::kCorrupt);
  std::string left;
  std::getline(std::ifstream(path_), left);
  EXPECT_EQ(left, kOther);
}

TEST_F(PlacementFileTest, RefusesWhatWasMeasuredOtherwise) {
  open();
  const auto other = PlacementFile::open(path_, "elsewhere");
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::kInvalidArgument);
  std::ofstream(path_, std::ios::app) << "no row\n{\"value\": \"x\", \"is\": 1}\n";
  const auto damaged = PlacementFile::open(path_, "here");
  ASSERT_FALSE(damaged);
  EXPECT_NE(damaged.error().message.find(":2:"), std::string::npos) << damaged.error().message;
}

TEST_F(PlacementFileTest, IsSummedUpByPolicy) {
  PlacementFile file = open();
  ASSERT_TRUE(file.add(cell_of("lru", row_of("lru", {4, 4}))));
  ASSERT_TRUE(file.add(cell_of("fixed:int8", row_of("fixed:int8", {3, 3}, {{"int8", 1, 60, "disk"}}))));
  ServeRow row = row_of("shale", {1, 2}, {{"int8", 1, 60, "disk"}});
  row.metrics = {{"shale_cache_background_seconds_total", 5}, {"shale_cache_planning_seconds_total", 1}};
  row.answers.back().end_s = 40;
  ASSERT_TRUE(file.add(cell_of("shale, alpha 1", row)));
  for (const std::size_t context : {0u, 1u}) {
    ASSERT_TRUE(file.add({.context = context, .method = "int8"}, context == 0 ? 0.9 : 1.0));
    ASSERT_TRUE(file.add_reference(context, 0, "a rock"));
  }
  const std::vector<LoadContext> contexts = {{.id = "a", .questions = {"?"}, .dataset = "x", .answers = {{"rock"}}},
                                             {.id = "b", .questions = {"?"}, .dataset = "y", .answers = {{}}}};
  AnswerMetrics metrics;
  const auto summaries = summaries_of(file, contexts, metrics).value();
  ASSERT_EQ(summaries.size(), 3u);
  const PlacementSummary& shale = summaries[2];
  EXPECT_EQ(shale.policy, "shale, alpha 1");
  EXPECT_DOUBLE_EQ(shale.ttft_mean, 1.5);
  EXPECT_DOUBLE_EQ(shale.agreement.mean, 0.95);
  EXPECT_DOUBLE_EQ(shale.alike.at("f1"), 1);
  EXPECT_DOUBLE_EQ(*shale.gold_f1, 1) << "without its article, of the one that has a gold answer";
  EXPECT_DOUBLE_EQ(shale.from.at("disk"), 0.6);
  EXPECT_DOUBLE_EQ(shale.forms.at("disk: int8@1"), 1);
  EXPECT_EQ(shale.lossy, 2u);
  EXPECT_DOUBLE_EQ(shale.busy_share, 0.1) << "the last was planned at 10, and done 40 later";
  EXPECT_DOUBLE_EQ(shale.taken_share, 0.02);
  const auto ratio = ratio_to_envelope(shale, std::span(summaries).subspan(1, 1));
  ASSERT_TRUE(ratio);
  EXPECT_DOUBLE_EQ(ratio->mean, 2);
  EXPECT_LE(ratio->low, 2);
  EXPECT_GE(ratio->high, 2);
  EXPECT_FALSE(ratio_to_envelope(summaries[0], std::span(summaries).subspan(1, 1))) << "none is as good as exact";

  const std::string tables = placement_tables(summaries, contexts);
  EXPECT_THAT(tables, Not(HasSubstr("REST")));
  EXPECT_THAT(tables, Not(HasSubstr("PROGRAM")));
  EXPECT_NE(tables.find("shale, alpha 1"), std::string::npos);
  EXPECT_NE(tables.find("2.00 ["), std::string::npos);
  EXPECT_NE(placement_page(summaries, contexts, "<here>").find("&lt;here&gt;"), std::string::npos);
}

// One data set is expected too low and the other too high: their mean would be right.
TEST_F(PlacementFileTest, ShowsWhatWasExpectedOfEveryDataSet) {
  PlacementFile file = open();
  ServeRow row = row_of("shale", {1, 2, 3, 4}, {{"int8", 1, 60, "disk"}});
  for (std::size_t i = 0; i < 3; ++i) row.answers[i].expected_quality = i % 2 == 0 ? 0.7 : 1.0;
  row.answers[3].forms = {};  // exact
  ASSERT_TRUE(file.add(cell_of("shale, alpha 1", row)));
  ASSERT_TRUE(file.add(cell_of("lru", row_of("lru", {4, 4}))));
  for (const std::size_t context : {0u, 1u}) {
    ASSERT_TRUE(file.add({.context = context, .method = "int8"}, context == 0 ? 0.9 : 0.6));
    ASSERT_TRUE(file.add_reference(context, 0, "a rock"));
  }
  std::vector<LoadContext> contexts = {{.id = "a", .questions = {"?"}, .dataset = "keys"},
                                       {.id = "b", .questions = {"?"}, .dataset = "prose"}};
  AnswerMetrics metrics;
  const auto summaries = summaries_of(file, contexts, metrics).value();
  const auto table = [&] {
    const std::string tables = placement_tables(summaries, contexts);
    return tables.substr(tables.find("lossy answers by data set"));
  };
  for (const char* part : {" keys ", "0.700 / 0.900 (2)", " prose\n", "1.000 / 0.600 (1)", "0.800 / 0.800 (3)"}) {
    EXPECT_THAT(table(), HasSubstr(part));
  }
  EXPECT_THAT(table(), Not(HasSubstr("lru"))) << "nothing lossy";
  contexts[0].dataset = "prose";
  EXPECT_THAT(table(), HasSubstr("0.800 / 0.800 (3)\n")) << "one data set is all";
}

TEST_F(PlacementFileTest, ShowsInWhatElseRowsDiffer) {
  PlacementFile file = open();
  PlacementCell fixed = cell_of("lru", row_of("lru", {4, 4})), shale = cell_of("shale, alpha 1", row_of("shale", {1}));
  fixed.settle_s = 5;
  shale.settle_s = 180;
  shale.written = false;
  fixed.program = "0.1.0 aaaaaaaa";
  shale.program = "0.1.0 bbbbbbbb";
  ASSERT_TRUE(file.add(fixed));
  ASSERT_TRUE(file.add(shale));
  for (const std::size_t context : {0u, 1u}) ASSERT_TRUE(file.add_reference(context, 0, "a rock"));
  const std::vector<LoadContext> contexts = {{.id = "a", .questions = {"?"}}, {.id = "b", .questions = {"?"}}};
  AnswerMetrics metrics;
  const auto summaries = summaries_of(file, contexts, metrics).value();
  const std::string tables = placement_tables(summaries, contexts);
  for (const char* part : {"REST", "PROGRAM", " 5 s ", " 180 s, still writing ", "0.1.0 aaaaaaaa", "0.1.0 bbbbbbbb"}) {
    EXPECT_THAT(tables, HasSubstr(part));
  }
  EXPECT_EQ(to_json(summaries[1]).at("rest"), Json::array({"180 s, still writing"}));
}

TEST(PlacementRest, HasBegunOnceEveryTierIsWritten) {
  const Metrics rests = {{"vllm:num_requests_running", 0},
                         {"shale_cache_saving_chunks", 0},
                         {"shale_cache_saves_left", 0},
                         {"shale_cache_moves_left", 0},
                         {"shale_tier_write_queue_bytes{tier=\"disk\"}", 0},
                         {"shale_tier_write_queue_bytes{tier=\"remote\"}", 0}};
  EXPECT_EQ(unrest_of(rests), "");
  for (const auto& [name, nothing] : rests) {
    Metrics busy = rests;
    busy[name] = 2;
    EXPECT_NE(unrest_of(busy), "") << name;
  }
}

// Answers of equal agreement, a context each in turn, one of two seconds apart.
PlacementSummary answered(const std::string& policy, std::span<const double> ttfts) {
  PlacementSummary summary;
  summary.policy = policy;
  for (std::size_t i = 0; i < ttfts.size(); ++i) {
    summary.answered.push_back(
        {.number = i, .context = i % 10, .arrival_s = 2 * static_cast<double>(i), .ttft_s = ttfts[i], .agreement = 1});
  }
  return summary;
}

double width(const Interval& interval) { return interval.high - interval.low; }

// Ten neighbours waited for one another: that is one event, not ten.
TEST(RatioToEnvelope, TakesAQueueForOneEvent) {
  const std::vector<double> soon(100, 0.1);
  std::vector<double> queue = soon, scattered = soon;
  for (std::size_t i = 0; i < 10; ++i) queue[40 + i] = scattered[10 * i + i] = 5;
  const PlacementSummary own = answered("shale", soon);
  const std::vector<PlacementSummary> queued = {answered("lru", queue)}, alone = {answered("lru", scattered)};
  const Interval one = ratio_to_envelope(own, queued).value(), ten = ratio_to_envelope(own, alone).value();
  EXPECT_DOUBLE_EQ(one.mean, ten.mean);
  EXPECT_GT(width(one), 1.3 * width(ten));
  EXPECT_LT(one.low, one.mean);
  EXPECT_GT(one.high, one.mean);
}

// The same slow requests under both: their ratio is sure.
TEST(RatioToEnvelope, ComparesTheSameRequests) {
  std::vector<double> times(100), twice;
  for (std::size_t i = 0; i < times.size(); ++i) times[i] = i % 7 == 0 ? 1 : 0.125;
  for (const double time : times) twice.push_back(2 * time);
  const std::vector<PlacementSummary> others = {answered("lru", twice)};
  const Interval ratio = ratio_to_envelope(answered("shale", times), others).value();
  EXPECT_DOUBLE_EQ(ratio.low, 2);
  EXPECT_DOUBLE_EQ(ratio.high, 2);
}

// Where it hangs on a few requests whether another is as good, the interval has no end.
TEST(RatioToEnvelope, IsOpenWhereOthersMayNotBeAsGood) {
  const std::vector<double> times(100, 0.1);
  PlacementSummary own = answered("shale", times);
  std::vector<PlacementSummary> others = {answered("lru", times)};
  own.answered[3].agreement = others[0].answered[97].agreement = 0.5;
  const auto ratio = ratio_to_envelope(own, others);
  ASSERT_TRUE(ratio);
  EXPECT_DOUBLE_EQ(ratio->mean, 1);
  EXPECT_TRUE(std::isinf(ratio->high));
}

TEST(Envelope, IsConvexAndEndsWhereThePointsEnd) {
  const auto points = std::to_array<std::pair<double, double>>({{0.5, 1}, {0.9, 5}, {0.8, 8}, {0.7, 2}});
  EXPECT_DOUBLE_EQ(envelope(points, 0.5).value(), 1);
  EXPECT_DOUBLE_EQ(envelope(points, 0.6).value(), 1.5);
  EXPECT_DOUBLE_EQ(envelope(points, 0.8).value(), 3.5) << "a mixture, not the point above it";
  EXPECT_DOUBLE_EQ(envelope(points, 0.9).value(), 5);
  EXPECT_FALSE(envelope(points, 0.91));
  EXPECT_DOUBLE_EQ(envelope(points, 0.1).value(), 1) << "more is as good";
  EXPECT_FALSE(envelope({}, 0.5));
}

}  // namespace
}  // namespace shale
