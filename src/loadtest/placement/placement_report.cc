#include "loadtest/placement/placement_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "core/units.h"
#include "loadtest/placement/placement_compare.h"
#include "report/html_page.h"
#include "report/svg_chart.h"

namespace shale {
namespace {

bool is_shale(const PlacementSummary& one) { return one.policy.starts_with("shale"); }
bool is_fixed(const PlacementSummary& one) { return one.policy.starts_with("fixed:"); }
bool is_impress(const PlacementSummary& one) { return one.policy.starts_with("impress"); }
bool is_lru(const PlacementSummary& one) { return one.policy == "lru"; }

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

// What rows need not have in common, in a column where they have not.
struct Common {
  const char* title;
  std::set<std::string> PlacementSummary::* values;

  bool differs(std::span<const PlacementSummary> summaries) const {
    return std::ranges::any_of(summaries, [&](const PlacementSummary& s) {
      return s.*values != summaries.front().*values || (s.*values).size() > 1;
    });
  }
  std::string cell(const std::string& text) const { return fmt::format(" {:>18}", text); }
};
constexpr Common kCommon[] = {{"REST", &PlacementSummary::rest}, {"PROGRAM", &PlacementSummary::programs}};

std::string main_table(std::span<const PlacementSummary> summaries) {
  std::string out = fmt::format("{:<7} {:<26} {:>6} {:>28} {:>8} {:>22} {:>6} {:>6} {:>6} {:>6} {:>7} {:>6} {:>6}",
                                "RATE", "POLICY", "FAILED", "TTFT mean / p50 / p90 / p99", "ITL p99", "AGREEMENT", "F1",
                                "COSINE", "GOLD", "LOSSY", "EXPECTED", "BUSY", "TAKEN");
  for (const Common& of : kCommon) out += of.differs(summaries) ? of.cell(of.title) : "";
  out += "  TOKENS FROM\n";
  for (const PlacementSummary& s : summaries) {
    const auto alike = [&](const char* name) {
      const auto found = s.alike.find(name);
      return found == s.alike.end() ? std::string("-") : fmt::format("{:.3f}", found->second);
    };
    out += fmt::format(
        "{:<7} {:<26} {:>6} {:>28} {:>8.3f} {:>22} {:>6} {:>6} {:>6} {:>6} {:>8.3f} {:>6} {:>6}",
        fmt::format("{:.3g}x", s.rate_to_prefill), s.policy, s.failed,
        fmt::format("{:.3g} / {:.3g} / {:.3g} / {:.3g}", s.ttft_mean, s.ttft_p50, s.ttft_p90, s.ttft_p99), s.itl_p99,
        fmt::format("{:.3f} [{:.3f}, {:.3f}]", s.agreement.mean, s.agreement.low, s.agreement.high), alike("f1"),
        alike("cosine"), s.gold_f1 ? fmt::format("{:.3f}", *s.gold_f1) : "-",
        fmt::format("{:.0f} %", 100 * static_cast<double>(s.lossy) / static_cast<double>(s.requests)),
        s.expected_quality, fmt::format("{:.1f} %", 100 * s.busy_share), fmt::format("{:.1f} %", 100 * s.taken_share));
    for (const Common& of : kCommon) {
      if (of.differs(summaries)) out += of.cell(fmt::format("{}", fmt::join(s.*of.values, "; ")));
    }
    out += fmt::format("  {}\n", percents(s.from));
  }
  return out;
}

std::string comparison_table(std::span<const PlacementSummary> summaries) {
  std::string out;
  const auto bound = [](double at) { return std::isinf(at) ? "none as good" : fmt::format("{:.2f}", at); };
  const auto cell = [&](const std::optional<Interval>& of) {
    return of ? fmt::format("{:.2f} [{}, {}]", of->mean, bound(of->low), bound(of->high))
              : std::string("none is as good");
  };
  for (const PlacementSummary& s : summaries) {
    if (!is_shale(s)) continue;
    if (out.empty()) {
      out = fmt::format(
          "\nhow many times sooner first tokens come on average, at no less agreement; 95 % by resampling contexts, "
          "crossed with spans of neighbouring requests\n"
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

// None where there is but one.
std::set<std::string> datasets_of(std::span<const LoadContext> contexts) {
  std::set<std::string> datasets;
  for (const LoadContext& context : contexts) datasets.insert(context.dataset);
  if (datasets.size() < 2) datasets.clear();
  return datasets;
}

std::string dataset_table(std::span<const PlacementSummary> summaries, std::span<const LoadContext> contexts) {
  const std::set<std::string> datasets = datasets_of(contexts);
  if (datasets.empty()) return {};
  std::string out = "\nby data set: mean TTFT / agreement\n";
  out += fmt::format("{:<7} {:<26}", "RATE", "POLICY");
  for (const std::string& dataset : datasets) out += fmt::format(" {:>20}", dataset.substr(0, 20));
  out += '\n';
  for (const PlacementSummary& s : summaries) {
    out += fmt::format("{:<7} {:<26}", fmt::format("{:.3g}x", s.rate_to_prefill), s.policy);
    for (const std::string& dataset : datasets) {
      const auto of = weighted_means(
          s, [&](const RatedRequest& request) { return contexts[request.context].dataset == dataset ? 1.0 : 0.0; });
      out += fmt::format(" {:>20}", of ? fmt::format("{:.3g} / {:.3f}", of->second, of->first) : "-");
    }
    out += '\n';
  }
  return out;
}

// Errors of data sets hide one another in a row's mean.
std::string expectation_table(std::span<const PlacementSummary> summaries, std::span<const LoadContext> contexts) {
  const std::set<std::string> datasets = datasets_of(contexts);
  const auto cell = [](const PlacementSummary& s, const auto& counts) {
    double expected = 0, measured = 0;
    std::size_t answers = 0;
    for (const RatedRequest& request : s.answered) {
      if (!request.expected || !counts(request)) continue;
      expected += *request.expected;
      measured += request.agreement;
      ++answers;
    }
    const auto of = static_cast<double>(answers);
    return answers == 0 ? std::string("-") : fmt::format("{:.3f} / {:.3f} ({})", expected / of, measured / of, answers);
  };
  std::string out;
  for (const PlacementSummary& s : summaries) {
    if (std::ranges::none_of(s.answered, [](const RatedRequest& request) { return request.expected.has_value(); }))
      continue;
    if (out.empty()) {
      out = fmt::format(
          "\nlossy answers by data set: quality expected / agreement measured (answers)\n{:<7} {:<26} {:>20}", "RATE",
          "POLICY", "ALL");
      for (const std::string& dataset : datasets) out += fmt::format(" {:>20}", dataset.substr(0, 20));
      out += '\n';
    }
    out += fmt::format("{:<7} {:<26} {:>20}", fmt::format("{:.3g}x", s.rate_to_prefill), s.policy,
                       cell(s, [](const RatedRequest&) { return true; }));
    for (const std::string& dataset : datasets) {
      const auto is_of = [&](const RatedRequest& request) { return contexts[request.context].dataset == dataset; };
      out += fmt::format(" {:>20}", cell(s, is_of));
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

std::string placement_tables(std::span<const PlacementSummary> summaries, std::span<const LoadContext> contexts) {
  return main_table(summaries) + comparison_table(summaries) + forms_table(summaries) + head_reads(summaries) +
         dataset_table(summaries, contexts) + expectation_table(summaries, contexts);
}

std::string placement_page(std::span<const PlacementSummary> summaries, std::span<const LoadContext> contexts,
                           std::string_view about) {
  return html_page("shale bench placement", "Placement under load",
                   preformatted(about) + inline_charts(placement_charts(summaries)) +
                       preformatted(placement_tables(summaries, contexts)));
}

}  // namespace shale
