#include "profile/rate_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "codec/entry_pages.h"
#include "codec/layout.h"
#include "codec/token_copy.h"
#include "placement/allocation.h"
#include "scoring/scorer.h"

namespace shale {
namespace {

constexpr std::uint32_t kQueriesMax = 16;  // a query head, the last of the window

struct HeadCosts {
  std::vector<std::vector<double>> coded;  // [stratum][quantizer]
  std::vector<double> dropped;             // [stratum]
  std::vector<QuantizerError> errors;      // [quantizer]
};

class Planner {
 public:
  Planner(const RankedContext& context, std::vector<std::unique_ptr<Quantizer>> quantizers,
          std::vector<ObjectLayout> layouts, std::uint64_t budget_bytes, Executor& executor)
      : context_(context),
        quantizers_(std::move(quantizers)),
        layouts_(std::move(layouts)),
        budget_bytes_(budget_bytes),
        executor_(executor),
        tokens_(context.sequence->length()),
        shape_(context.sequence->pool().shape()),
        pages_(context.sequence->pool(), context.sequence->slabs(tokens_), 0, tokens_) {
    Precision none;
    list_precisions(none);
  }

  Result<RatePlan> plan();

 private:
  std::uint32_t strata() const { return layouts_.front().strata(); }
  void list_precisions(Precision& begun);
  HeadDistortion distortion_of(std::uint32_t head) const;
  std::vector<std::vector<std::uint32_t>> strata_of(std::uint32_t head) const;
  HeadCosts costs_of(std::uint32_t head) const;
  std::vector<Point> points_of(const HeadCosts& costs) const;
  std::uint64_t head_bytes(const Precision& precision) const;
  // Means over all heads.
  RateChoice choice_of(std::span<const std::vector<Point>> points, std::span<const std::uint32_t> chosen) const;
  Method method_of(const Precision& precision) const;
  std::vector<QuantizerError> mean_errors(std::span<const HeadCosts> costs) const;

