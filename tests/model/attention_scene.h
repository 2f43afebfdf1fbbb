// One layer's attention for several sequences, over pages scattered in a pool, beside naive twins.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "attention/attention.h"
#include "paging/page_tokens.h"

namespace shale::testing {

class ThreadsExecutor final : public Executor {
 public:
  explicit ThreadsExecutor(std::size_t threads) : threads_(threads) {}
  std::size_t threads() const override { return threads_; }
  void parallel_for(std::size_t count, const std::function<void(std::size_t)>& work) override {
    std::atomic<std::size_t> next = 0;
    const auto loop = [&] {
      for (std::size_t i = next++; i < count; i = next++) work(i);
    };
    std::vector<std::jthread> workers;
    for (std::size_t i = 1; i < threads_; ++i) workers.emplace_back(loop);
    loop();
  }

 private:
  std::size_t threads_;
};

// One layer's attention for several sequences: pages scattered over a shuffled pool, every slot without a token NaN.
class Scene {
 public:
  Scene(std::uint32_t query_heads, std::uint32_t kv_heads, std::uint32_t head_dim, std::uint32_t block_size,
        PageElement element)
      : shape_{query_heads, kv_heads, head_dim, 1.0f / std::sqrt(static_cast<float>(head_dim))},
        pool_(
            std::move(PagePool::create({1, kv_heads, head_dim, block_size, element}, std::size_t{64} << 20).value())) {}

  // `counts`: tokens of consecutive pages, the same for every head unless `ragged`, which varies them by head.
  void add(const std::vector<std::uint32_t>& counts, std::uint32_t queries, bool ragged = false) {
    Case& added = *cases_.emplace_back(std::make_unique<Case>());
    for (std::uint32_t head = 0; head < shape_.kv_heads; ++head) {
      std::vector<PageSlot>& slots = added.slots.emplace_back();
      for (std::size_t p = 0; p < counts.size(); ++p) {
        const bool shorter = ragged && p + 1 < counts.size() && counts[p] > head;
        slots.push_back({*pool_->allocate_page(), counts[p] - (shorter ? head : 0)});
      }
      std::shuffle(slots.begin(), slots.end() - 1, random_);
      for (const PageSlot& slot : slots) fill(slot);
    }
    for (const auto& slots : added.slots) {
      const auto sum = [](std::uint32_t tokens, const PageSlot& slot) { return tokens + slot.count; };
      added.tables.push_back({slots, std::accumulate(slots.begin(), slots.end(), 0u, sum)});
    }
    const std::size_t row = std::size_t{shape_.query_heads} * shape_.head_dim;
    added.queries.resize(queries * (row + 8));
    for (float& each : added.queries) each = normal_(random_) * 2;
    added.work = {.tables = added.tables,
                  .queries = added.queries.data(),
                  .query_count = queries,
                  .query_stride = row + 8,
                  .output_stride = row + 16};
  }
  void add_full(std::uint32_t tokens, std::uint32_t queries) {
    std::vector<std::uint32_t> counts(tokens / pool_->shape().block_size, pool_->shape().block_size);
    if (const std::uint32_t rest = tokens % pool_->shape().block_size) counts.push_back(rest);
    add(counts, queries);
  }

  // Drops about every third token, whole pages among them, but none of the last `queries`.
  void punch_holes() {
    for (const auto& each : cases_) {
      for (std::vector<PageSlot>& slots : each->slots) {
        std::uint32_t left = std::accumulate(slots.begin(), slots.end(), 0u,
                                             [](std::uint32_t sum, const PageSlot& slot) { return sum + slot.count; });
        for (PageSlot& slot : slots) {
          const bool whole = random_() % 8 == 0;
          for (std::uint32_t t = 0; t < slot.count && left > each->work.query_count; ++t, --left) {
            if (whole || random_() % 3 == 0) slot.holes |= std::uint64_t{1} << t;
          }
        }
      }
    }
  }

