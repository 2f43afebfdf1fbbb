#include "report/prediction_report.h"

#include <functional>
#include <map>
#include <utility>

#include "metadata/quality_table.h"
#include "profile/rank_correlation.h"
#include "profile/signal_fit.h"

namespace shale {
namespace {

constexpr std::size_t kContexts = 10;

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
  std::string dataset, kind;
  Hash128 name;
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
    context.kind = row->kind;
    context.name = Hasher().add(row->dataset).add(row->context).finish();
    context.agreement[configuration].add(row->agreement);
    context.predicted[configuration] = row->predicted;
    context.seconds = row->seconds;
  }
  std::vector<PredictedContext> all;
  for (auto& [name, context] : contexts) all.push_back(std::move(context));
  return all;
}

bool shipped(const PredictedContext& context) { return context.dataset == kPriorDataset; }

// What one way of predicting says of a context's configuration, where it says something.
using Predict = std::function<std::optional<double>(const PredictedContext&, const Configuration&)>;

constexpr std::size_t kBetweenMin = 4;  // contexts

PredictionSkill skill_by(std::string name, std::span<const PredictedContext> contexts, const Predict& predict,
                         double seconds) {
  Mean within, between;
  std::map<Configuration, std::pair<std::vector<double>, std::vector<double>>> by_configuration;
  for (const PredictedContext& context : contexts) {
    if (shipped(context)) continue;
    std::vector<double> measured, predicted;
    for (const auto& [configuration, agreement] : context.agreement) {
      const std::optional<double> value = predict(context, configuration);
      if (!value) continue;
      measured.push_back(agreement.value());
      predicted.push_back(*value);
      by_configuration[configuration].first.push_back(*value);
      by_configuration[configuration].second.push_back(agreement.value());
    }
    if (const auto correlation = rank_correlation(predicted, measured)) within.add(*correlation);
  }
  for (const auto& [configuration, both] : by_configuration) {
    if (both.first.size() < kBetweenMin) continue;
    if (const auto correlation = rank_correlation(both.first, both.second)) between.add(*correlation);
  }
  return {.predictor = std::move(name),
          .contexts = within.count,
          .rank_correlation = within.value(),
          .between = between.count > 0 ? std::optional(between.value()) : std::nullopt,
          .seconds = seconds};
}

double seconds_of(const PredictedContext& context, const std::string& name) {
  const auto found = context.seconds.find(name);
  return found == context.seconds.end() ? 0 : found->second;
}

// The mean of a context.
double mean_seconds(std::span<const PredictedContext> contexts, const std::string& name) {
  Mean mean;
  for (const PredictedContext& context : contexts) {
    if (!shipped(context)) mean.add(seconds_of(context, name));
  }
  return mean.value();
}

PredictionSkill skill_of(std::span<const PredictedContext> contexts, const std::string& predictor, double sign,
                         const std::string& seconds) {
  const auto predict = [&](const PredictedContext& context, const Configuration& of) {
    return std::optional(sign * context.predicted.at(of).at(predictor));
  };
  return skill_by(predictor, contexts, predict, mean_seconds(contexts, seconds));
}

PredictionSkill skill_of_prefixes(std::span<const PredictedContext> contexts) {
  const auto predict = [&](const PredictedContext& context, const Configuration& of) -> std::optional<double> {
    Mean others;
    for (const PredictedContext& other : contexts) {
      if (&other == &context || other.dataset != context.dataset || others.count == kContexts) continue;
      const auto found = other.agreement.find(of);
      if (found != other.agreement.end()) others.add(found->second.value());
    }
    return others.count == 0 ? std::nullopt : std::optional(others.value());
  };
  return skill_by("ten contexts", contexts, predict, 0);
}

// What a cache would expect that had profiled some of the contexts.
class Expectation {
 public:
  Expectation(std::span<const PredictedContext> contexts,
              const std::function<bool(const PredictedContext&)>& profiled) {
    std::vector<SignalSample> samples;
    for (const PredictedContext& context : contexts) {
      if (const auto kind = kind_named(context.kind)) table_.describe(context.name, *kind, 0);
      if (!profiled(context)) continue;
      for (const auto& [configuration, agreement] : context.agreement) {
        const auto method = Method::parse(configuration.first);
        if (!method) continue;
        table_.record(context.name, *method, configuration.second, agreement.value(), 1);
        const auto number = numbers_.try_emplace(configuration, numbers_.size()).first->second;
        samples.push_back({number, signals_of(context, configuration), agreement.value()});
      }
    }
    fit_ = SignalFit::of(samples);
  }

  std::optional<double> by_prior(const PredictedContext& context, const Configuration& of) const {
    const auto method = Method::parse(of.first);
    if (!method) return std::nullopt;
    const auto known = table_.quality_for(context.name, *method, of.second);
    return known ? std::optional(known->expected) : std::nullopt;
  }
  std::optional<double> by_signals(const PredictedContext& context, const Configuration& of) const {
    const auto prior = by_prior(context, of);
    const auto number = numbers_.find(of);
    if (!prior || !fit_ || number == numbers_.end()) return prior;
    return *prior + fit_->shift(number->second, signals_of(context, of));
  }

 private:
  static ContextSignals signals_of(const PredictedContext& context, const Configuration& of) {
    const auto& predicted = context.predicted.at(of);
    return {.mass = predicted.at("mass"), .error = predicted.at("error")};
  }

  QualityTable table_;
  std::map<Configuration, std::size_t> numbers_;
  std::optional<SignalFit> fit_;
};

// Skills by the shipped texts alone; by them and the contexts of all other data sets; and by signals, too.
std::vector<PredictionSkill> skills_of_expectation(std::span<const PredictedContext> contexts) {
  const Expectation prior(contexts, shipped);
  std::map<std::string, Expectation> without;
  for (const PredictedContext& context : contexts) {
    without.try_emplace(context.dataset, contexts,
                        [&](const PredictedContext& other) { return other.dataset != context.dataset; });
  }
  const auto of_prior = [&](const auto& context, const auto& of) { return prior.by_prior(context, of); };
  const auto of_others = [&](const auto& context, const auto& of) {
    return without.at(context.dataset).by_prior(context, of);
  };
  const auto of_signals = [&](const auto& context, const auto& of) {
    return without.at(context.dataset).by_signals(context, of);
  };
  return {skill_by("prior", contexts, of_prior, 0), skill_by("other data sets", contexts, of_others, 0),
          skill_by("and signals", contexts, of_signals, mean_seconds(contexts, "signals"))};
}

}  // namespace

std::vector<PredictionSkill> prediction_skills(std::span<const QualityRow* const> rows) {
  const std::vector<PredictedContext> contexts = contexts_of(rows);
  if (contexts.empty()) return {};
  const auto measured = [](const PredictedContext& context, const Configuration& of) {
    return std::optional(context.agreement.at(of).value());
  };
  std::vector<PredictionSkill> skills = {
      skill_by("measured", contexts, measured, mean_seconds(contexts, "measured")),
      skill_of(contexts, "mass", 1, "signals"),
      skill_of(contexts, "error", -1, "signals"),
      skill_of(contexts, "probe", 1, "probe"),
      skill_of_prefixes(contexts),
  };
  for (PredictionSkill& skill : skills_of_expectation(contexts)) skills.push_back(std::move(skill));
  return skills;
}

}  // namespace shale
