#include "loadtest/placement/placement_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ranges>
#include <set>
#include <utility>

#include "core/units.h"
#include "loadtest/placement/placement_quality.h"
#include "profile/metrics/text_metrics.h"
#include "report/html_page.h"
#include "report/quantile.h"
#include "report/svg_chart.h"
#include "trace/random.h"

namespace shale {
namespace {

constexpr std::uint32_t kContextResamples = 1000;

bool is_shale(const PlacementSummary& one) { return one.policy.starts_with("shale"); }
bool is_fixed(const PlacementSummary& one) { return one.policy.starts_with("fixed:"); }
bool is_impress(const PlacementSummary& one) { return one.policy.starts_with("impress"); }
bool is_lru(const PlacementSummary& one) { return one.policy == "lru"; }

double share(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

// Sums over the cells of one summary.
struct Sums {
  std::vector<double> ttft;
  std::map<std::size_t, std::vector<double>> agreement;  // by context
  std::map<std::string, double> alike;
  double gold = 0, expected = 0, itl_p99 = 0, busy_s = 0, taken_s = 0, run_s = 0, head_bytes = 0;
  std::size_t golds = 0, expectations = 0, cells = 0;
  std::uint64_t prompt_tokens = 0, computed_tokens = 0, lossy_tokens = 0;
  std::map<std::string, std::uint64_t> cached, forms;
};

class Summarising {
 public:
  Summarising(const PlacementFile& file, std::span<const LoadContext> contexts, AnswerMetrics& metrics)
      : file_(file), contexts_(contexts), metrics_(metrics) {}

  Status add(const PlacementCell& cell, PlacementSummary& summary, Sums& sums) const {
    ++sums.cells;
    sums.itl_p99 += cell.itl_p99;
    sums.busy_s += cell.background_seconds + cell.profile_seconds;
    sums.taken_s += cell.planning_seconds + cell.measured_beside_seconds;
    sums.head_bytes += static_cast<double>(cell.head_bytes);
    sums.run_s += cell.run_seconds;
    sums.prompt_tokens += cell.prompt_tokens;
    sums.computed_tokens += cell.computed_tokens;
    for (const auto& [source, tokens] : cell.cached_tokens) sums.cached[source] += tokens;
    for (const PlacementAnswer& answer : cell.answers) SHALE_TRY(add(answer, summary, sums));
    return {};
  }

 private:
  Status add(const PlacementAnswer& answer, PlacementSummary& summary, Sums& sums) const {
    ++summary.requests;
    if (!answer.ttft_s) {
      ++summary.failed;
      return {};
    }
    const double agreement = agreement_of(answer, file_);
    sums.ttft.push_back(*answer.ttft_s);
    sums.agreement[answer.context].push_back(agreement);
    PlacementSummary::OfContext& of_context = summary.contexts[answer.context];
    of_context.ttft += *answer.ttft_s;
    of_context.agreement += agreement;
    ++of_context.answers;
    summary.lossy += !answer.forms.empty();
    for (const ServedForm& form : answer.forms) {
      sums.forms[fmt::format("{}: {}@{:g}", form.from, form.method, form.keep)] += form.tokens;
      sums.lossy_tokens += form.tokens;
    }
    if (answer.expected_quality) {
      sums.expected += *answer.expected_quality;
      ++sums.expectations;
    }
    const std::string& reference = file_.references().at({answer.context, answer.question});
    SHALE_ASSIGN(const auto alike, metrics_.compare(answer.text, reference));
    for (const auto& [name, value] : alike) sums.alike[name] += value;
    const auto& golds = contexts_[answer.context].answers;
    if (answer.question >= golds.size() || golds[answer.question].empty()) return {};
    const auto f1_to = [&](const std::string& gold) { return f1(answer.text, gold); };
    sums.gold += std::ranges::max(golds[answer.question] | std::views::transform(f1_to));
    ++sums.golds;
    return {};
  }

  const PlacementFile& file_;
  std::span<const LoadContext> contexts_;
  AnswerMetrics& metrics_;
};

void finish(Sums& sums, PlacementSummary& summary) {
  const auto answered = static_cast<double>(sums.ttft.size());
  if (sums.ttft.empty()) return;
  std::ranges::sort(sums.ttft);
  for (const double ttft : sums.ttft) summary.ttft_mean += ttft / answered;
  summary.ttft_p50 = quantile(sums.ttft, 0.5);
  summary.ttft_p90 = quantile(sums.ttft, 0.9);
  summary.ttft_p99 = quantile(sums.ttft, 0.99);
  summary.itl_p99 = sums.itl_p99 / static_cast<double>(sums.cells);
  std::vector<std::vector<double>> groups;
  for (auto& [context, values] : sums.agreement) groups.push_back(std::move(values));
  summary.agreement = bootstrap_mean(groups);
  if (sums.expectations > 0) summary.expected_quality = sums.expected / static_cast<double>(sums.expectations);
  for (const auto& [name, sum] : sums.alike) summary.alike[name] = sum / answered;
  if (sums.golds > 0) summary.gold_f1 = sums.gold / static_cast<double>(sums.golds);
  summary.from["computed"] = share(sums.computed_tokens, sums.prompt_tokens);
  for (const auto& [source, tokens] : sums.cached) summary.from[source] = share(tokens, sums.prompt_tokens);
  for (const auto& [form, tokens] : sums.forms) summary.forms[form] = share(tokens, sums.lossy_tokens);
  summary.busy_share = sums.busy_s / sums.run_s;
  summary.taken_share = sums.taken_s / sums.run_s;
  summary.head_bytes = sums.head_bytes / answered;
}

// Means over some contexts, each as often as it was drawn.
std::optional<std::pair<double, double>> means(const PlacementSummary& summary, std::span<const std::size_t> contexts) {
  double ttft = 0, agreement = 0;
  std::size_t answers = 0;
  for (const std::size_t context : contexts) {
    const auto found = summary.contexts.find(context);
    if (found == summary.contexts.end()) continue;
    ttft += found->second.ttft;
    agreement += found->second.agreement;
    answers += found->second.answers;
  }
  if (answers == 0) return std::nullopt;
  const auto count = static_cast<double>(answers);
  return std::pair(agreement / count, ttft / count);
}

std::optional<double> ratio(const PlacementSummary& own, std::span<const PlacementSummary> others,
                            std::span<const std::size_t> contexts) {
  const auto mine = means(own, contexts);
  if (!mine) return std::nullopt;
  std::vector<std::pair<double, double>> points;
  for (const PlacementSummary& other : others) {
    if (const auto point = means(other, contexts)) points.push_back(*point);
  }
  return envelope(points, mine->first).transform([&](double theirs) { return theirs / mine->second; });
}

std::vector<PlacementSummary> at_rate_of(const PlacementSummary& own, std::span<const PlacementSummary> all,
                                         bool (*is)(const PlacementSummary&)) {
  std::vector<PlacementSummary> some;
  std::ranges::copy_if(all, std::back_inserter(some), [&](const PlacementSummary& other) {
    return is(other) && other.rate_to_prefill == own.rate_to_prefill;
  });
  return some;
}

std::string percents(const std::map<std::string, double>& shares) {
  std::vector<std::string> words;
  for (const auto& [name, value] : shares) {
    if (value >= 0.0005) words.push_back(fmt::format("{} {:.1f} %", name, 100 * value));
  }
  return words.empty() ? "-" : fmt::format("{}", fmt::join(words, ", "));
}

std::string main_table(std::span<const PlacementSummary> summaries) {
  std::string out =
      fmt::format("{:<7} {:<26} {:>6} {:>28} {:>8} {:>22} {:>6} {:>6} {:>6} {:>6} {:>7} {:>6} {:>6}  {}\n", "RATE",
                  "POLICY", "FAILED", "TTFT mean / p50 / p90 / p99", "ITL p99", "AGREEMENT", "F1", "COSINE", "GOLD",
                  "LOSSY", "EXPECTED", "BUSY", "TAKEN", "TOKENS FROM");
  for (const PlacementSummary& s : summaries) {
    const auto alike = [&](const char* name) {
      const auto found = s.alike.find(name);
      return found == s.alike.end() ? std::string("-") : fmt::format("{:.3f}", found->second);
    };
    out += fmt::format(
        "{:<7} {:<26} {:>6} {:>28} {:>8.3f} {:>22} {:>6} {:>6} {:>6} {:>6} {:>8.3f} {:>6} {:>6}  {}\n",
        fmt::format("{:.3g}x", s.rate_to_prefill), s.policy, s.failed,
        fmt::format("{:.3g} / {:.3g} / {:.3g} / {:.3g}", s.ttft_mean, s.ttft_p50, s.ttft_p90, s.ttft_p99), s.itl_p99,
        fmt::format("{:.3f} [{:.3f}, {:.3f}]", s.agreement.mean, s.agreement.low, s.agreement.high), alike("f1"),
        alike("cosine"), s.gold_f1 ? fmt::format("{:.3f}", *s.gold_f1) : "-",
        fmt::format("{:.0f} %", 100 * share(s.lossy, s.requests)), s.expected_quality,
        fmt::format("{:.1f} %", 100 * s.busy_share), fmt::format("{:.1f} %", 100 * s.taken_share), percents(s.from));
  }
  return out;
}

std::string comparison_table(std::span<const PlacementSummary> summaries) {
  std::string out;
  const auto cell = [](const std::optional<Interval>& of) {
    return of ? fmt::format("{:.2f} [{:.2f}, {:.2f}]", of->mean, of->low, of->high) : std::string("none is as good");
  };
  for (const PlacementSummary& s : summaries) {
    if (!is_shale(s)) continue;
    if (out.empty()) {
      out = fmt::format(
          "\nhow many times sooner first tokens come on average, at no less agreement; contexts resampled, 95 %\n"
          "{:<7} {:<26} {:<22} {:<22} {:<22}\n",
          "RATE", "POLICY", "than fixed, at best", "than impress", "than lru");
    }
    const auto to = [&](bool (*is)(const PlacementSummary&)) {
      const auto others = at_rate_of(s, summaries, is);
      return others.empty() ? std::string("-") : cell(ratio_to_envelope(s, others));
    };
    out += fmt::format("{:<7} {:<26} {:<22} {:<22} {:<22}\n", fmt::format("{:.3g}x", s.rate_to_prefill), s.policy,
                       to(is_fixed), to(is_impress), to(is_lru));
  }
  return out;
}

std::string forms_table(std::span<const PlacementSummary> summaries) {
  std::string out;
  for (const PlacementSummary& s : summaries) {
    if (!is_shale(s) || s.forms.empty()) continue;
    if (out.empty()) out = "\nlossy forms that served, by where they came from, in shares of their tokens\n";
    out += fmt::format("{:<7} {:<26} {}\n", fmt::format("{:.3g}x", s.rate_to_prefill), s.policy, percents(s.forms));
  }
  return out;
}

std::string head_reads(std::span<const PlacementSummary> summaries) {
  std::string out;
  for (const PlacementSummary& s : summaries) {
    if (s.head_bytes == 0) continue;
    out +=
        fmt::format("\n{:.3g}x {}: to find what matters, IMPRESS would read {} of three heads' keys a request first\n",
                    s.rate_to_prefill, s.policy, format_bytes(static_cast<std::uint64_t>(s.head_bytes)));
  }
  return out.empty()
             ? out
             : out + "They are not read here, and not in its times: what matters is known when a context is stored.\n";
}

std::string dataset_table(std::span<const PlacementSummary> summaries, std::span<const LoadContext> contexts) {
  std::set<std::string> datasets;
  for (const LoadContext& context : contexts) datasets.insert(context.dataset);
  if (datasets.size() < 2) return {};
  std::string out = "\nby data set: mean TTFT / agreement\n";
  out += fmt::format("{:<7} {:<26}", "RATE", "POLICY");
  for (const std::string& dataset : datasets) out += fmt::format(" {:>20}", dataset.substr(0, 20));
  out += '\n';
  for (const PlacementSummary& s : summaries) {
    out += fmt::format("{:<7} {:<26}", fmt::format("{:.3g}x", s.rate_to_prefill), s.policy);
    for (const std::string& dataset : datasets) {
      std::vector<std::size_t> some;
      for (std::size_t i = 0; i < contexts.size(); ++i) {
        if (contexts[i].dataset == dataset) some.push_back(i);
      }
      const auto of = means(s, some);
      out += fmt::format(" {:>20}", of ? fmt::format("{:.3g} / {:.3f}", of->second, of->first) : "-");
    }
    out += '\n';
  }
  return out;
}

// Lines of what has a parameter: alpha of shale, keep of one fixed method.
std::string family_of(const PlacementSummary& s) {
  return s.policy.substr(0, s.policy.find_first_of(is_shale(s) ? "," : "@"));
}

std::vector<Chart> placement_charts(std::span<const PlacementSummary> summaries) {
  std::vector<Chart> charts;
  std::set<double> rates;
  for (const PlacementSummary& s : summaries) rates.insert(s.rate_to_prefill);
  const auto line_of = [](Chart& chart, const std::string& name) -> ChartLine& {
    const auto known = std::ranges::find(chart.lines, name, &ChartLine::name);
    return known != chart.lines.end() ? *known : chart.lines.emplace_back(ChartLine{.name = name, .points = {}});
  };
  const auto sorted = [&](Chart chart) {
    for (ChartLine& line : chart.lines) std::ranges::sort(line.points);
    charts.push_back(std::move(chart));
  };
  for (const double rate : rates) {
    Chart chart{
        fmt::format("Quality and time to first token at {:.3g}x", rate), "agreement", "mean TTFT, s", false, {}};
    for (const PlacementSummary& s : summaries) {
      if (s.rate_to_prefill == rate) line_of(chart, family_of(s)).points.emplace_back(s.agreement.mean, s.ttft_mean);
    }
    sorted(std::move(chart));
  }
  if (rates.size() > 1) {
    Chart ttft{"Time to first token and load", "rate, of what can be computed", "mean TTFT, s", false, {}};
    Chart itl{"Time between tokens and load", "rate, of what can be computed", "ITL p99, s", false, {}};
    for (const PlacementSummary& s : summaries) {
      line_of(ttft, s.policy).points.emplace_back(s.rate_to_prefill, s.ttft_mean);
      line_of(itl, s.policy).points.emplace_back(s.rate_to_prefill, s.itl_p99);
    }
    sorted(std::move(ttft));
    sorted(std::move(itl));
  }
  return charts;
}

}  // namespace

Result<std::vector<PlacementSummary>> summaries_of(const PlacementFile& file, std::span<const LoadContext> contexts,
                                                   AnswerMetrics& metrics) {
  std::vector<PlacementSummary> summaries;
  std::vector<Sums> sums;
  const Summarising summarising(file, contexts, metrics);
  for (const PlacementCell& cell : file.cells()) {
    const auto known = std::ranges::find_if(summaries, [&](const PlacementSummary& one) {
      return one.policy == cell.policy && one.rate_to_prefill == cell.rate_to_prefill;
    });
    const auto at = static_cast<std::size_t>(known - summaries.begin());
    if (known == summaries.end()) {
      summaries.emplace_back();
      summaries.back().policy = cell.policy;
      summaries.back().rate_to_prefill = cell.rate_to_prefill;
      sums.emplace_back();
    }
    SHALE_TRY(summarising.add(cell, summaries[at], sums[at]));
  }
  for (std::size_t i = 0; i < summaries.size(); ++i) finish(sums[i], summaries[i]);
  std::ranges::stable_sort(summaries, {}, &PlacementSummary::rate_to_prefill);
  return summaries;
}

std::optional<double> envelope(std::span<const std::pair<double, double>> points, double at) {
  std::optional<double> least;
  const auto consider = [&](double time) { least = std::min(least.value_or(time), time); };
  for (const auto& [quality, time] : points) {
    if (quality >= at) consider(time);
    for (const auto& [other_quality, other_time] : points) {
      if (quality >= at || other_quality <= at) continue;
      consider(time + (other_time - time) * (at - quality) / (other_quality - quality));
    }
  }
  return least;
}

std::optional<Interval> ratio_to_envelope(const PlacementSummary& own, std::span<const PlacementSummary> others) {
  std::vector<std::size_t> contexts;
  for (const auto& [context, of] : own.contexts) contexts.push_back(context);
  const auto all = ratio(own, others, contexts);
  if (!all) return std::nullopt;
  Random random(1);
  std::vector<double> ratios;
  std::vector<std::size_t> drawn(contexts.size());
  for (std::uint32_t i = 0; i < kContextResamples; ++i) {
    std::ranges::generate(drawn, [&] { return contexts[random.below(contexts.size())]; });
    if (const auto one = ratio(own, others, drawn)) ratios.push_back(*one);
  }
  std::ranges::sort(ratios);
  return Interval{*all, quantile(ratios, 0.025), quantile(ratios, 0.975)};
}

std::string placement_tables(std::span<const PlacementSummary> summaries, std::span<const LoadContext> contexts) {
  return main_table(summaries) + comparison_table(summaries) + forms_table(summaries) + head_reads(summaries) +
         dataset_table(summaries, contexts);
}

std::string placement_page(std::span<const PlacementSummary> summaries, std::span<const LoadContext> contexts,
                           std::string_view about) {
  return html_page("shale bench placement", "Placement under load",
                   preformatted(about) + inline_charts(placement_charts(summaries)) +
                       preformatted(placement_tables(summaries, contexts)));
}

Json to_json(const PlacementSummary& summary) {
  return {{"policy", summary.policy},
          {"rate_to_prefill", summary.rate_to_prefill},
          {"requests", summary.requests},
          {"failed", summary.failed},
          {"lossy", summary.lossy},
          {"ttft_mean", summary.ttft_mean},
          {"ttft_p50", summary.ttft_p50},
          {"ttft_p90", summary.ttft_p90},
          {"ttft_p99", summary.ttft_p99},
          {"itl_p99", summary.itl_p99},
          {"agreement", {summary.agreement.mean, summary.agreement.low, summary.agreement.high}},
          {"expected_quality", summary.expected_quality},
          {"alike", summary.alike},
          {"gold_f1", summary.gold_f1},
          {"tokens_from", summary.from},
          {"forms", summary.forms},
          {"head_bytes_per_request", summary.head_bytes},
          {"busy_share", summary.busy_share},
          {"taken_share", summary.taken_share}};
}

}  // namespace shale
