#include "model/model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <new>

#include "attention/attention.h"
#include "model/capture.h"
#include "model/graph.h"
#include "model/live_capture.h"
#include "model/model_fingerprint.h"
#include "model/weights/weight_choice.h"

namespace shale {
namespace {

constexpr std::uint32_t kBatchTokensMax = 1 << 16;

Status check(const ModelOptions& options) {
  constexpr std::array kPageTokens = {8U, 16U, 32U, 64U};
  if (std::ranges::find(kPageTokens, options.block_size) == kPageTokens.end()) {
    return fail(ErrorCode::kInvalidArgument, "pages of {} tokens; 8, 16, 32 or 64 are possible", options.block_size);
  }
  if (options.batch_tokens_max == 0 || options.batch_tokens_max > kBatchTokensMax) {
    return fail(ErrorCode::kInvalidArgument, "{} tokens a step; 1 … {} are possible", options.batch_tokens_max,
                kBatchTokensMax);
  }
  return {};
}

std::vector<Rope> ropes_of(const Hyperparameters& hyper, const Vectors& vectors) {
  const bool halves = hyper.architecture->rope_mode == GGML_ROPE_TYPE_NEOX;
  std::vector<Rope> ropes;
  for (const Hyperparameters::Layer& layer : hyper.layers) {
    Rope& rope = ropes.emplace_back(Rope{.base = double{layer.rope_base},
                                         .scale = double{layer.rope_scale},
                                         .dimensions = hyper.rope_dimensions,
                                         .pairing = halves ? Rope::Pairing::kHalves : Rope::Pairing::kNeighbours});
    if (vectors.rope_factors) {
      rope.factors = {static_cast<const float*>(vectors.rope_factors->data), hyper.rope_dimensions / 2};
    }
  }
  return ropes;
}

std::vector<std::uint32_t> windows_of(const Hyperparameters& hyper) {
  std::vector<std::uint32_t> windows;
  for (const Hyperparameters::Layer& layer : hyper.layers) windows.push_back(layer.window);
  return windows;
}

bool has_role(std::span<const StepSequence> batch, StepSequence::Role role) {
  return std::ranges::find(batch, role, &StepSequence::role) != batch.end();
}

class GgufModel final : public Model {
 public:
  GgufModel(std::unique_ptr<GgufFile> file, Hyperparameters hyper, FileTensors tensors, const ModelOptions& options,
            std::unique_ptr<ComputeThreads> threads, RunningWeights weights, const Hash128& content)
      : file_(std::move(file)),
        hyper_(std::move(hyper)),
        tensors_(std::move(tensors)),
        options_(options),
        threads_(std::move(threads)),
        weights_(std::move(weights)),
        vectors_(tensors_, hyper_),
        graphs_(hyper_, vectors_, options.batch_tokens_max, *threads_),
        fingerprint_(model_fingerprint(content, options.page_element, options.block_size, weights_.arithmetic())),
        info_{.name = hyper_.name,
              .architecture = std::string(hyper_.architecture->name),
              .layers = hyper_.layer_count(),
              .query_heads = hyper_.query_heads,
              .kv_heads = hyper_.kv_heads,
              .head_dim = hyper_.head_dim,
              .embedding = hyper_.embedding,
              .vocabulary = hyper_.vocabulary,
              .context_max = hyper_.context_max,
              .prefill_weights = weights_.prefill_name(),
              .decode_weights = weights_.decode_name(),
              .as_agreed = weights_.as_agreed(),
              .weight_bytes = weights_.bytes(),
              .windows = windows_of(hyper_),
              .ropes = ropes_of(hyper_, vectors_),
              .attention_scale = hyper_.attention_scale(),
              .checkpoint = content,
              .reproducible = weights_.row_unit() > 0 && options.page_element == PageElement::kHalf} {}

  const ModelInfo& info() const override { return info_; }
  PageShape page_shape() const override {
    return {hyper_.layer_count(), hyper_.kv_heads, hyper_.head_dim, options_.block_size, options_.page_element};
  }
  bool answers_apart() const override { return weights_.answers_apart(); }
  bool quick(std::span<const StepSequence> batch) const override {
    if (weights_.answers_apart() && has_role(batch, StepSequence::Role::kAnswer)) return true;
    std::size_t tokens = 0;
    for (const StepSequence& part : batch) tokens += part.tokens.size();
    return weights_.faster_in_decode(static_cast<std::uint32_t>(tokens)) &&
           !has_role(batch, StepSequence::Role::kAnswer) && !has_role(batch, StepSequence::Role::kPrompt);
  }
  bool has_quick() const override { return weights_.has_quick(); }
  Hash128 fingerprint() const override { return fingerprint_; }
  Executor& executor() override { return *threads_; }
  Result<std::optional<std::span<const float>>> begin(std::span<const StepSequence> batch, StepHooks* hooks) override;
  Result<std::optional<std::span<const float>>> resume(StepHooks* hooks) override;