  // What the slots of the first case's only query receive, by head, slot by slot, on top of `begin`.
  std::vector<std::vector<float>> received_slots(float begin, std::size_t threads) {
    AttentionWork work = cases_[0]->work;
    const std::uint32_t block_size = pool_->shape().block_size;
    std::vector<std::vector<float>> received;
    std::vector<float*> rows;
    for (const auto& slots : cases_[0]->slots) received.emplace_back(slots.size() * block_size, begin);
    for (auto& each : received) rows.push_back(each.data());
    std::vector<float> output(work.output_stride);
    work.output = output.data();
    work.received = rows;
    ThreadsExecutor executor(threads);
    paged_attention(*pool_, shape_, {&work, 1}, executor);
    for (std::size_t head = 0; head < received.size(); ++head) {
      std::vector<float> dense;
      for (std::size_t p = 0; p < cases_[0]->slots[head].size(); ++p) {
        const float* first = &received[head][p * block_size];
        dense.insert(dense.end(), first, first + cases_[0]->slots[head][p].count);
      }
      received[head] = dense;
    }
    return received;
  }
  std::vector<std::vector<float>> received_slots_reference(float begin) const {
    const AttentionWork& work = cases_[0]->work;
    const std::uint32_t group = shape_.query_heads / shape_.kv_heads;
    std::vector<std::vector<float>> received;
    for (std::uint32_t head = 0; head < shape_.kv_heads; ++head) {
      std::vector<double> sums(work.tables[head].tokens);
      for (std::uint32_t h = head * group; h < (head + 1) * group; ++h) {
        const std::vector<double> weights = softmax(work, h, 0);
        for (std::size_t t = 0; t < sums.size(); ++t) sums[t] += weights[t] / group;
      }
      std::vector<float>& to = received.emplace_back();
      for (const double sum : sums) to.push_back(static_cast<float>(begin + sum));
    }
    return received;
  }

  // Of every sequence added so far.
  void set_window(std::uint32_t window) {
    for (const auto& each : cases_) each->work.window = window;
  }

  // Makes the first `tokens` tokens of one sequence NaN.
  void spoil_before(std::uint32_t tokens, std::size_t sequence) {
    for (const std::vector<PageSlot>& slots : cases_[sequence]->slots) {
      for (const PageSlot& slot : slots) {
        const std::uint32_t spoiled = std::min(tokens, slot.count);
        spoil(slot.page, 0, spoiled);
        tokens -= spoiled;
      }
    }
  }

  void scale_queries(float factor) {
    for (const auto& each : cases_) {
      for (float& query : each->queries) query *= factor;
    }
  }

  std::vector<float> run(std::size_t threads) {
    ThreadsExecutor executor(threads);
    return outputs([&](auto works) { paged_attention(*pool_, shape_, works, executor); });
  }
  std::vector<float> reference() {
    return outputs([&](auto works) { paged_attention_reference(*pool_, shape_, works); });
  }

  // The first case's queries [first, first + count), as if they were the last that have come: their rows of the output.
  std::vector<float> run_part(std::uint32_t first, std::uint32_t count, std::size_t threads) {
    const Case& whole = *cases_[0];
    AttentionWork work = whole.work;
    const std::uint32_t later = work.query_count - first - count;
    std::vector<std::vector<PageSlot>> slots = whole.slots;
    std::vector<HeadTable> tables;
    for (auto& each : slots) {
      for (std::uint32_t left = later; left > 0;) {
        const std::uint32_t some = std::min(left, each.back().count);
        each.back().count -= some;
        left -= some;
        if (each.back().count == 0) each.pop_back();
      }
      tables.push_back({each, whole.tables[tables.size()].tokens - later});
    }
    std::vector<float> output(count * work.output_stride, 0.25f);
    work.tables = tables;
    work.queries += first * work.query_stride;
    work.query_count = count;
    work.output = output.data();
    ThreadsExecutor executor(threads);
    paged_attention(*pool_, shape_, {&work, 1}, executor);
    return output;
  }

  // What tokens [first, first + tokens) of the first case receive, [kv_heads][tokens], on top of what `begin` is.
  std::vector<float> received(ReceivedAttention::Kind kind, std::uint32_t first, std::uint32_t tokens, float begin,
                              std::size_t threads) {
    AttentionWork work = cases_[0]->work;
    std::vector<float> output(work.query_count * work.output_stride), log_sums(work.query_count * shape_.query_heads);
    work.output = output.data();
    work.log_sums = log_sums.data();
    ThreadsExecutor executor(threads);
    paged_attention(*pool_, shape_, {&work, 1}, executor);
    std::vector<float> result(shape_.kv_heads * std::size_t{tokens}, begin);
    received_attention(*pool_, shape_, work, {kind, first, tokens, result.data(), tokens}, executor);
    return result;
  }
  // The same, naively.
  std::vector<float> received_reference(ReceivedAttention::Kind kind, std::uint32_t first, std::uint32_t tokens,
                                        float begin) const {
    const AttentionWork& work = cases_[0]->work;
    const std::uint32_t group = shape_.query_heads / shape_.kv_heads;
    std::vector<double> result(shape_.kv_heads * std::size_t{tokens}, begin);
    for (std::uint32_t head = 0; head < shape_.query_heads; ++head) {
      for (std::uint32_t q = 0; q < work.query_count; ++q) {
        const std::vector<double> weights = softmax(work, head, q);
        for (std::uint32_t i = 0; i < tokens && first + i < weights.size(); ++i) {
          double& to = result[std::size_t{head / group} * tokens + i];
          to = kind == ReceivedAttention::Kind::kSum ? to + weights[first + i] / group
                                                     : std::max(to, weights[first + i]);
        }
      }
    }
    return {result.begin(), result.end()};
  }

