#include "loadtest/placement/placement_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <utility>

#include "core/quantile.h"
#include "loadtest/placement/placement_quality.h"
#include "profile/metrics/text_metrics.h"

namespace shale {
namespace {

double share_of(std::uint64_t part, std::uint64_t whole) {
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
    summary.rest.insert(fmt::format("{:g} s{}", cell.settle_s, cell.written ? "" : ", still writing"));
    summary.programs.insert(cell.program);
    for (std::size_t i = 0; i < cell.answers.size(); ++i) {
      SHALE_TRY(add(cell.answers[i], cell.seed, i, summary, sums));
    }
    return {};
  }

 private:
  Status add(const PlacementAnswer& answer, std::uint64_t seed, std::size_t number, PlacementSummary& summary,
             Sums& sums) const {
    ++summary.requests;
    if (!answer.ttft_s) {
      ++summary.failed;
      return {};
    }
    const double agreement = agreement_of(answer, file_);
    sums.ttft.push_back(*answer.ttft_s);
    sums.agreement[answer.context].push_back(agreement);
    summary.answered.push_back({.seed = seed,
                                .number = number,
                                .context = answer.context,
                                .arrival_s = answer.arrival_s,
                                .ttft_s = *answer.ttft_s,
                                .agreement = agreement,
                                .expected = answer.expected_quality});
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
  summary.from["computed"] = share_of(sums.computed_tokens, sums.prompt_tokens);
  for (const auto& [source, tokens] : sums.cached) summary.from[source] = share_of(tokens, sums.prompt_tokens);
  for (const auto& [form, tokens] : sums.forms) summary.forms[form] = share_of(tokens, sums.lossy_tokens);
  summary.busy_share = sums.busy_s / sums.run_s;
  summary.taken_share = sums.taken_s / sums.run_s;
  summary.head_bytes = sums.head_bytes / answered;
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
          {"taken_share", summary.taken_share},
          {"rest", summary.rest},
          {"programs", summary.programs}};
}

}  // namespace shale
