#include "profile/rate_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>

#include "codec/extent_layout.h"
#include "codec/head_distortion.h"
#include "codec/tier_cut.h"
#include "codec/views/sequence_pages.h"
#include "placement/allocation.h"
#include "scoring/budgets/budget.h"

namespace shale {
namespace {

constexpr std::uint32_t kQueriesMax = 16;  // a query head, the last of the window

struct HeadCosts {
  std::vector<std::vector<double>> coded;  // [tier][quantizer]
  std::vector<double> dropped;             // [tier]
  std::vector<double> tokens;              // [tier]
};

using Quantizers = std::vector<std::unique_ptr<Quantizer>>;
using TierBytes = std::vector<std::uint64_t>;  // by importance

// Tokens of one importance, over all heads; all of them where nothing ranks them.
std::uint64_t tokens_of(const ExtentManifest& extent, std::uint32_t tier) {
  const std::uint32_t heads = extent.geometry.layers * extent.geometry.kv_heads;
  if (extent.tiers.empty()) return std::uint64_t{heads} * extent.tokens;
  std::uint64_t tokens = 0;
  for (std::uint32_t head = 0; head < heads; ++head) {
    tokens += extent.tiers.count(head, 0, extent.tokens, tier, tier + 1);
  }
  return tokens;
}

// What the extents of `tokens` tokens take at rest: exactly, but for packed quantizers, about. `tiers` of all tokens,
// for a method with a scorer; what they take themselves is tier 0's, for it is kept at every keep.
Result<TierBytes> tier_bytes(const KvGeometry& geometry, const Method& method, std::uint32_t tokens,
                             const TierMap& tiers, const CachegenTables* tables) {
  TierBytes bytes;
  ExtentManifest extent;
  extent.geometry = geometry;
  extent.method = method;
  const std::uint32_t extent_tokens = extent.chunk_tokens * kExtentChunksMax;
  for (std::uint32_t first = 0; first < tokens; first += extent_tokens) {
    extent.tokens = std::min(extent_tokens, tokens - first);
    if (!tiers.empty()) extent.tiers = tiers.part(first, extent.tokens);
    SHALE_ASSIGN(extent.layers_per_group, suitable_layers_per_group(geometry, method, extent.tokens));
    SHALE_ASSIGN(const ExtentLayout layout, ExtentLayout::make(extent, tables));
    bytes.resize(layout.tiers());
    bytes[0] += extent.tiers.bytes().size();
    for (const BlobInfo& blob : layout.blobs()) {
      if (layout.packed(blob.tier)) continue;
      for (const BlobChunk& chunk : blob.chunks) bytes[blob.tier] += chunk.bytes;
    }
    for (std::uint32_t tier = 0; tier < layout.tiers(); ++tier) {
      if (!layout.packed(tier)) continue;
      const double elements = 2.0 * geometry.head_dim * static_cast<double>(tokens_of(extent, tier));
      bytes[tier] += static_cast<std::uint64_t>(elements * layout.quantizer(tier).bits() / 8);
    }
  }
  return bytes;
}

// Under one budget across heads.
class RatePlanner {
 public:
  // `pages` are the context's, and outlive it.
  static Result<RatePlanner> make(const RankedContext& context, const ViewPages& pages, const Quantizers& quantizers,
                                  const std::string& budget, Executor& executor);

  // The same bits and the same share of tokens for all heads, as the budget spreads them.
  struct Object {
    std::uint32_t precision = 0;  // index of precisions_
    double distortion = 0;        // predicted
  };
  std::optional<Object> best_object(std::uint64_t bytes) const;  // nothing where none has so few bytes
  void take_object(std::uint32_t precision, RatePlan& plan) const;
  Status take_best_per_head(std::uint64_t bytes, RatePlan& plan) const;
  std::vector<QuantizerError> errors() const;

