#include "loadtest/serve/serve_compare.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <random>
#include <utility>

#include "core/quantile.h"
#include "loadtest/serve/waiting_spans.h"

namespace shale {
namespace {

constexpr int kResamples = 1000;

std::vector<double> together(std::span<const std::vector<double>> groups, std::span<const std::size_t> chosen) {
  std::vector<double> all;
  for (const std::size_t group : chosen) std::ranges::copy(groups[group], std::back_inserter(all));
  return all;
}

std::size_t queue_of(const ServeRow& row) {
  std::vector<Waited> waited;
  for (std::size_t i = 0; i < row.answers.size(); ++i) {
    if (row.answers[i].error.empty()) waited.push_back({row.load[i].at_s, row.answers[i].pieces_s.front()});
  }
  return waited_together(waited);
}

std::size_t span_of(const ServeGroup& own, const ServeGroup& base) {
  std::size_t together = 0, requests = 0;
  for (const ServeGroup* group : {&own, &base}) {
    for (const ServeRow* row : group->rows) {
      together = std::max(together, queue_of(*row));
      requests = std::max(requests, row->answers.size());
    }
  }
  return std::max(kSpanLeast, std::min(together, requests / kSpansLeast));
}

// Of the requests that did not fail, by chat and turn.
std::map<std::pair<std::size_t, std::size_t>, const ServedAnswer*> answers_of(const ServeRow& row) {
  std::map<std::pair<std::size_t, std::size_t>, const ServedAnswer*> answers;
  for (std::size_t i = 0; i < row.answers.size(); ++i) {
    if (row.answers[i].error.empty()) answers[{row.load[i].chat, row.load[i].turn}] = &row.answers[i];
  }
  return answers;
}

}  // namespace

std::vector<ServeGroup> groups_of(std::span<const ServeRow> rows) {
  std::vector<ServeGroup> groups;
  for (const ServeRow& row : rows) {
    auto at = std::ranges::find_if(
        groups, [&](const ServeGroup& group) { return group.rate == row.rate && group.name == row.name(); });
    if (at == groups.end()) {
      // After the last one of its rate.
      const auto last =
          std::find_if(groups.rbegin(), groups.rend(), [&](const ServeGroup& group) { return group.rate == row.rate; });
      at = groups.insert(last == groups.rend() ? groups.end() : last.base(),
                         {row.name(), row.rate, row.rate_to_prefill, {}, {}});
    }
    at->rows.push_back(&row);
    at->metrics.push_back(metrics_of(row));
  }
  return groups;
}

const ServeGroup* base_of(const std::vector<ServeGroup>& groups, const ServeGroup& group) {
  const auto found = std::ranges::find_if(groups, [&](const ServeGroup& other) { return other.rate == group.rate; });
  return found == groups.end() ? nullptr : &*found;
}

PairedValues pair_up(const ServeGroup& own, const ServeGroup& base) {
  PairedValues paired;
  const std::size_t span = span_of(own, base);
  for (std::size_t seed = 0; seed < std::min(own.rows.size(), base.rows.size()); ++seed) {
    const ServeRow& theirs = *base.rows[seed];
    const auto mine = answers_of(*own.rows[seed]);
    const std::vector<bool> repeats = repeats_of(theirs.load);
    for (std::size_t i = 0; i < theirs.answers.size(); ++i) {
      if (i % span == 0) {
        for (PairedValues::Values* values : {&paired.ttft, &paired.itl, &paired.repeat_ttft, &paired.later_ttft}) {
          values->own.emplace_back();
          values->base.emplace_back();
        }
      }
      const LoadRequest& request = theirs.load[i];
      const ServedAnswer& at_base = theirs.answers[i];
      const auto found = mine.find({request.chat, request.turn});
      if (found == mine.end() || !at_base.error.empty()) continue;
      const ServedAnswer& at_own = *found->second;
      const auto add_ttft = [&](PairedValues::Values& values) {
        values.own.back().push_back(at_own.pieces_s.front());
        values.base.back().push_back(at_base.pieces_s.front());
      };
      add_ttft(paired.ttft);
      if (repeats[i]) add_ttft(paired.repeat_ttft);
      if (request.turn > 1) add_ttft(paired.later_ttft);
      std::ranges::copy(gaps_of(at_own), std::back_inserter(paired.itl.own.back()));
      std::ranges::copy(gaps_of(at_base), std::back_inserter(paired.itl.base.back()));
    }
  }
  return paired;
}

Interval ratio_of_quantiles(std::span<const std::vector<double>> values, std::span<const std::vector<double>> base,
                            double share) {
  std::vector<std::size_t> some;  // groups with values: of resampled empty ones alone there is nothing to compare
  for (std::size_t i = 0; i < std::min(values.size(), base.size()); ++i) {
    if (!values[i].empty() || !base[i].empty()) some.push_back(i);
  }
  std::vector<std::size_t> chosen = some;
  const auto ratio = [&] {
    const double under = quantile(together(base, chosen), share);
    return under > 0 ? quantile(together(values, chosen), share) / under : 0;
  };
  Interval interval{.mean = ratio()};
  if (some.empty()) return interval;
  std::mt19937_64 random(0);
  std::vector<double> ratios(kResamples);
  for (double& each : ratios) {
    for (std::size_t& group : chosen) group = some[random() % some.size()];
    each = ratio();
  }
  interval.low = quantile(ratios, 0.025);
  interval.high = quantile(ratios, 0.975);
  return interval;
}

}  // namespace shale
