#include "report/quality_report.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>
#include <map>

#include "report/prediction_report.h"
#include "runtime/quality_contexts.h"
#include "support/temporary_folder.h"

namespace shale {
namespace {

using ::testing::HasSubstr;

QualityRow row(std::string context, std::string method, double keep, double agreement) {
  QualityRow row;
  row.model = "m";
  row.dataset = "d";
  row.context = std::move(context);
  row.method = std::move(method);
  row.keep = keep;
  row.tokens = 100;
  row.full_bytes = 1000;
  row.bytes = static_cast<std::uint64_t>(1000 * keep);
  row.agreement = agreement;
  return row;
}

const ReportTable& table(const std::vector<ReportTable>& tables, std::string_view part) {
  const auto found = std::ranges::find_if(tables, [&](const auto& one) { return one.title.contains(part); });
  if (found == tables.end()) throw std::out_of_range(std::string(part));
  return *found;
}

// Each method wins one context; choosing per context wins both.
TEST(QualityReportTest, ShowsWhatChoosingPerContextGains) {
  const std::vector<QualityRow> rows = {row("1", "near", 0.5, 0.9), row("1", "far", 0.5, 0.5),
                                        row("2", "near", 0.5, 0.6), row("2", "far", 0.5, 0.8)};
  const auto tables = quality_tables(rows);
  const auto& winners = table(tables, "wins").rows;
  ASSERT_EQ(winners.size(), 4u);
  EXPECT_EQ(winners[0][1], "far");
  EXPECT_EQ(winners[0][2], "50.0 %");
  EXPECT_EQ(winners[2][4], "0.850");   // the best of each context
  EXPECT_EQ(winners[3][4], "+0.100");  // over near, which is the best of all: 0.75
  EXPECT_EQ(table(tables, "by tokens kept").rows[0][0], "near");
}

// A sweep that was stopped: the third method has one context of two.
TEST(QualityReportTest, ComparesMethodsOverTheSameContexts) {
  const std::vector<QualityRow> rows = {row("1", "near", 0.5, 0.9), row("1", "far", 0.5, 0.5),
                                        row("2", "near", 0.5, 0.6), row("2", "far", 0.5, 0.8),
                                        row("1", "new", 0.5, 0.95)};
  const auto tables = quality_tables(rows);
  const ReportTable& winners = table(tables, "wins");
  ASSERT_EQ(winners.rows.size(), 3u);
  EXPECT_EQ(winners.rows[0], (std::vector<std::string>{"keep 0.5", "new", "100.0 %", "100", "0.950", "0.000"}));
  EXPECT_EQ(winners.rows[2][1], "gained over new");
  EXPECT_THAT(winners.note, HasSubstr("keep 0.5: the 1 of 2 contexts that have every method"));
  const auto of = [&](std::string_view part, const std::string& method) {
    const auto& lines = table(tables, part).rows;
    return std::ranges::find(lines, method, [](const auto& line) { return line.front(); })->back();
  };
  EXPECT_EQ(of("by tokens kept", "new"), "0.950 [0.950, 0.950], 1 of 2 contexts");
  EXPECT_EQ(of("by data set", "new"), "0.950, 1 of 2 contexts");
  EXPECT_EQ(of("by data set", "near"), "0.750");

  const std::vector<QualityRow> others = {row("1", "near", 0.5, 0.9), row("2", "far", 0.5, 0.5)};
  const auto apart = quality_tables(others);
  EXPECT_TRUE(std::ranges::none_of(apart, [](const auto& one) { return one.title.contains("wins"); }))
      << "no context has both";
}

TEST(QualityReportTest, NeverMixesSeenAndUnseenQuestions) {
  std::vector<QualityRow> rows = {row("1", "a", 0.5, 1), row("1", "a", 0.5, 0)};
  rows[1].question_seen = true;
  const auto tables = quality_tables(rows);
  EXPECT_TRUE(table(tables, "not seen when compressing: Agreement by tokens kept").rows[0][1].starts_with("1.000"));
  EXPECT_TRUE(
      table(tables, "question seen when compressing: Agreement by tokens kept").rows[0][1].starts_with("0.000"));
}

TEST(QualityReportTest, NeverMixesSettings) {
  std::vector<QualityRow> rows = {row("1", "a", 0.5, 1), row("1", "a", 0.5, 0.5), row("1", "a", 0.5, 0)};
  for (QualityRow& each : rows) each.texts = "0";
  rows[0].answer_tokens = rows[1].answer_tokens = rows[2].answer_tokens = 24;
  rows[0].window = rows[1].window = 64;
  rows[2].window = 8;
  rows[1].context_tokens_max = 100;
  const auto tables = quality_tables(rows);
  const auto mean = [&](std::string_view setting) {
    return table(tables, fmt::format("{}: Agreement by tokens kept", setting)).rows[0][1].substr(0, 5);
  };
  EXPECT_EQ(mean("window 64, contexts of any length"), "1.000");
  EXPECT_EQ(mean("window 64, contexts of 100 tokens"), "0.500");
  EXPECT_EQ(mean("window 8, contexts of any length"), "0.000");
  rows.resize(1);
  EXPECT_TRUE(table(quality_tables(rows), "not seen when compressing: Agreement").title.starts_with("m, question"))
      << "one setting needs no name";
}

// Mass orders three configurations of each context as measuring does, error the other way round, and of the other
// context only where both agree.
TEST(QualityReportTest, SaysHowWellCheapPredictionsOrderConfigurations) {
  std::vector<QualityRow> rows;
  for (const std::string context : {"1", "2"}) {
    for (const auto& [method, agreement] : {std::pair{"a", 0.9}, {"b", 0.6}, {"c", 0.3}}) {
      QualityRow one = row(context, method, 0.5, context == "1" || agreement == 0.6 ? agreement : 1.2 - agreement);
      one.predicted = {{"mass", one.agreement / 2}, {"error", one.agreement}, {"probe", 0.5}};
      one.seconds = {{"measured", 8}, {"signals", 2}, {"probe", 4}};
      rows.push_back(one);
    }
  }
  const auto tables = quality_tables(rows);
  const auto& skills = table(tables, "predicted").rows;
  using Line = std::vector<std::string>;
  ASSERT_EQ(skills.size(), 4u) << "a probe that tells nothing apart is left out";
  EXPECT_EQ(skills[0], (Line{"measured", "2", "1.000", "", "8.00", "100 %"}));
  EXPECT_EQ(skills[1], (Line{"mass", "2", "1.000", "", "2.00", "25 %"}));
  EXPECT_EQ(skills[2], (Line{"error", "2", "-1.000", "", "2.00", "25 %"}));
  EXPECT_EQ(skills[3], (Line{"ten contexts", "2", "-1.000", "", "0.00", "0 %"}));
  rows.front().predicted.clear();
  const Json json = to_json(rows.back());
  EXPECT_EQ(json.at("predicted").at("error"), rows.back().predicted.at("error"));
  EXPECT_FALSE(to_json(rows.front()).contains("predicted"));
}

// Code loses more than prose, and within both the contexts of less mass. Shipped texts know the first, a regression
// over other data sets the second.
TEST(QualityReportTest, SaysHowWellAPriorPredictsDataSetsThatItNeverSaw) {
  std::vector<QualityRow> rows;
  const auto add = [&](const std::string& dataset, const std::string& kind, const std::string& context, double lost,
                       double own) {
    for (const auto& [method, agreement] : {std::pair{"knorm", 0.7}, {"keydiff", 0.8}, {"int8", 0.99}}) {
      const double measured = method == std::string("int8") ? 0.99 : agreement - lost - own;
      QualityRow& one = rows.emplace_back(row(context, method, method == std::string("int8") ? 1 : 0.5, measured));
      one.dataset = dataset;
      one.kind = kind;
      one.predicted = {{"mass", 1 - own}, {"error", 0.1}, {"probe", 0.5}};
      one.seconds = {{"measured", 8}, {"signals", 1}, {"probe", 4}};
    }
  };
  for (const std::string i : {"1", "2", "3"}) {
    add(std::string(kPriorDataset), "prose", "p" + i, 0, 0.03);
    add(std::string(kPriorDataset), "code", "c" + i, 0.3, 0.03);
  }
  for (const std::string dataset : {"one", "two", "three"}) {
    const double shift = dataset == "two" ? 0.01 : 0;
    for (int i = 0; i < 4; ++i) {
      add(dataset, "prose", std::to_string(i), 0, 0.02 * i + shift);
      add(dataset, "code", std::to_string(10 + i), 0.3, 0.02 * i + shift);
    }
  }
  std::map<std::string, PredictionSkill> skills;
  std::vector<const QualityRow*> all;
  for (const QualityRow& one : rows) all.push_back(&one);
  for (const PredictionSkill& skill : prediction_skills(all)) skills[skill.predictor] = skill;
  EXPECT_EQ(skills["prior"].contexts, 24u) << "the shipped texts are not predicted";
  EXPECT_EQ(skills["prior"].rank_correlation, 1);
  EXPECT_GT(skills["prior"].between.value(), 0.7);
  EXPECT_GT(skills["and signals"].between.value(), skills["prior"].between.value() + 0.05);
  EXPECT_GT(skills["and signals"].between.value(), 0.95);
  EXPECT_EQ(skills["and signals"].seconds, 1);
  for (const auto& table : quality_tables(rows)) {
    if (!table.title.ends_with("by data set")) continue;
    for (const auto& line : table.rows) EXPECT_NE(line.front(), kPriorDataset);
  }
}

TEST(QualityReportTest, DrawsQualityAgainstBytesForAllAndForEachContext) {
  std::vector<QualityRow> rows = {row("1", "a", 0.5, 1), row("1", "a", 0.1, 0.5), row("2", "a", 0.5, 0.8),
                                  row("1", "int8", 1, 0.4), row("1", "full", 1, 1)};
  rows[3].bits = 8;
  rows[3].bytes = 520;
  const auto charts = quality_charts(rows);
  ASSERT_EQ(charts.size(), 3u);
  ASSERT_EQ(charts[0].lines.size(), 2u);
  EXPECT_EQ(charts[0].lines[0].points, (std::vector<std::pair<double, double>>{{0.1, 0.5}, {0.5, 0.9}}));
  EXPECT_EQ(charts[0].lines[1].points, (std::vector<std::pair<double, double>>{{0.52, 0.4}}));
  const auto tables = quality_tables(rows);
  const auto& all = table(tables, "Bytes, agreement and KL").rows;
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0][3], "52.0 %");
  const std::string page = to_html(tables, charts);
  EXPECT_NE(page.find("<svg"), std::string::npos);
  EXPECT_EQ(page.find("http:"), page.find("http://www.w3.org"));
}