 private:
  RatePlanner(const RankedContext& context, const ViewPages& pages, const Quantizers& quantizers, Executor& executor)
      : context_(context),
        pages_(pages),
        quantizers_(quantizers),
        executor_(executor),
        tokens_(pages.tokens()),
        shape_(pages.shape()) {
    Precision none;
    list_precisions(none);
  }

  void list_precisions(Precision& begun);
  HeadDistortion distortion_of(std::uint32_t head) const {
    return head_distortion(pages_, head, context_.queries, context_.query_heads, context_.window, kQueriesMax,
                           context_.model.attention_scale);
  }
  HeadCosts costs_of(std::uint32_t head) const;
  double distortion_of(const HeadCosts& costs, const Precision& precision) const;
  std::uint64_t bytes_of(const Precision& precision) const;
  // The choice of heads that have chosen these of precisions_.
  RateChoice choice_of(std::uint64_t bytes, std::span<const std::uint32_t> chosen) const;
  Method method_of(const Precision& precision) const;

  const RankedContext& context_;
  const ViewPages& pages_;
  const Quantizers& quantizers_;
  Executor& executor_;
  std::uint32_t tokens_;
  PageShape shape_;
  std::string budget_;
  TierMap tiers_;
  std::vector<TierBytes> bytes_;       // by quantizer
  std::vector<Precision> precisions_;  // all there are
  std::vector<HeadCosts> costs_;       // by head
};

Result<RatePlanner> RatePlanner::make(const RankedContext& context, const ViewPages& pages,
                                      const Quantizers& quantizers, const std::string& budget, Executor& executor) {
  SHALE_ASSIGN(const auto across_heads, make_budget(budget));
  RatePlanner planner(context, pages, quantizers, executor);
  planner.budget_ = budget;
  const PageShape& shape = planner.shape_;
  const std::vector<std::uint32_t> layers = ranked_layers(shape.layers, context.model.windows);
  const ModelScores scores{static_cast<std::uint32_t>(layers.size()), shape.kv_heads, planner.tokens_, context.scores};
  planner.tiers_ = cut_tiers(*across_heads, scores, context.scorer_window, shape, layers);
  for (const auto& quantizer : quantizers) {
    const Method method{context.scorer, std::string(quantizer->name()), budget == "uniform" ? "" : budget};
    SHALE_ASSIGN(TierBytes bytes,
                 tier_bytes(pages.view().geometry, method, planner.tokens_, planner.tiers_, context.tables));
    planner.bytes_.push_back(std::move(bytes));
  }
  planner.costs_.resize(shape.pages_per_block());
  executor.parallel_for(planner.costs_.size(), [&](std::size_t head) {
    planner.costs_[head] = planner.costs_of(static_cast<std::uint32_t>(head));
  });
  return planner;
}

void RatePlanner::list_precisions(Precision& begun) {
  for (std::size_t q = begun.empty() ? 0 : begun.back(); q < quantizers_.size(); ++q) {
    begun.push_back(static_cast<std::uint8_t>(q));
    precisions_.push_back(begun);
    if (begun.size() < kKeepGrid.size()) list_precisions(begun);
    begun.pop_back();
  }
}

HeadCosts RatePlanner::costs_of(std::uint32_t head) const {
  const HeadDistortion distortion = distortion_of(head);
  const auto by_tier = tokens_by_tier(tiers_, head);
  HeadCosts costs;
  for (const auto& tier : by_tier) {
    costs.dropped.push_back(distortion.dropped(tier));
    costs.tokens.push_back(static_cast<double>(tier.size()));
    auto& coded = costs.coded.emplace_back();
    for (const auto& quantizer : quantizers_) coded.push_back(distortion.coded(tier, quantizer->of_head(head)));
  }
  return costs;
}

double RatePlanner::distortion_of(const HeadCosts& costs, const Precision& precision) const {
  double distortion = 0;
  for (std::uint32_t s = 0; s < kKeepGrid.size(); ++s) {
    distortion += s < precision.size() ? costs.coded[s][precision[s]] : costs.dropped[s];
  }
  return distortion;
}

std::uint64_t RatePlanner::bytes_of(const Precision& precision) const {
  std::uint64_t bytes = 0;
  for (std::uint32_t s = 0; s < precision.size(); ++s) bytes += bytes_[precision[s]][s];
  return bytes;
}

RateChoice RatePlanner::choice_of(std::uint64_t bytes, std::span<const std::uint32_t> chosen) const {
  std::vector<double> measured(chosen.size());
  executor_.parallel_for(chosen.size(), [&](std::size_t i) {
    const auto head = static_cast<std::uint32_t>(i);
    const Precision& precision = precisions_[chosen[head]];
    const auto by_tier = tokens_by_tier(tiers_, head);
    std::vector<HeadDistortion::Coded> kept;
    for (std::size_t s = 0; s < precision.size(); ++s)
      kept.push_back({by_tier[s], &quantizers_[precision[s]]->of_head(head)});
    measured[head] = distortion_of(head).measured(kept);
  });
  RateChoice choice{.bytes = bytes};
  for (std::size_t head = 0; head < chosen.size(); ++head) {
    const double share = 1 / static_cast<double>(chosen.size());
    choice.predicted += share * distortion_of(costs_[head], precisions_[chosen[head]]);
    choice.measured += share * measured[head];
  }
  return choice;
}

Method RatePlanner::method_of(const Precision& precision) const {
  std::vector<std::string_view> names;
  for (const std::uint8_t q : precision) names.push_back(quantizers_[q]->name());
  return Method::parse(fmt::format("{}:{}+{}", budget_, context_.scorer, fmt::join(names, "/"))).value();
}

std::vector<QuantizerError> RatePlanner::errors() const {
  std::vector<std::uint32_t> all(tokens_);
  std::iota(all.begin(), all.end(), 0u);
  std::vector<std::vector<QuantizerError>> of_heads(costs_.size());
  executor_.parallel_for(of_heads.size(), [&](std::size_t i) {
    const auto head = static_cast<std::uint32_t>(i);
    const HeadDistortion distortion = distortion_of(head);
    const auto by_tier = tokens_by_tier(tiers_, head);
    for (const auto& quantizer : quantizers_) {
      QuantizerError& error = of_heads[head].emplace_back();
      error.position = distortion.error({&all, 1}, quantizer->of_head(head));
      error.importance = distortion.error(by_tier, quantizer->of_head(head));
    }
  });

  const double elements = 2.0 * shape_.pages_per_block() * shape_.head_dim * tokens_;
  std::vector<QuantizerError> means;
  for (std::size_t q = 0; q < quantizers_.size(); ++q) {
    QuantizerError& mean = means.emplace_back();
    mean.name = quantizers_[q]->name();
    const TierBytes bytes = tier_bytes(pages_.view().geometry, {"", mean.name}, tokens_, {}, context_.tables).value();
    mean.bits = static_cast<double>(bytes.front()) * 8 / elements;
    for (const auto& errors : of_heads) {
      const auto add = [&](HeadDistortion::Error& sum, const HeadDistortion::Error& one) {
        sum.keys += one.keys / static_cast<double>(of_heads.size());
        sum.values += one.values / static_cast<double>(of_heads.size());
      };
      add(mean.position, errors[q].position);
      add(mean.importance, errors[q].importance);
    }
  }
  return means;
}

std::optional<RatePlanner::Object> RatePlanner::best_object(std::uint64_t bytes) const {
  std::optional<Object> best;
  std::uint64_t bytes_of_best = 0;
  for (std::uint32_t i = 0; i < precisions_.size(); ++i) {
    const std::uint64_t needed = bytes_of(precisions_[i]);
    if (needed > bytes) continue;
    double distortion = 0;
    for (const HeadCosts& head : costs_) distortion += distortion_of(head, precisions_[i]);
    if (best && (distortion > best->distortion || (distortion == best->distortion && needed >= bytes_of_best)))
      continue;
    best = {i, distortion};
    bytes_of_best = needed;
  }
  return best;
}

void RatePlanner::take_object(std::uint32_t precision, RatePlan& plan) const {
  plan.method = method_of(precisions_[precision]);
  plan.keep = kKeepGrid[precisions_[precision].size() - 1];
  plan.object = choice_of(bytes_of(precisions_[precision]), std::vector<std::uint32_t>(costs_.size(), precision));
}

Status RatePlanner::take_best_per_head(std::uint64_t bytes, RatePlan& plan) const {
  std::vector<double> tokens(kKeepGrid.size());  // of all heads, by tier
  for (const HeadCosts& head : costs_) std::ranges::transform(tokens, head.tokens, tokens.begin(), std::plus());
  // A head's share of a tier's bytes is its share of the tokens: one that is not ranked has all of its own in tier 0.
  const auto bytes_of = [&](const HeadCosts& head, const Precision& precision) {
    double sum = 0;
    for (std::uint32_t s = 0; s < precision.size(); ++s) {
      if (tokens[s] > 0) sum += static_cast<double>(bytes_[precision[s]][s]) * head.tokens[s] / tokens[s];
    }
    return static_cast<std::uint64_t>(sum);
  };
  std::vector<std::vector<Point>> points;
  for (const HeadCosts& head : costs_) {
    auto& of_head = points.emplace_back();
    for (std::uint32_t i = 0; i < precisions_.size(); ++i) {
      of_head.push_back(
          {.bytes = bytes_of(head, precisions_[i]), .utility = -distortion_of(head, precisions_[i]), .candidate = i});
    }
  }
  SHALE_ASSIGN(const Allocation allocation, allocate(points, bytes));
  for (const std::uint32_t chosen : allocation.chosen) plan.heads.push_back(precisions_[chosen]);
  plan.per_head = choice_of(allocation.bytes, allocation.chosen);
  return {};
}

}  // namespace

Result<RatePlan> plan_rate(const RankedContext& context, std::span<const std::string> quantizers,
                           std::span<const std::string> budgets, std::uint64_t budget_bytes, Executor& executor) {
  const std::uint32_t tokens = context.sequence->length();
  const PageShape& shape = context.sequence->pool().shape();
  if (tokens == 0 || tokens % shape.block_size != 0) {
    return fail(ErrorCode::kInvalidArgument, "{} tokens are no whole blocks of {}; only those are stored", tokens,
                shape.block_size);
  }
  const std::size_t query_elements = std::size_t{shape.layers} * context.query_heads * context.window * shape.head_dim;
  if (query_elements == 0 || context.queries.size() != query_elements || context.query_heads % shape.kv_heads != 0) {
    return fail(ErrorCode::kInvalidArgument,
                "distortion is measured by the context's last queries; none were captured");
  }
  Quantizers made;
  for (const std::string& name : quantizers) {
    SHALE_ASSIGN(auto quantizer, make_quantizer(name, context.tables));
    if (quantizer->needs_tables()) return fail(ErrorCode::kInvalidArgument, "{} needs tables of the model", name);
    made.push_back(std::move(quantizer));
  }
  RatePlan plan;
  const SequencePages pages(*context.sequence, tokens, executor);
  plan.full_bytes = pages->view().geometry.bytes(tokens);
  std::vector<RatePlanner> planners;
  std::size_t best_planner = 0;
  std::optional<RatePlanner::Object> best;
  for (const std::string& budget : budgets) {
    SHALE_ASSIGN(RatePlanner planner, RatePlanner::make(context, *pages, made, budget, executor));
    const auto object = planner.best_object(budget_bytes);
    if (object && (!best || object->distortion < best->distortion)) {
      best = object;
      best_planner = planners.size();
    }
    planners.push_back(std::move(planner));
  }
  SHALE_TRY(planners.front().take_best_per_head(budget_bytes, plan));
  plan.errors = planners.front().errors();
  if (!best) return fail(ErrorCode::kInvalidArgument, "nothing of the context takes {} bytes or less", budget_bytes);
  planners[best_planner].take_object(best->precision, plan);
  return plan;
}

}  // namespace shale
