#include "model/capture.h"

#include <algorithm>
#include <cmath>

#include "core/half.h"
#include "model/model.h"
#include "model/query_moments.h"

namespace shale {

Capture::Capture(const ModelInfo& model, std::uint32_t first, std::uint32_t tokens, const ScorerNeeds& needs)
    : first_(first), needs_(needs), next_(first), unbroken_from_(first) {
  for (const Rope& rope : model.ropes) {
    const auto alike = [&](const Rope& other) { return other.base == rope.base && other.scale == rope.scale; };
    const auto found = std::ranges::find_if(ropes_, alike);
    rope_of_layer_.push_back(static_cast<std::size_t>(found - ropes_.begin()));
    if (found == ropes_.end()) ropes_.push_back(rope);
  }
  seen_ = {.layers = model.layers,
           .query_heads = model.query_heads,
           .kv_heads = model.kv_heads,
           .head_dim = model.head_dim,
           .tokens = tokens,
           .window = std::min(needs.last_queries, tokens)};
  const std::size_t heads = std::size_t{model.layers} * model.query_heads;
  const std::size_t columns = std::size_t{model.layers} * model.kv_heads * tokens;
  seen_.queries.resize(heads * seen_.window * model.head_dim);
  if (needs.attention_sums) seen_.attention_sums.resize(columns);
  if (needs.query_moments) {
    seen_.query_mean.resize(heads * model.head_dim);
    seen_.query_covariance.resize(heads * model.head_dim * model.head_dim);
  }
  if (needs.repeat_attention) seen_.repeat_attention.resize(columns);
}

Status Capture::check(const Sequence& sequence, std::uint32_t count) const {
  const std::uint32_t position = sequence.length() - count;
  if (position < first_ || (position < last() && sequence.length() > last()) || sequence.lossy()) {
    return fail(ErrorCode::kInvalidArgument, "tokens {} to {} of {} sequence cannot be captured for a span at {} to {}",
                position, sequence.length(), sequence.lossy() ? "a lossy" : "an exact", first_, last());
  }
  return {};
}

void Capture::begin(const Sequence& sequence, std::uint32_t count) {
  const bool failed = in_flight_;
  position_ = sequence.length() - count;
  count_ = count;
  in_flight_ = true;
  repeating_ = position_ >= last();
  if (repeating_) return;
  if (position_ == first_) {
    for (auto* sums : {&seen_.attention_sums, &seen_.query_mean, &seen_.query_covariance}) std::ranges::fill(*sums, 0);
    unbroken_from_ = first_;
  } else if (position_ != next_ || failed) {
    unbroken_from_ = position_;
  }
  if (!needs_.query_moments) return;
  turns_.clear();
  for (const Rope& rope : ropes_) turns_.push_back(turns_of(rope));
}

std::vector<float> Capture::turns_of(const Rope& rope) const {
  std::vector<float> turns(std::size_t{count_} * rope.dimensions);
  for (std::uint32_t pair = 0; pair < rope.pairs(); ++pair) {
    const double frequency = rope.frequency(pair);
    for (std::uint32_t i = 0; i < count_; ++i) {
      float* turn = &turns[std::size_t{i} * rope.dimensions + 2 * pair];
      turn[0] = static_cast<float>(std::cos(frequency * (position_ + i)));
      turn[1] = static_cast<float>(std::sin(frequency * (position_ + i)));
    }
  }
  return turns;
}

void Capture::observe_queries(std::uint32_t layer, const float* rows, std::size_t stride, Executor& executor) {
  if (repeating_) return;
  keep_window(layer, rows, stride);
  if (!needs_.query_moments) return;
  executor.parallel_for(seen_.query_heads,
                        [&](std::size_t head) { add_moments(layer, static_cast<std::uint32_t>(head), rows, stride); });
}

void Capture::keep_window(std::uint32_t layer, const float* rows, std::size_t stride) {
  const std::uint32_t window_first = last() - seen_.window;
  const std::size_t dim = seen_.head_dim;
  for (std::uint32_t i = position_ < window_first ? window_first - position_ : 0; i < count_; ++i) {
    const std::size_t at = position_ + i - window_first;
    for (std::size_t head = 0; head < seen_.query_heads; ++head) {
      float* to = &seen_.queries[((layer * seen_.query_heads + head) * seen_.window + at) * dim];
      std::transform(rows + i * stride + head * dim, rows + i * stride + (head + 1) * dim, to,
                     [](float value) { return to_float(to_half(value)); });
    }
  }
}

void Capture::add_moments(std::uint32_t layer, std::uint32_t head, const float* rows, std::size_t stride) {
  const std::uint32_t counted_from = std::max(position_, first_ + kMomentSinks);
  const std::size_t dim = seen_.head_dim;
  const Rope& rope = ropes_[rope_of_layer_[layer]];
  const std::vector<float>& turns = turns_[rope_of_layer_[layer]];
  std::vector<float> turned;
  for (std::uint32_t i = counted_from - position_; i < count_; ++i) {
    const float* row = rows + i * stride + head * dim;
    turned.insert(turned.end(), row, row + dim);
    turn_back(rope, &turns[std::size_t{i} * rope.dimensions], &turned[turned.size() - dim]);
  }
  const std::size_t index = std::size_t{layer} * seen_.query_heads + head;
  join_moments(turned, seen_.head_dim, counted_from - first_ - kMomentSinks, &seen_.query_mean[index * dim],
               &seen_.query_covariance[index * dim * dim]);
}

void Capture::observe_attention(std::uint32_t layer, const PagePool& pool, const AttentionShape& shape,
                                const AttentionWork& work, Executor& executor) {
  using Kind = ReceivedAttention::Kind;
  std::vector<float>& columns = repeating_ ? seen_.repeat_attention : seen_.attention_sums;
  received_attention(pool, shape, work,
                     {.kind = repeating_ ? Kind::kLargest : Kind::kSum,
                      .first = first_,
                      .tokens = std::min(seen_.tokens, position_ + count_ - first_),
                      .received = &columns[std::size_t{layer} * seen_.kv_heads * seen_.tokens],
                      .stride = seen_.tokens},
                     executor);
}

void Capture::end() {
  in_flight_ = false;
  if (repeating_) {
    ++repetitions_;
  } else {
    next_ = position_ + count_;
  }
}

AttentionStatistics Capture::take() {
  const bool computed = next_ == last() && (!in_flight_ || repeating_);
  if (!computed || unbroken_from_ > last() - seen_.window) {
    seen_.window = 0;
    seen_.queries.clear();
  }
  if (!computed || unbroken_from_ > first_) {
    seen_.attention_sums.clear();
    seen_.query_mean.clear();
    seen_.query_covariance.clear();
  }
  if (repetitions_ == 0 || in_flight_) seen_.repeat_attention.clear();

  const std::size_t dim = seen_.head_dim;
  const float counted = static_cast<float>(std::max(seen_.tokens, kMomentSinks + 1) - kMomentSinks);
  for (std::size_t at = 0; at < seen_.query_covariance.size(); at += dim * dim) {
    float* covariance = &seen_.query_covariance[at];
    for (std::size_t i = 0; i < dim; ++i) {
      for (std::size_t j = i; j < dim; ++j) {
        covariance[j * dim + i] = covariance[i * dim + j] /= counted;
      }
    }
  }
  return std::move(seen_);
}

}  // namespace shale