 private:
  // A step in flight: `rows` are there once the layer's queries, keys and values are.
  struct Step {
    std::vector<StepSequence> batch;
    const MatrixSet* matrices;
    std::uint32_t row_unit;
    std::uint32_t tokens, wanted;
    std::uint32_t layer = 0;
    std::optional<QkvRows> rows = {};
  };

  Result<std::uint32_t> check_batch(std::span<const StepSequence> batch) const;
  // Fills the first segment's inputs and the rows whose logits are asked for; returns the number of those.
  std::uint32_t prepare(std::span<const StepSequence> batch, std::uint32_t tokens);
  void store_kv(std::span<const StepSequence> batch, std::uint32_t layer, const QkvRows& rows);
  void capture_queries(std::span<const StepSequence> batch, std::uint32_t layer, const QkvRows& rows);
  void attend(std::span<const StepSequence> batch, std::uint32_t layer, const QkvRows& rows);

  std::unique_ptr<GgufFile> file_;
  Hyperparameters hyper_;
  FileTensors tensors_;
  ModelOptions options_;
  std::unique_ptr<ComputeThreads> threads_;
  RunningWeights weights_;
  Vectors vectors_;
  Graphs graphs_;
  Hash128 fingerprint_;
  ModelInfo info_;
  std::optional<Step> step_;       // that is parked
  std::vector<HeadTable> tables_;  // of one layer, [sequence][KV head]
  std::vector<AttentionWork> works_;
  std::vector<float*> notes_;    // of one layer, [sequence][KV head]: where attention received is added
  std::vector<float> log_sums_;  // of one layer, [token of the step][query head]; as long as a capture ever needed
};

Result<std::uint32_t> GgufModel::check_batch(std::span<const StepSequence> batch) const {
  if (answers_apart() && has_role(batch, StepSequence::Role::kPrompt) && has_role(batch, StepSequence::Role::kAnswer)) {
    return fail(ErrorCode::kInvalidArgument, "a step of prompts and of answers that have weights of their own");
  }
  std::size_t total = 0;
  for (const StepSequence& part : batch) {
    if (!part.sequence || part.tokens.empty() || part.tokens.size() > part.sequence->length()) {
      return fail(ErrorCode::kInvalidArgument, "a step's sequence has no room for its tokens");
    }
    const PageShape& shape = part.sequence->pool().shape();
    if (shape != page_shape().with(shape.element) || &part.sequence->pool() != &batch[0].sequence->pool()) {
      return fail(ErrorCode::kInvalidArgument, "a step's sequence lies in pages of another shape or pool");
    }
    if (part.sequence->length() > hyper_.context_max) {
      return fail(ErrorCode::kInvalidArgument, "{} tokens exceed the model's context of {}", part.sequence->length(),
                  hyper_.context_max);
    }
    if (part.capture) {
      SHALE_TRY(part.capture->check(*part.sequence, static_cast<std::uint32_t>(part.tokens.size())));
    }
    for (const Token token : part.tokens) {
      if (token < 0 || static_cast<std::uint32_t>(token) >= hyper_.vocabulary) {
        return fail(ErrorCode::kInvalidArgument, "token {} is not in the vocabulary of {}", token, hyper_.vocabulary);
      }
    }
    total += part.tokens.size();
  }
  if (total > options_.batch_tokens_max) {
    return fail(ErrorCode::kInvalidArgument, "a step of {} tokens; this model was loaded for {}", total,
                options_.batch_tokens_max);
  }
  return static_cast<std::uint32_t>(total);
}

std::uint32_t GgufModel::prepare(std::span<const StepSequence> batch, std::uint32_t tokens) {
  const std::span<float> hidden = graphs_.hidden(tokens);
  const std::span<std::int32_t> positions = graphs_.positions(tokens);
  const std::span<std::int32_t> rows = graphs_.rows(tokens);
  const float embedding_scale = std::sqrt(static_cast<float>(hyper_.embedding));
  std::uint32_t row = 0, wanted = 0;
  for (const StepSequence& part : batch) {
    const auto count = static_cast<std::uint32_t>(part.tokens.size());
    for (std::uint32_t i = 0; i < count; ++i, ++row) {
      const std::span<float> embedding = hidden.subspan(std::size_t{row} * hyper_.embedding, hyper_.embedding);
      dequantise_rows(*tensors_.token_embedding, part.tokens[i], 1, embedding.data());
      if (hyper_.architecture->scaled_embedding) {
        for (float& element : embedding) element *= embedding_scale;
      }
      positions[row] = static_cast<std::int32_t>(part.sequence->length() - count + i);
      const bool last = i + 1 == count;
      if (!part.logits_none && (part.logits_all || last)) rows[wanted++] = static_cast<std::int32_t>(row);
    }
  }
  return wanted;
}

void GgufModel::store_kv(std::span<const StepSequence> batch, std::uint32_t layer, const QkvRows& rows) {
  const std::uint32_t heads = hyper_.kv_heads;
  std::vector<std::size_t> first_row(batch.size());
  for (std::size_t s = 1; s < batch.size(); ++s) first_row[s] = first_row[s - 1] + batch[s - 1].tokens.size();
  const auto store = [&](std::size_t i) {
    const StepSequence& part = batch[i / heads];
    const auto head = static_cast<std::uint32_t>(i % heads);
    const std::size_t offset = first_row[i / heads] * rows.kv_stride + std::size_t{head} * hyper_.head_dim;
    write_kv(part.sequence->pool(), *part.sequence, layer, head, static_cast<std::uint32_t>(part.tokens.size()),
             rows.keys + offset, rows.values + offset, rows.kv_stride);
  };
  // A few tokens are written sooner than other threads wake.
  const std::size_t tokens = first_row.back() + batch.back().tokens.size();
  if (tokens * heads <= 16) {
    for (std::size_t i = 0; i < batch.size() * heads; ++i) store(i);
  } else {
    threads_->parallel_for(batch.size() * heads, store);
  }
}

void GgufModel::capture_queries(std::span<const StepSequence> batch, std::uint32_t layer, const QkvRows& rows) {
  const float* queries = rows.queries;
  for (const StepSequence& part : batch) {
    if (part.capture) part.capture->observe_queries(layer, queries, rows.query_stride, *threads_);
    if (part.live) part.live->observe_queries(layer, queries, rows.query_stride);
    queries += part.tokens.size() * rows.query_stride;
  }
}

// Whether the attention kernel itself adds what the slots of a sequence receive to its notes.
bool notes_while_decoding(const StepSequence& part) {
  return part.live && part.live->wants_attention() && part.tokens.size() == 1 && part.sequence->ragged();
}

void GgufModel::attend(std::span<const StepSequence> batch, std::uint32_t layer, const QkvRows& rows) {
  const std::uint32_t heads = hyper_.kv_heads;
  tables_.clear();
  notes_.clear();
  for (const StepSequence& part : batch) {
    for (std::uint32_t head = 0; head < heads; ++head) {
      tables_.push_back(part.sequence->table(layer, head));
      notes_.push_back(notes_while_decoding(part) ? part.sequence->notes(layer, head).data() : nullptr);
    }
  }
  works_.clear();
  std::size_t row = 0;
  for (std::size_t s = 0; s < batch.size(); ++s) {
    const bool noted = notes_while_decoding(batch[s]);
    const bool captured = (batch[s].capture && batch[s].capture->wants_attention()) ||
                          (batch[s].live && batch[s].live->wants_attention() && !noted);
    works_.push_back({.tables = std::span(tables_).subspan(s * heads, heads),
                      .queries = rows.queries + row * rows.query_stride,
                      .output = graphs_.attention() + row * hyper_.query_width(),
                      .query_count = static_cast<std::uint32_t>(batch[s].tokens.size()),
                      .query_stride = rows.query_stride,
                      .output_stride = hyper_.query_width(),
                      .window = hyper_.layers[layer].window,
                      .log_sums = captured ? &log_sums_[row * hyper_.query_heads] : nullptr,
                      .received = std::span(notes_).subspan(s * heads, noted ? heads : 0)});
    row += batch[s].tokens.size();
  }
  const AttentionShape shape{hyper_.query_heads, heads, hyper_.head_dim, hyper_.attention_scale()};
  const PagePool& pool = batch[0].sequence->pool();
  paged_attention(pool, shape, works_, *threads_);
  for (std::size_t s = 0; s < batch.size(); ++s) {
    if (!works_[s].log_sums) continue;
    if (batch[s].capture && batch[s].capture->wants_attention()) {
      batch[s].capture->observe_attention(layer, pool, shape, works_[s], *threads_);
    }
    if (batch[s].live && batch[s].live->wants_attention() && works_[s].received.empty()) {
      batch[s].live->observe_attention(layer, *batch[s].sequence, shape, works_[s], *threads_);
    }
  }
}

Result<std::optional<std::span<const float>>> GgufModel::begin(std::span<const StepSequence> batch, StepHooks* hooks) {
  step_.reset();
  SHALE_ASSIGN(const std::uint32_t tokens, check_batch(batch));
  if (tokens == 0) return std::span<const float>{};
  const std::uint32_t wanted = prepare(batch, tokens);
  for (const StepSequence& part : batch) {
    if (!part.capture && !part.live) continue;
    const auto count = static_cast<std::uint32_t>(part.tokens.size());
    if (part.capture) part.capture->begin(*part.sequence, count);
    if (part.live) part.live->begin(count);
    log_sums_.resize(std::size_t{options_.batch_tokens_max} * hyper_.query_heads);
  }
  const bool quickly = quick(batch);
  const bool any_rows = quickly && !has_role(batch, StepSequence::Role::kAnswer);
  const std::uint32_t row_unit = quickly ? weights_.decode_row_unit() : weights_.row_unit();
  step_.emplace(Step{.batch = {batch.begin(), batch.end()},
                     .matrices = quickly ? &weights_.decode() : &weights_.prefill(),
                     .row_unit = any_rows ? 1 : std::max(1u, row_unit),
                     .tokens = tokens,
                     .wanted = wanted});
  return resume(hooks);
}

Result<std::optional<std::span<const float>>> GgufModel::resume(StepHooks* hooks) {
  if (!step_) return fail(ErrorCode::kInvalidArgument, "no step is parked that could be resumed");
  Step step = std::move(*step_);
  step_.reset();
  for (; step.layer < hyper_.layer_count(); ++step.layer, step.rows.reset()) {
    if (!step.rows) {
      step.rows = graphs_.run_layer(*step.matrices, step.layer, step.tokens, step.row_unit);
      capture_queries(step.batch, step.layer, *step.rows);
    }
    if (hooks && !hooks->ready(step.layer)) {
      step_ = std::move(step);
      return std::nullopt;
    }
    // Earlier tokens' pages are filled first: the last of them is this step's first page too.
    if (hooks) SHALE_TRY(hooks->before_attention(step.layer));
    store_kv(step.batch, step.layer, *step.rows);
    attend(step.batch, step.layer, *step.rows);
    if (hooks) hooks->after_layer(step.layer);
  }
  for (const StepSequence& part : step.batch) {
    if (part.capture) part.capture->end();
    if (part.live) part.live->end();
  }
  if (step.wanted == 0) return std::span<const float>{};
  return graphs_.run_head(*step.matrices, step.tokens, step.wanted, step.row_unit);
}

}  // namespace

Result<std::span<const float>> Model::step(std::span<const StepSequence> batch, StepHooks* hooks) {
  // Whoever calls this waits in `before_attention`.
  class NeverLater final : public StepHooks {
   public:
    explicit NeverLater(StepHooks* each) : each_(each) {}
    Status before_attention(std::uint32_t layer) override { return each_ ? each_->before_attention(layer) : Status(); }
    void after_layer(std::uint32_t layer) override {
      if (each_) each_->after_layer(layer);
    }

   private:
    StepHooks* each_;
  } never_later(hooks);
  SHALE_ASSIGN(const auto logits, begin(batch, &never_later));
  return *logits;
}

Result<std::unique_ptr<Model>> Model::load(const std::filesystem::path& path, const ModelOptions& options) try {
  SHALE_TRY(check(options));
  SHALE_ASSIGN(auto file, GgufFile::open(path));
  const std::string where = "model file " + path.string();
  auto hyper = read_hyperparameters(*file);
  if (!hyper) return fail_in(where, std::move(hyper).error());
  auto tensors = FileTensors::find(*file, *hyper);
  if (!tensors) return fail_in(where, std::move(tensors).error());
  auto threads = std::make_unique<ComputeThreads>(options.threads);
  const Hash128 content = content_hash(*file, *threads);
  SHALE_ASSIGN(RunningWeights weights, RunningWeights::create(*tensors, content, options, *threads));
  return std::make_unique<GgufModel>(std::move(file), std::move(*hyper), std::move(*tensors), options,
                                     std::move(threads), std::move(weights), content);
} catch (const std::bad_alloc&) {
  return fail(ErrorCode::kFull, "not enough memory for model file {}", path.string());
}

}  // namespace shale
