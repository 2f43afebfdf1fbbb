#include "cli/prediction_report.h"

#include <map>
#include <utility>

#include "profile/rank_correlation.h"

namespace shale {
namespace {

constexpr std::size_t kEntries = 10;

using Configuration = std::pair<std::string, double>;  // method, keep

struct Mean {
  double sum = 0;
  std::size_t count = 0;
  void add(double value) {
    sum += value;
    ++count;
  }
  double value() const { return count == 0 ? 0 : sum / static_cast<double>(count); }
};

struct PredictedContext {
  std::string dataset;
  std::map<Configuration, Mean> agreement;
  std::map<Configuration, std::map<std::string, double>> predicted;
  std::map<std::string, double> seconds;
};

std::vector<PredictedContext> contexts_of(std::span<const QualityRow* const> rows) {
  std::map<std::pair<std::string, std::string>, PredictedContext> contexts;
  for (const QualityRow* row : rows) {
    if (row->predicted.empty()) continue;
    PredictedContext& context = contexts[{row->dataset, row->context}];
    const Configuration configuration{row->method, row->keep};
    context.dataset = row->dataset;
    context.agreement[configuration].add(row->agreement);
    context.predicted[configuration] = row->predicted;
    context.seconds = row->seconds;
  }
  std::vector<PredictedContext> all;
  for (auto& [name, context] : contexts) all.push_back(std::move(context));
  return all;
}

// Adds the correlation over the configurations that `predict` has something to say of.
template <class Predict>
void add_correlation(const PredictedContext& context, const Predict& predict, Mean& correlations) {
  std::vector<double> measured, predicted;
  for (const auto& [configuration, agreement] : context.agreement) {
    const std::optional<double> value = predict(configuration);
    if (!value) continue;
    measured.push_back(agreement.value());
    predicted.push_back(*value);
  }
  if (const auto correlation = rank_correlation(predicted, measured)) correlations.add(*correlation);
}

double seconds_of(const PredictedContext& context, const std::string& name) {
  const auto found = context.seconds.find(name);
  return found == context.seconds.end() ? 0 : found->second;
}

PredictionSkill skill_of(std::span<const PredictedContext> contexts, const std::string& predictor, double sign,
                         const std::string& seconds) {
  Mean correlations, cost;
  for (const PredictedContext& context : contexts) {
    add_correlation(
        context, [&](const Configuration& of) { return std::optional(sign * context.predicted.at(of).at(predictor)); },
        correlations);
    cost.add(seconds_of(context, seconds));
  }
  return {predictor, correlations.count, correlations.value(), cost.value()};
}

PredictionSkill skill_of_entries(std::span<const PredictedContext> contexts) {
  Mean correlations;
  for (const PredictedContext& context : contexts) {
    std::map<Configuration, Mean> others;
    std::size_t used = 0;
    for (const PredictedContext& other : contexts) {
      if (&other == &context || other.dataset != context.dataset || used == kEntries) continue;
      ++used;
      for (const auto& [configuration, agreement] : other.agreement) others[configuration].add(agreement.value());
    }
    const auto predict = [&](const Configuration& of) -> std::optional<double> {
      const auto found = others.find(of);
      return found == others.end() ? std::nullopt : std::optional(found->second.value());
    };
    add_correlation(context, predict, correlations);
  }
  return {"ten entries", correlations.count, correlations.value(), 0};
}

}  // namespace

std::vector<PredictionSkill> prediction_skills(std::span<const QualityRow* const> rows) {
  const std::vector<PredictedContext> contexts = contexts_of(rows);
  if (contexts.empty()) return {};
  Mean measuring;
  for (const PredictedContext& context : contexts) measuring.add(seconds_of(context, "measured"));
  return {{"measured", contexts.size(), 1, measuring.value()},
          skill_of(contexts, "mass", 1, "signals"),
          skill_of(contexts, "error", -1, "signals"),
          skill_of(contexts, "probe", 1, "probe"),
          skill_of_entries(contexts)};
}

}  // namespace shale