TEST(QualityReportTest, NoRowsAreNoTables) {
  EXPECT_TRUE(quality_tables({}).empty());
  EXPECT_TRUE(quality_charts({}).empty());
}

TEST(QualityRowsTest, AreReadAsWritten) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "rows.jsonl";
  EXPECT_TRUE(read_quality_rows(path).value().empty());
  QualityRow written = row("1", "snapkv+int8", 0.25, 0.5);
  written.answer_tokens = 24;
  written.window = 64;
  written.context_tokens_max = 100;
  written.texts = "of the texts";
  written.answer = {{"f1", 0.25}};
  written.text = "an answer";
  written.kl = std::numeric_limits<double>::infinity();
  std::ofstream(path) << to_json(written).dump() << "\n" << to_json(written).dump().substr(0, 40);
  const auto rows = read_quality_rows(path).value();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(to_json(rows[0]), to_json(written));
}

TEST(QualityRowsTest, ALastRowThatWasCutIsLeftOutAndDropped) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "rows.jsonl";
  ASSERT_TRUE(drop_cut_row(path));
  EXPECT_TRUE(read_quality_rows(path).value().empty()) << "an empty file";
  const std::string whole = line_of(row("1", "a", 1, 1));
  for (const std::string cut : {"", "{\"answer\"", "{\"text\":\"\xc3"}) {
    std::ofstream(path, std::ios::trunc) << whole << cut;
    EXPECT_EQ(read_quality_rows(path).value().size(), 1u) << cut;
    EXPECT_EQ(std::filesystem::file_size(path), whole.size() + cut.size()) << "reading changes nothing";
    ASSERT_TRUE(drop_cut_row(path));
    EXPECT_EQ(std::filesystem::file_size(path), whole.size()) << cut;
  }
  EXPECT_FALSE(drop_cut_row(folder.path() / "nowhere/rows.jsonl"));
}

TEST(QualityRowsTest, WhatIsNoRowIsSaidWithItsLine) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "rows.jsonl";
  std::ofstream(path) << to_json(row("1", "a", 1, 1)).dump() << "\n{\"model\":1}\n";
  const auto rows = read_quality_rows(path);
  ASSERT_FALSE(rows);
  EXPECT_NE(rows.error().message.find("rows.jsonl:2"), std::string::npos) << rows.error().message;
}

}  // namespace
}  // namespace shale
