// What clients saw of a server becomes metrics, tables and pages.
#include "loadtest/serve/serve_report.h"

#include <gmock/gmock.h>

#include <array>
#include <tuple>

#include "loadtest/serve/serve_compare.h"

namespace shale {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// First text after `ttft` seconds, then a token every `itl`.
ServedAnswer answer(double ttft, double itl, std::uint32_t tokens = 3) {
  ServedAnswer answer;
  for (std::uint32_t i = 0; i < tokens; ++i) answer.pieces_s.push_back(ttft + i * itl);
  answer.end_s = answer.pieces_s.back() + 0.5;
  answer.prompt_tokens = 100;
  answer.completion_tokens = tokens;
  answer.computed_tokens = 30;
  answer.cached_tokens = {{"pool", 60}, {"disk", 10}};
  return answer;
}
ServedAnswer failed() {
  ServedAnswer answer;
  answer.error = "429: too many";
  return answer;
}

ServeRow row(const std::string& planner, std::vector<ServedAnswer> answers, double rate = 2, std::uint64_t seed = 1) {
  ServeRow row{.planner = planner,
               .rate = rate,
               .rate_to_prefill = rate / 4,
               .seed = seed,
               .load = {},
               .answers = std::move(answers),
               .metrics = {}};
  for (std::size_t i = 0; i < row.answers.size(); ++i) {
    row.load.push_back({.at_s = static_cast<double>(i), .chat = i, .context = i, .question = 0});
  }
  return row;
}

TEST(ServeMetrics, AreNearestRanksOfWhatWasAnswered) {
  std::vector<ServedAnswer> answers;
  for (int i = 1; i <= 100; ++i) answers.push_back(answer(i, 0.25));
  answers.push_back(failed());
  answers[7].lossy = true;
  answers[0].pieces_s[2] += 5;
  const ServeMetrics metrics = metrics_of(row("lru", answers));
  EXPECT_EQ(metrics.requests, 101u);
  EXPECT_EQ(metrics.failed, 1u);
  EXPECT_EQ(metrics.lossy, 1u);
  EXPECT_EQ(metrics.ttft.p50, 50);
  EXPECT_EQ(metrics.ttft.p90, 90);
  EXPECT_EQ(metrics.ttft.p99, 99);
  EXPECT_EQ(metrics.itl_p50, 0.25);
  EXPECT_EQ(metrics.itl_max, 5.25);
  EXPECT_EQ(metrics.e2e_p50, 51);
  EXPECT_EQ(metrics.prompt_tokens, 10'000u);
  EXPECT_EQ(metrics.computed_tokens, 3'000u);
  EXPECT_EQ(metrics.cached_tokens.at("pool"), 6'000u);
  EXPECT_DOUBLE_EQ(metrics.tokens_per_second, 300 / (99 + 101.0)) << "the last planned at 99, done 101 later";
}

TEST(ServeMetrics, RequestsThatMissThePoolAreThoseWithLessThanHalfOfIt) {
  std::vector<ServedAnswer> answers = {answer(1, 1), answer(2, 1), answer(3, 1)};
  answers[1].cached_tokens = {{"pool", 49}, {"disk", 40}};
  answers[2].cached_tokens = {};
  const ServeMetrics metrics = metrics_of(row("lru", answers));
  EXPECT_EQ(metrics.pool_missed, 2u);
  EXPECT_EQ(metrics.pool_missed_ttft_p50, 2);
}

// Also where the one before failed.
TEST(ServeReport, RepeatsAreRequestsWhoseContextWasAskedAboutBefore) {
  ServeRow prefill = row("prefill", {answer(9, 1), answer(8, 1), answer(2, 1), failed(), answer(4, 1), answer(6, 1)});
  for (std::size_t i = 0; i < 6; ++i) prefill.load[i].context = std::array{0, 1, 0, 2, 2, 1}[i];
  const ServeMetrics metrics = metrics_of(prefill);
  EXPECT_EQ(metrics.repeat_ttft.requests, 3u);
  EXPECT_EQ(metrics.repeat_ttft.p50, 4);
  EXPECT_EQ(metrics.repeat_ttft.p90, 6);
  EXPECT_EQ(metrics.ttft.p90, 9);

  ServeRow lru = prefill;
  lru.planner = "lru";
  for (const std::size_t repeat : {2, 4, 5}) lru.answers[repeat] = answer(1, 1);
  const std::vector<ServeRow> rows = {prefill, lru};
  const auto groups = groups_of(rows);
  const PairedValues paired = pair_up(groups[1], groups[0]);
  EXPECT_THAT(paired.repeat_ttft.own, ElementsAre(ElementsAre(1, 1, 1)));
  EXPECT_THAT(paired.repeat_ttft.base, ElementsAre(ElementsAre(2, 4, 6)));
  const std::string tables = text_tables(rows);
  EXPECT_THAT(tables, HasSubstr("4 / 6 / 6"));
  EXPECT_THAT(tables, HasSubstr("0.25 [0.25, 0.25]"));

  const Json json = to_json(prefill);
  EXPECT_EQ(json["repeats"], 3);
  EXPECT_EQ(json["repeat_ttft_p90"], 6);
  const auto requests = request_rows(prefill);
  EXPECT_EQ(requests[1]["repeat"], false);
  EXPECT_EQ(requests[4]["repeat"], true);
  const ServeRow first = row("lru", {answer(1, 1)});
  EXPECT_TRUE(to_json(first)["repeat_ttft_p50"].is_null());
  EXPECT_THAT(text_tables({&first, 1}), Not(HasSubstr("0 / 0 / 0")));
}

// Two chats of two turns, and one of three whose second failed.
TEST(ServeReport, LaterTurnsStandByThemselves) {
  ServeRow prefill = row("prefill", {answer(9, 1), answer(8, 1), answer(4, 1), answer(7, 1), answer(2, 1), failed()});
  for (std::size_t i = 0; i < 6; ++i) {
    prefill.load[i].chat = prefill.load[i].context = i % 3;
    prefill.load[i].turn = i / 3 + 1;
  }
  prefill.not_asked = 1;
  prefill.answers[4].computed_tokens = 60;
  const ServeMetrics metrics = metrics_of(prefill);
  EXPECT_EQ(metrics.requests, 6u);
  EXPECT_EQ(metrics.failed, 1u);
  EXPECT_EQ(metrics.not_asked, 1u);
  EXPECT_EQ(metrics.later_ttft.requests, 2u);
  EXPECT_EQ(metrics.later_ttft.p50, 2);
  EXPECT_EQ(metrics.later_ttft.p99, 7);
  EXPECT_EQ(metrics.later_computed_tokens, 45);
  EXPECT_EQ(metrics.ttft.p99, 9);

  const Json json = to_json(prefill);
  EXPECT_EQ(json["not_asked"], 1);
  EXPECT_EQ(json["later_turns"], 2);
  EXPECT_EQ(json["later_ttft_p90"], 7);
  EXPECT_EQ(json["later_computed_tokens_mean"], 45);
  const auto requests = request_rows(prefill);
  EXPECT_EQ(requests[4]["chat"], 1);
  EXPECT_EQ(requests[4]["turn"], 2);
  EXPECT_THAT(text_tables({&prefill, 1}), HasSubstr("2 / 7 / 7        45.0"));

  const ServeRow single = row("prefill", {answer(1, 1)});
  EXPECT_THAT(text_tables({&single, 1}), Not(HasSubstr("later turns")));
  EXPECT_TRUE(to_json(single)["later_ttft_p50"].is_null());
  EXPECT_TRUE(to_json(single)["later_computed_tokens_mean"].is_null());
}

TEST(ServeReport, SaysWhoseCoresOthersTook) {
  ServeRow lru = row("lru", {answer(1, 1)});
  lru.metrics = {{"shale_engine_threads_short_seconds_total", 7.25}};
  EXPECT_THAT(text_tables({&lru, 1}), HasSubstr("7.25 s"));
}

TEST(ServeReport, JsonHasEveryFieldAndNothingOfNothing) {
  ServeRow lru = row("lru", {answer(1, 0.5), failed()});
  lru.metrics = {{"shale_tier_read_bytes_total{tier=\"disk\"}", 4096},
                 {"shale_tier_written_bytes_total{tier=\"disk\"}", 8192},
                 {"shale_cache_background_seconds_total", 0.5},
                 {"shale_cache_planning_seconds_total", 0.25},
                 {"shale_cache_given_up_total", 3}};
  const Json json = to_json(lru);
  EXPECT_EQ(json["failed"], 1);
  EXPECT_EQ(json["ttft_p50"], 1);
  EXPECT_EQ(json["cached_tokens"], (Json{{"disk", 10}, {"pool", 60}}));
  EXPECT_EQ(json["bytes_read"], (Json{{"disk", 4096}}));
  EXPECT_EQ(json["bytes_written"], (Json{{"disk", 8192}}));
  EXPECT_EQ(json["background_seconds"], 0.5);
  EXPECT_EQ(json["planning_seconds"], 0.25);
  EXPECT_EQ(json["given_up"], 3);
  const Json none = to_json(row("lru", {failed()}));
  for (const char* field : {"ttft_p50", "itl_max", "e2e_p50"}) EXPECT_TRUE(none[field].is_null()) << field;
  const auto requests = request_rows(lru);
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0]["itl"], Json({0.5, 0.5}));
  EXPECT_EQ(requests[1]["error"], "429: too many");
  EXPECT_TRUE(requests[1]["ttft"].is_null());
}

TEST(ServeCompare, RowsOfARateAndPlannerAreAGroup) {
  const std::vector<ServeRow> rows = {row("prefill", {answer(1, 1)}, 1, 1), row("lru", {answer(2, 1)}, 1, 1),
                                      row("prefill", {answer(3, 1)}, 2, 1), row("lru", {answer(4, 1)}, 2, 1),
                                      row("prefill", {answer(5, 1)}, 1, 2), row("lru", {answer(6, 1)}, 1, 2)};
  const auto groups = groups_of(rows);
  ASSERT_EQ(groups.size(), 4u);
  EXPECT_EQ(groups[1].name, "lru");
  EXPECT_EQ(groups[1].rate, 1);
  EXPECT_THAT(groups[1].rows, ElementsAre(&rows[1], &rows[5]));
  EXPECT_EQ(base_of(groups, groups[1]), &groups[0]);
  EXPECT_EQ(base_of(groups, groups[3]), &groups[2]);
}

TEST(ServeReport, WhatStoodBesideIsARowOfItsOwn) {
  ServeRow alone = row("shale", {answer(1, 1)}), beside = row("shale", {answer(2, 1)});
  beside.dribbling = 500;
  beside.health = {.seconds = {0.25, 0.5, 0.125}, .failed = 1};
  const std::vector<ServeRow> rows = {alone, beside};
  ASSERT_EQ(groups_of(rows).size(), 2u);
  const std::string tables = text_tables(rows);
  EXPECT_THAT(tables, HasSubstr("of shale's, request by request"));
  EXPECT_THAT(tables, HasSubstr("shale+500"));
  EXPECT_THAT(tables, HasSubstr("2.00 [2.00, 2.00]"));
  EXPECT_THAT(tables, HasSubstr("0.25 / 0.5 / 0.5"));
  const Json json = to_json(beside);
  EXPECT_EQ(json["planner"], "shale");
  EXPECT_EQ(json["dribbling"], 500);
  EXPECT_EQ(json["health_asked"], 3);
  EXPECT_EQ(json["health_failed"], 1);
  EXPECT_EQ(json["health_max"], 0.5);
  EXPECT_TRUE(to_json(alone)["health_max"].is_null());
}

TEST(ServeCompare, WhatFailedUnderOneIsLeftOutUnderBoth) {
  const std::vector<ServeRow> rows = {row("prefill", {answer(1, 1), answer(2, 1), failed()}),
                                      row("lru", {answer(3, 1), failed(), answer(4, 1)})};
  const auto groups = groups_of(rows);
  const PairedValues paired = pair_up(groups[1], groups[0]);
  EXPECT_THAT(paired.ttft.own, ElementsAre(ElementsAre(3)));
  EXPECT_THAT(paired.ttft.base, ElementsAre(ElementsAre(1)));
  EXPECT_THAT(paired.itl.own, ElementsAre(ElementsAre(1, 1)));
}

// Later turns come in another order where answers took longer, and not at all where one before failed.
TEST(ServeCompare, RequestsAreComparedByChatAndTurn) {
  ServeRow prefill = row("prefill", {answer(1, 1), answer(2, 1), answer(3, 1), answer(4, 1)});
  ServeRow lru = row("lru", {answer(5, 1), answer(7, 1), failed()});
  const std::vector<std::pair<std::size_t, std::size_t>> theirs = {{0, 1}, {1, 1}, {0, 2}, {1, 2}};
  const std::vector<std::pair<std::size_t, std::size_t>> own = {{0, 1}, {0, 2}, {1, 1}};
  for (std::size_t i = 0; i < 4; ++i) std::tie(prefill.load[i].chat, prefill.load[i].turn) = theirs[i];
  for (std::size_t i = 0; i < 3; ++i) std::tie(lru.load[i].chat, lru.load[i].turn) = own[i];
  lru.not_asked = 1;
  const std::vector<ServeRow> rows = {prefill, lru};
  const auto groups = groups_of(rows);
  const PairedValues paired = pair_up(groups[1], groups[0]);
  EXPECT_THAT(paired.ttft.base, ElementsAre(ElementsAre(1, 3)));
  EXPECT_THAT(paired.ttft.own, ElementsAre(ElementsAre(5, 7)));
  EXPECT_THAT(paired.later_ttft.base, ElementsAre(ElementsAre(3)));
  EXPECT_THAT(paired.later_ttft.own, ElementsAre(ElementsAre(7)));
  EXPECT_THAT(text_tables(rows), HasSubstr("of these, later turns"));
}

TEST(ServeCompare, SpansAreAsLongAsTheLongestQueue) {
  const std::vector<ServedAnswer> soon(200, answer(0.1, 1)), late(200, answer(20, 1));
  const auto spans = [](const std::vector<ServedAnswer>& own, const std::vector<ServedAnswer>& base) {
    const std::vector<ServeRow> rows = {row("prefill", base), row("lru", own)};
    const auto groups = groups_of(rows);
    return pair_up(groups[1], groups[0]).ttft.own.size();
  };
  EXPECT_EQ(spans(soon, soon), 20u) << "of ten";
  EXPECT_EQ(spans(soon, late), 10u) << "of 21, and a rest";
  EXPECT_EQ(spans(late, std::vector<ServedAnswer>(200, answer(500, 1))), 4u) << "a quarter of the run";
}

TEST(ServeCompare, ARatioOfQuantilesHoldsTheTruth) {
  std::vector<std::vector<double>> base(20), twice(20), noisy(20);
  for (std::size_t i = 0; i < 200; ++i) {
    const double value = 1 + static_cast<double>(i * 37 % 200) / 200;
    base[i / 10].push_back(value);
    twice[i / 10].push_back(2 * value);
    noisy[i / 10].push_back(value * (i % 2 ? 1.3 : 0.8));
  }
  const Interval same = ratio_of_quantiles(base, base, 0.9), doubled = ratio_of_quantiles(twice, base, 0.5);
  EXPECT_EQ(same.low, 1);
  EXPECT_EQ(same.high, 1);
  EXPECT_DOUBLE_EQ(doubled.low, 2);
  EXPECT_DOUBLE_EQ(doubled.mean, 2);
  EXPECT_DOUBLE_EQ(doubled.high, 2);
  const Interval spread = ratio_of_quantiles(noisy, base, 0.5);
  EXPECT_LT(spread.low, spread.mean);
  EXPECT_LT(spread.mean, spread.high);
  const Interval of_few = ratio_of_quantiles(std::vector<std::vector<double>>{{}, {}, {}, {2, 2}},
                                             std::vector<std::vector<double>>{{}, {}, {}, {1, 1}}, 0.5);
  EXPECT_EQ(of_few.low, 2) << "nothing is told by groups without values";
  EXPECT_EQ(of_few.high, 2);
}

TEST(ServeReport, PagesShowEveryPlannerAndLoadNothing) {
  const std::vector<ServeRow> rows = {row("no-reuse", {answer(2, 1)}, 1), row("lru", {answer(1, 1)}, 1),
                                      row("no-reuse", {answer(4, 1)}, 2), row("lru", {answer(2, 1)}, 2)};
  const std::string tables = text_tables(rows);
  EXPECT_THAT(tables, HasSubstr("of no-reuse's, request by request"));
  EXPECT_THAT(tables, HasSubstr("0.50 [0.50, 0.50]"));
  const auto charts = charts_of(rows);
  ASSERT_EQ(charts.size(), 3u);
  ASSERT_EQ(charts[0].lines.size(), 2u);
  EXPECT_EQ(charts[0].lines[1].name, "lru");
  EXPECT_THAT(charts[0].lines[1].points, ElementsAre(std::pair(1.0, 1.0), std::pair(2.0, 2.0)));
  const std::string page = serve_page(rows, "a <model>");
  EXPECT_THAT(page, HasSubstr("a &lt;model&gt;"));
  EXPECT_THAT(page, HasSubstr("<polyline"));
  for (const char* loaded : {"<script", "<link", "src=", "url("}) EXPECT_THAT(page, Not(HasSubstr(loaded)));
}

TEST(ServeClient, ReadsEventsHoweverTheyArrive) {
  const std::string stream = "data: {\"a\":1}\n\n: a comment\ndata: two\n\ndata: [DONE]\n\n{\"error\"";
  for (const std::size_t piece : {1, 2, 7, 1000}) {
    std::vector<std::string> seen;
    EventStream events([&](std::string_view data) { seen.emplace_back(data); });
    for (std::size_t at = 0; at < stream.size(); at += piece) events.push(std::string_view(stream).substr(at, piece));
    EXPECT_THAT(seen, ElementsAre("{\"a\":1}", "two", "[DONE]")) << piece;
    EXPECT_EQ(events.rest(), "{\"error\"");
  }
}

TEST(ServeChild, ReadsMetricsWithoutTheModelsName) {
  const Metrics metrics = parse_metrics(
      "# HELP x Of a \"model\".\n# TYPE x counter\nx{model_name=\"a\\\"b\"} 3\n"
      "y{model_name=\"m\",tier=\"disk\"} 1.5\ny{model_name=\"m\",tier=\"memory\"} 2\nz 7\n");
  EXPECT_EQ(metrics.at("x"), 3);
  EXPECT_EQ(metrics.at("z"), 7);
  EXPECT_EQ(by_label(metrics, "y", "tier"), (std::map<std::string, double>{{"disk", 1.5}, {"memory", 2}}));
  EXPECT_TRUE(by_label(metrics, "x", "tier").empty());
}

}  // namespace
}  // namespace shale
