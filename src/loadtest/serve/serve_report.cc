#include "loadtest/serve/serve_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <iterator>

#include "core/quantile.h"
#include "core/units.h"
#include "loadtest/serve/serve_compare.h"
#include "report/html_page.h"

namespace shale {
namespace {

std::string rate_text(double rate, double to_prefill) { return fmt::format("{:.3g} ({:.2g}x)", rate, to_prefill); }

template <class Value>
double mean(std::span<const ServeMetrics> metrics, const Value& value) {
  double sum = 0;
  for (const ServeMetrics& each : metrics) sum += static_cast<double>(std::invoke(value, each));
  return sum / static_cast<double>(metrics.size());
}

constexpr char kBytesRead[] = "shale_tier_read_bytes_total", kBytesWritten[] = "shale_tier_written_bytes_total";

std::string by_tier(std::span<const ServeRow* const> rows, const char* name) {
  std::map<std::string, double> sums;
  for (const ServeRow* row : rows) {
    for (const auto& [tier, bytes] : by_label(row->metrics, name, "tier"))
      sums[tier] += bytes / static_cast<double>(rows.size());
  }
  std::vector<std::string> words;
  for (const auto& [tier, bytes] : sums) {
    words.push_back(fmt::format("{} {}", tier, format_bytes(static_cast<std::uint64_t>(bytes))));
  }
  return words.empty() ? "-" : fmt::format("{}", fmt::join(words, ", "));
}

// "computed 41 %, pool 52 %, memory 0 %".
std::string sources(std::span<const ServeMetrics> metrics) {
  std::map<std::string, double> tokens;
  double computed = 0, prompt = 0;
  for (const ServeMetrics& each : metrics) {
    prompt += static_cast<double>(each.prompt_tokens);
    computed += static_cast<double>(each.computed_tokens);
    for (const auto& [source, count] : each.cached_tokens) tokens[source] += static_cast<double>(count);
  }
  if (prompt == 0) return "-";
  std::string out = fmt::format("computed {:.1f} %", 100 * computed / prompt);
  for (const auto& [source, count] : tokens) {
    if (count > 0) out += fmt::format(", {} {:.1f} %", source, 100 * count / prompt);
  }
  return out;
}

std::string slashed(double a, double b, double c) { return fmt::format("{:.3g} / {:.3g} / {:.3g}", a, b, c); }

// Means over the runs that have such requests.
std::string ttft_text(std::span<const ServeMetrics> metrics, TtftQuantiles ServeMetrics::* of) {
  std::vector<ServeMetrics> some;
  std::ranges::copy_if(metrics, std::back_inserter(some), [of](const auto& each) { return (each.*of).requests > 0; });
  if (some.empty()) return "-";
  const auto value = [&](double TtftQuantiles::* share) {
    return mean(some, [=](const ServeMetrics& each) { return each.*of.*share; });
  };
  return slashed(value(&TtftQuantiles::p50), value(&TtftQuantiles::p90), value(&TtftQuantiles::p99));
}

std::string latency_table(const std::vector<ServeGroup>& groups) {
  std::string out = fmt::format("{:<15} {:<10} {:>6}  {:>23}  {:>23}  {:>23}  {:>10} {:>8}  {}\n", "RATE", "PLANNER",
                                "FAILED", "TTFT p50 / p90 / p99", "REPEATS p50 / p90 / p99", "ITL p50 / p99 / max",
                                "ANSWER p50", "TOKENS/S", "TOKENS FROM");
  for (const ServeGroup& group : groups) {
    const std::span<const ServeMetrics> f = group.metrics;
    out += fmt::format(
        "{:<15} {:<10} {:>6.4g}  {:>23}  {:>23}  {:>23}  {:>10.3g} {:>8.3g}  {}\n",
        rate_text(group.rate, group.rate_to_prefill), group.name, mean(f, &ServeMetrics::failed),
        ttft_text(f, &ServeMetrics::ttft), ttft_text(f, &ServeMetrics::repeat_ttft),
        slashed(mean(f, &ServeMetrics::itl_p50), mean(f, &ServeMetrics::itl_p99), mean(f, &ServeMetrics::itl_max)),
        mean(f, &ServeMetrics::e2e_p50), mean(f, &ServeMetrics::tokens_per_second), sources(f));
  }
  return out;
}

bool has_later_turns(const std::vector<ServeGroup>& groups) {
  return std::ranges::any_of(groups, [](const ServeGroup& group) {
    return std::ranges::any_of(
        group.metrics, [](const ServeMetrics& each) { return each.later_ttft.requests > 0 || each.not_asked > 0; });
  });
}

// Empty where no chat has a second turn.
std::string later_turns_table(const std::vector<ServeGroup>& groups) {
  if (!has_later_turns(groups)) return {};
  static constexpr char kLine[] = "{:<15} {:<10} {:>8} {:>12} {:>10}  {:>23}  {:>10}\n";
  std::string out =
      "\nlater turns: a chat's second and on, COMPUTED tokens of one on average, NOT ASKED after one that failed\n"
      "CAME: requests a second, fewer than RATE where the run is not long beside its chats\n" +
      fmt::format(kLine, "RATE", "PLANNER", "CAME", "LATER TURNS", "NOT ASKED", "TTFT p50 / p90 / p99", "COMPUTED");
  for (const ServeGroup& group : groups) {
    const std::span<const ServeMetrics> f = group.metrics;
    double turns = 0, computed = 0, came = 0;
    for (const ServeMetrics& each : f) {
      if (each.run_seconds > 0) came += static_cast<double>(each.requests) / each.run_seconds;
      turns += static_cast<double>(each.later_ttft.requests);
      computed += static_cast<double>(each.later_ttft.requests) * each.later_computed_tokens;
    }
    const auto runs = static_cast<double>(f.size());
    out +=
        fmt::format(kLine, rate_text(group.rate, group.rate_to_prefill), group.name, fmt::format("{:.3g}", came / runs),
                    fmt::format("{:.4g}", turns / runs), fmt::format("{:.4g}", mean(f, &ServeMetrics::not_asked)),
                    ttft_text(f, &ServeMetrics::later_ttft), turns > 0 ? fmt::format("{:.1f}", computed / turns) : "-");
  }
  return out;
}

std::string work_table(const std::vector<ServeGroup>& groups) {
  std::string out = fmt::format("{:<15} {:<10} {:>10} {:>8} {:>14}  {:<48}  {}\n", "RATE", "PLANNER", "BACKGROUND",
                                "PLANNING", "SHORT OF CORES", "READ", "WRITTEN");
  for (const ServeGroup& group : groups) {
    out += fmt::format(
        "{:<15} {:<10} {:>8.3g} s {:>6.2g} s {:>12.3g} s  {:<48}  {}\n", rate_text(group.rate, group.rate_to_prefill),
        group.name, mean(group.metrics, &ServeMetrics::background_seconds),
        mean(group.metrics, &ServeMetrics::planning_seconds), mean(group.metrics, &ServeMetrics::threads_short_seconds),
        by_tier(group.rows, kBytesRead), by_tier(group.rows, kBytesWritten));
  }
  return out;
}

std::string ratio_text(const PairedValues::Values& values, double share) {
  if (std::ranges::all_of(values.own, &std::vector<double>::empty)) return "-";
  const Interval of = ratio_of_quantiles(values.own, values.base, share);
  return fmt::format("{:.2f} [{:.2f}, {:.2f}]", of.mean, of.low, of.high);
}

// Of all requests, of the repeats, and of later turns where there are any.
std::string paired_tables(const std::vector<ServeGroup>& groups) {
  static constexpr char kLine[] = "{:<15} {:<10} {:<20}  {:<20}  {:<20}  {}\n";
  static constexpr char kSomeLine[] = "{:<15} {:<10} {:<20}  {:<20}  {}\n";
  std::string all, repeats, later;
  for (const ServeGroup& group : groups) {
    const ServeGroup* base = base_of(groups, group);
    if (base == nullptr || base == &group) continue;
    if (all.empty()) {
      const std::string head = fmt::format(kSomeLine, "RATE", "PLANNER", "TTFT p50", "TTFT p90", "TTFT p99");
      all = fmt::format("\nof {}'s, request by request, with intervals of 95 %\n", base->name) +
            fmt::format(kLine, "RATE", "PLANNER", "TTFT p50", "TTFT p90", "TTFT p99", "ITL p99");
      repeats = "\nof these, repeats: requests whose context was asked about before\n" + head;
      later = "\nof these, later turns\n" + head;
    }
    const PairedValues paired = pair_up(group, *base);
    const std::string rate = rate_text(group.rate, group.rate_to_prefill);
    const auto line_of = [&](const PairedValues::Values& of) {
      return fmt::format(kSomeLine, rate, group.name, ratio_text(of, 0.5), ratio_text(of, 0.9), ratio_text(of, 0.99));
    };
    all += fmt::format(kLine, rate, group.name, ratio_text(paired.ttft, 0.5), ratio_text(paired.ttft, 0.9),
                       ratio_text(paired.ttft, 0.99), ratio_text(paired.itl, 0.99));
    repeats += line_of(paired.repeat_ttft);
    later += line_of(paired.later_ttft);
  }
  return all + repeats + (has_later_turns(groups) ? later : "");
}

std::string health_table(const std::vector<ServeGroup>& groups) {
  std::string out;
  for (const ServeGroup& group : groups) {
    HealthAnswers health;
    for (const ServeRow* row : group.rows) {
      health.failed += row->health.failed;
      std::ranges::copy(row->health.seconds, std::back_inserter(health.seconds));
    }
    if (health.seconds.empty()) continue;
    if (out.empty()) {
      out = fmt::format("\n{:<15} {:<10} {:>14} {:>6}  {}\n", "RATE", "PLANNER", "/health asked", "FAILED",
                        "ANSWERED IN p50 / p99 / max");
    }
    out += fmt::format("{:<15} {:<10} {:>14} {:>6}  {:.2g} / {:.2g} / {:.2g}\n",
                       rate_text(group.rate, group.rate_to_prefill), group.name, health.seconds.size(), health.failed,
                       quantile(health.seconds, 0.5), quantile(health.seconds, 0.99), quantile(health.seconds, 1));
  }
  return out;
}

}  // namespace

Json to_json(const ServeRow& row) {
  const ServeMetrics metrics = metrics_of(row);
  const auto answered = [&](double value) { return metrics.failed < metrics.requests ? Json(value) : Json(); };
  const auto repeated = [&](double value) { return metrics.repeat_ttft.requests > 0 ? Json(value) : Json(); };
  const auto later = [&](double value) { return metrics.later_ttft.requests > 0 ? Json(value) : Json(); };
  return {{"planner", row.planner},
          {"rate", row.rate},
          {"rate_to_prefill", row.rate_to_prefill},
          {"seed", row.seed},
          {"requests", metrics.requests},
          {"failed", metrics.failed},
          {"not_asked", metrics.not_asked},
          {"ttft_p50", answered(metrics.ttft.p50)},
          {"ttft_p90", answered(metrics.ttft.p90)},
          {"ttft_p99", answered(metrics.ttft.p99)},
          {"repeats", metrics.repeat_ttft.requests},
          {"repeat_ttft_p50", repeated(metrics.repeat_ttft.p50)},
          {"repeat_ttft_p90", repeated(metrics.repeat_ttft.p90)},
          {"repeat_ttft_p99", repeated(metrics.repeat_ttft.p99)},
          {"later_turns", metrics.later_ttft.requests},
          {"later_ttft_p50", later(metrics.later_ttft.p50)},
          {"later_ttft_p90", later(metrics.later_ttft.p90)},
          {"later_ttft_p99", later(metrics.later_ttft.p99)},
          {"later_computed_tokens_mean", later(metrics.later_computed_tokens)},
          {"itl_p50", answered(metrics.itl_p50)},
          {"itl_p99", answered(metrics.itl_p99)},
          {"itl_max", answered(metrics.itl_max)},
          {"e2e_p50", answered(metrics.e2e_p50)},
          {"tokens_per_second", metrics.tokens_per_second},
          {"prompt_tokens", metrics.prompt_tokens},
          {"computed_tokens", metrics.computed_tokens},
          {"cached_tokens", metrics.cached_tokens},
          {"pool_missed", metrics.pool_missed},
          {"pool_missed_ttft_p50", metrics.pool_missed > 0 ? Json(metrics.pool_missed_ttft_p50) : Json()},
          {"lossy_requests", metrics.lossy},
          {"bytes_read", by_label(row.metrics, kBytesRead, "tier")},
          {"bytes_written", by_label(row.metrics, kBytesWritten, "tier")},
          {"background_seconds", metrics.background_seconds},
          {"planning_seconds", metrics.planning_seconds},
          {"measured_beside_seconds", metrics.measured_beside_seconds},
          {"threads_short_seconds", metrics.threads_short_seconds},
          {"given_up", metrics.given_up},
          {"dribbling", row.dribbling},
          {"health_asked", row.health.seconds.size()},
          {"health_failed", row.health.failed},
          {"health_max", row.health.seconds.empty() ? Json() : Json(quantile(row.health.seconds, 1))}};
}

std::vector<Json> request_rows(const ServeRow& row) {
  std::vector<Json> rows;
  const std::vector<bool> repeats = repeats_of(row.load);
  for (std::size_t i = 0; i < row.answers.size(); ++i) {
    const LoadRequest& asked = row.load[i];
    const ServedAnswer& answer = row.answers[i];
    const bool well = answer.error.empty();
    rows.push_back({{"planner", row.planner},
                    {"rate", row.rate},
                    {"seed", row.seed},
                    {"dribbling", row.dribbling},
                    {"request", i},
                    {"arrival", asked.at_s},
                    {"chat", asked.chat},
                    {"turn", asked.turn},
                    {"context", asked.context},
                    {"question", asked.question},
                    {"repeat", static_cast<bool>(repeats[i])},
                    {"error", well ? Json() : Json(answer.error)},
                    {"ttft", answer.pieces_s.empty() ? Json() : Json(answer.pieces_s.front())},
                    {"itl", gaps_of(answer)},
                    {"e2e", answer.end_s},
                    {"prompt_tokens", answer.prompt_tokens},
                    {"completion_tokens", answer.completion_tokens},
                    {"computed_tokens", answer.computed_tokens},
                    {"cached_tokens", answer.cached_tokens},
                    {"lossy", answer.lossy}});
  }
  return rows;
}

std::string text_tables(std::span<const ServeRow> rows) {
  const std::vector<ServeGroup> groups = groups_of(rows);
  return "seconds; TTFT and ANSWER from the planned arrival, ITL between two tokens\n"
         "REPEATS: TTFT of requests whose context was asked about before\n" +
         latency_table(groups) + later_turns_table(groups) + "\n" + work_table(groups) + paired_tables(groups) +
         health_table(groups);
}

std::vector<Chart> charts_of(std::span<const ServeRow> rows) {
  const std::vector<ServeGroup> groups = groups_of(rows);
  std::vector<Chart> charts;
  for (const auto& [name, share] :
       {std::pair("p50", &TtftQuantiles::p50), {"p90", &TtftQuantiles::p90}, {"p99", &TtftQuantiles::p99}}) {
    Chart chart{fmt::format("Time to first token, {}", name), "requests a second", "seconds", false, {}};
    for (const ServeGroup& group : groups) {
      auto line = std::ranges::find(chart.lines, group.name, &ChartLine::name);
      if (line == chart.lines.end()) line = chart.lines.insert(line, {group.name, {}, false});
      const std::span<const ServeMetrics> f = group.metrics;
      line->points.emplace_back(group.rate, mean(f, [&](const ServeMetrics& each) { return each.ttft.*share; }));
    }
    for (ChartLine& line : chart.lines) std::ranges::sort(line.points);
    charts.push_back(std::move(chart));
  }
  return charts;
}

std::string serve_page(std::span<const ServeRow> rows, std::string_view about) {
  return html_page("shale bench serve", "A server under load",
                   preformatted(about) + inline_charts(charts_of(rows)) + preformatted(text_tables(rows)));
}

}  // namespace shale