  const RankedContext& context_;
  std::vector<std::unique_ptr<Quantizer>> quantizers_;
  std::vector<ObjectLayout> layouts_;  // by quantizer
  std::uint64_t budget_bytes_;
  Executor& executor_;
  std::uint32_t tokens_;
  PageShape shape_;
  EntryPages pages_;
  std::vector<Precision> precisions_;  // all there are
};

void Planner::list_precisions(Precision& begun) {
  for (std::size_t q = begun.empty() ? 0 : begun.back(); q < quantizers_.size(); ++q) {
    begun.push_back(static_cast<std::uint8_t>(q));
    precisions_.push_back(begun);
    if (begun.size() < strata()) list_precisions(begun);
    begun.pop_back();
  }
}

HeadDistortion Planner::distortion_of(std::uint32_t head) const {
  const std::uint32_t layer = head / shape_.kv_heads, d = shape_.head_dim;
  const HeadPages source = pages_.head(layer, head % shape_.kv_heads);
  std::vector<Half> keys(std::size_t{d} * tokens_), values(keys.size());
  gather_tokens(source.pages, shape_, 0, tokens_, {keys.data(), values.data(), tokens_, tokens_, d}, 0);
  const std::uint32_t group = context_.query_heads / shape_.kv_heads;
  const std::uint32_t first = layer * context_.query_heads + head % shape_.kv_heads * group;
  const std::uint32_t used = std::min(kQueriesMax, context_.window);
  std::vector<float> queries;
  for (std::uint32_t row = first; row < first + group; ++row) {
    const auto all = context_.queries.subspan(std::size_t{row} * context_.window * d, std::size_t{context_.window} * d);
    const auto last = all.last(std::size_t{used} * d);
    queries.insert(queries.end(), last.begin(), last.end());
  }
  return HeadDistortion({keys.data(), values.data(), tokens_, tokens_, d}, queries);
}

// Tokens of each stratum, ascending.
std::vector<std::vector<std::uint32_t>> Planner::strata_of(std::uint32_t head) const {
  const auto order = ranking(context_.scores.subspan(std::size_t{head} * tokens_, tokens_));
  std::vector<std::vector<std::uint32_t>> strata;
  for (std::uint32_t s = 0, rank = 0; s < this->strata(); ++s) {
    const std::uint32_t end = layouts_.front().strata_tokens()[s];
    auto& stratum = strata.emplace_back(order.begin() + rank, order.begin() + end);
    std::ranges::sort(stratum);
    rank = end;
  }
  return strata;
}

HeadCosts Planner::costs_of(std::uint32_t head) const {
  const HeadDistortion distortion = distortion_of(head);
  const auto strata = strata_of(head);
  HeadCosts costs{.coded = {}, .dropped = {}, .errors = std::vector<QuantizerError>(quantizers_.size())};
  std::vector<std::uint32_t> all(tokens_);
  std::iota(all.begin(), all.end(), 0u);
  for (const auto& stratum : strata) {
    costs.dropped.push_back(distortion.dropped(stratum));
    auto& coded = costs.coded.emplace_back();
    for (const auto& quantizer : quantizers_) coded.push_back(distortion.coded(stratum, quantizer->of_head(head)));
  }
  for (std::size_t q = 0; q < quantizers_.size(); ++q) {
    costs.errors[q].position = distortion.error({&all, 1}, quantizers_[q]->of_head(head));
    costs.errors[q].importance = distortion.error(strata, quantizers_[q]->of_head(head));
  }
  return costs;
}

std::uint64_t Planner::head_bytes(const Precision& precision) const {
  std::uint64_t bytes = 0;
  for (std::uint32_t s = 0; s < precision.size(); ++s) bytes += layouts_[precision[s]].stratum_bytes(s);
  return bytes / shape_.pages_per_slab();
}

std::vector<Point> Planner::points_of(const HeadCosts& costs) const {
  std::vector<Point> points;
  for (std::uint32_t i = 0; i < precisions_.size(); ++i) {
    double distortion = 0;
    for (std::uint32_t s = 0; s < strata(); ++s) {
      distortion += s < precisions_[i].size() ? costs.coded[s][precisions_[i][s]] : costs.dropped[s];
    }
    points.push_back({.bytes = head_bytes(precisions_[i]), .utility = -distortion, .candidate = i});
  }
  return points;
}

RateChoice Planner::choice_of(std::span<const std::vector<Point>> points, std::span<const std::uint32_t> chosen) const {
  std::vector<double> measured(points.size());
  executor_.parallel_for(points.size(), [&](std::size_t i) {
    const auto head = static_cast<std::uint32_t>(i);
    const Precision& precision = precisions_[chosen[head]];
    const auto strata = strata_of(head);
    std::vector<HeadDistortion::Coded> kept;
    for (std::size_t s = 0; s < precision.size(); ++s)
      kept.push_back({strata[s], &quantizers_[precision[s]]->of_head(head)});
    measured[head] = distortion_of(head).measured(kept);
  });
  RateChoice choice;
  for (std::size_t head = 0; head < points.size(); ++head) {
    const Point& point = points[head][chosen[head]];
    choice.bytes += point.bytes;
    choice.predicted -= point.utility / static_cast<double>(points.size());
    choice.measured += measured[head] / static_cast<double>(points.size());
  }
  return choice;
}

Method Planner::method_of(const Precision& precision) const {
  std::vector<std::string_view> names;
  for (const std::uint8_t q : precision) names.push_back(quantizers_[q]->name());
  return Method::parse(fmt::format("{}+{}", context_.scorer, fmt::join(names, "/"))).value();
}

std::vector<QuantizerError> Planner::mean_errors(std::span<const HeadCosts> costs) const {
  const double elements = 2.0 * shape_.pages_per_slab() * shape_.head_dim * tokens_;
  std::vector<QuantizerError> means;
  for (std::size_t q = 0; q < quantizers_.size(); ++q) {
    QuantizerError& mean = means.emplace_back();
    mean.name = quantizers_[q]->name();
    const auto layout = ObjectLayout::make(shape_, {"", mean.name}, tokens_, context_.tables).value();
    mean.bits = static_cast<double>(layout.stratum_bytes(0)) * 8 / elements;
    for (const HeadCosts& head : costs) {
      const auto add = [&](HeadDistortion::Error& sum, const HeadDistortion::Error& one) {
        sum.keys += one.keys / static_cast<double>(costs.size());
        sum.values += one.values / static_cast<double>(costs.size());
      };
      add(mean.position, head.errors[q].position);
      add(mean.importance, head.errors[q].importance);
    }
  }
  return means;
}

Result<RatePlan> Planner::plan() {
  const std::size_t heads = shape_.pages_per_slab();
  std::vector<HeadCosts> costs(heads);
  executor_.parallel_for(heads, [&](std::size_t head) { costs[head] = costs_of(static_cast<std::uint32_t>(head)); });
  std::vector<std::vector<Point>> points;
  std::vector<Point> together = points_of(costs.front());
  for (Point& point : together) point.bytes = point.bytes * heads, point.utility = 0;
  for (const HeadCosts& head : costs) {
    points.push_back(points_of(head));
    for (std::size_t i = 0; i < together.size(); ++i) together[i].utility += points.back()[i].utility;
  }

  RatePlan plan;
  plan.full_bytes = std::uint64_t{shape_.pages_for(tokens_)} * shape_.slab_bytes();
  SHALE_ASSIGN(const Allocation per_head, allocate(points, budget_bytes_));
  std::erase_if(together, [&](const Point& point) { return point.bytes > budget_bytes_; });
  const Point best = *std::ranges::max_element(together, [](const Point& a, const Point& b) {
    return a.utility < b.utility || (a.utility == b.utility && a.bytes > b.bytes);
  });
  plan.method = method_of(precisions_[best.candidate]);
  plan.keep = kKeepGrid[precisions_[best.candidate].size() - 1];
  plan.object = choice_of(points, std::vector<std::uint32_t>(heads, best.candidate));
  for (const std::uint32_t chosen : per_head.chosen) plan.heads.push_back(precisions_[chosen]);
  plan.per_head = choice_of(points, per_head.chosen);
  plan.errors = mean_errors(costs);
  return plan;
}

}  // namespace

Result<RatePlan> plan_rate(const RankedContext& context, std::span<const std::string> quantizers,
                           std::uint64_t budget_bytes, Executor& executor) {
  const PageShape& shape = context.sequence->pool().shape();
  const std::size_t query_elements = std::size_t{shape.layers} * context.query_heads * context.window * shape.head_dim;
  if (query_elements == 0 || context.queries.size() != query_elements || context.query_heads % shape.kv_heads != 0) {
    return fail(ErrorCode::kInvalidArgument,
                "distortion is measured by the context's last queries; none were captured");
  }
  std::vector<std::unique_ptr<Quantizer>> made;
  std::vector<ObjectLayout> layouts;
  for (const std::string& name : quantizers) {
    SHALE_ASSIGN(auto quantizer, make_quantizer(name, context.tables));
    if (quantizer->needs_tables()) return fail(ErrorCode::kInvalidArgument, "{} needs tables of the model", name);
    SHALE_ASSIGN(ObjectLayout layout,
                 ObjectLayout::make(shape, {context.scorer, name}, context.sequence->length(), context.tables));
    made.push_back(std::move(quantizer));
    layouts.push_back(std::move(layout));
  }
  return Planner(context, std::move(made), std::move(layouts), budget_bytes, executor).plan();
}

}  // namespace shale