 private:
  struct Case {
    std::vector<std::vector<PageSlot>> slots;
    std::vector<HeadTable> tables;
    std::vector<float> queries;
    AttentionWork work;
  };

  template <class Run>
  std::vector<float> outputs(const Run& run) {
    std::size_t floats = 0;
    for (const auto& each : cases_) floats += each->work.query_count * each->work.output_stride;
    std::vector<float> output(floats, 0.25f);
    std::vector<AttentionWork> works;
    std::size_t at = 0;
    for (const auto& each : cases_) {
      works.push_back(each->work);
      works.back().output = &output[at];
      at += each->work.query_count * each->work.output_stride;
    }
    run(std::span<const AttentionWork>(works));
    return output;
  }

  std::vector<double> softmax(const AttentionWork& work, std::uint32_t head, std::uint32_t query) const {
    const HeadTable& table = work.tables[head / (shape_.query_heads / shape_.kv_heads)];
    const float* row = work.queries + query * work.query_stride + std::size_t{head} * shape_.head_dim;
    std::vector<double> weights;
    for (const PageSlot slot : table.pages) {
      for (std::uint32_t t = 0; t < slot.count; ++t) {
        double dot = 0;
        for (std::uint32_t c = 0; c < shape_.head_dim; ++c) dot += double{row[c]} * key(slot.page, t, c);
        const bool hole = (slot.holes >> t & 1) != 0;
        weights.push_back(hole ? -std::numeric_limits<double>::infinity() : dot * double{shape_.scale});
      }
    }
    const std::size_t visible = table.tokens - work.query_count + query + 1;
    weights.resize(visible);
    if (work.window && visible > work.window) {
      std::fill_n(weights.begin(), visible - work.window, -std::numeric_limits<double>::infinity());
    }
    const double peak = *std::max_element(weights.begin(), weights.end());
    double sum = 0;
    for (double& weight : weights) sum += weight = std::exp(weight - peak);
    for (double& weight : weights) weight /= sum;
    return weights;
  }

  double key(PageId page, std::uint32_t slot, std::uint32_t c) const {
    const PageShape& shape = pool_->shape();
    const std::size_t at = c * shape.block_size + slot;
    if (shape.element == PageElement::kHalf) return double{to_float(pool_->host_view().page(page).keys[at])};
    const auto view = Int8PageView::of(pool_->host_view().bytes(page).data(), shape);
    return view.keys[at] * double{to_float(view.key_scales[c / kScaleChannels * shape.block_size + slot])};
  }

  void fill(const PageSlot& slot) {
    const PageShape& shape = pool_->shape();
    std::vector<float> rows(2 * shape.key_elements());
    for (float& each : rows) each = normal_(random_);
    write_tokens(shape, pool_->host_view().writable_bytes(slot.page), 0, slot.count,
                 {rows.data(), rows.data() + shape.key_elements(), shape.head_dim});
    spoil(slot.page, slot.count, shape.block_size - slot.count);
  }

  // Makes tokens of a page NaN.
  void spoil(PageId page, std::uint32_t slot, std::uint32_t count) {
    const std::vector<float> rows(pool_->shape().key_elements(), std::numeric_limits<float>::quiet_NaN());
    write_tokens(pool_->shape(), pool_->host_view().writable_bytes(page), slot, count,
                 {rows.data(), rows.data(), pool_->shape().head_dim});
  }

  AttentionShape shape_;
  std::unique_ptr<PagePool> pool_;
  std::vector<std::unique_ptr<Case>> cases_;
  std::mt19937 random_{7};
  std::normal_distribution<float> normal_;
};

inline double relative_rms(const std::vector<float>& got, const std::vector<float>& expected) {
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    error += (double{got[i]} - double{expected[i]}) * (double{got[i]} - double{expected[i]});
    norm += double{expected[i]} * double{expected[i]};
  }
  return std::sqrt(error / norm);
}

}  // namespace shale::testing
