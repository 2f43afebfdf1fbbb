// A language model over paged KV: GGUF weights and matrices by ggml, attention by Shale.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/error.h"
#include "core/executor.h"
#include "core/hash.h"
#include "paging/sequence.h"
#include "scoring/attention_statistics.h"

namespace shale {

using Token = std::int32_t;

class Capture;
class LiveCapture;

enum class WeightChoice {
  kFile,  // run weights in the types of the file
  kFast,  // measure and run the fastest types for prefill and for decode
};

struct ModelOptions {
  WeightChoice weights = WeightChoice::kFast;
  // Where the types measured as fastest are recorded, so that later loads on this machine run the same ones and
  // measure nothing; created where absent. Empty: every load measures.
  std::filesystem::path choices_folder = {};
  // Asked once where types are measured: takes what they depend on and what was found, and answers the types that all
  // who share stored KV run instead. An answer that is none for this file is passed over.
  std::function<std::string(const Hash128& matter, const std::string& found)> agree = {};
  std::uint64_t memory_bytes = 0;  // that this process may use; 0: what the system says
  std::uint32_t threads = 0;       // 0: the machine's cores
  std::uint32_t block_size = 16;
  PageElement page_element = PageElement::kHalf;
  std::uint32_t batch_tokens_max = 512;  // tokens of one forward step
  bool float32 = false;                  // dequantise everything to F32: the reference for tests
};

struct ModelInfo {
  std::string name, architecture;
  std::uint32_t layers, query_heads, kv_heads, head_dim, embedding, vocabulary, context_max;
  // ggml type names in use, with why: "bf16 (measured 2.1x q4_1 when first loaded)".
  std::string prefill_weights, decode_weights;
  bool as_agreed = true;  // false where memory is too small for the types that ModelOptions::agree answered
  std::uint64_t weight_bytes;
  // Per layer: a query sees its own token and the window − 1 before it; 0: every token before it.
  std::vector<std::uint32_t> windows;
  std::vector<Rope> ropes;  // per layer, alike but for base and scale; good for as long as the model
  float attention_scale;    // of queries times keys, before the softmax
  Hash128 checkpoint;       // of every byte of the file, however it is run
  bool reproducible;        // what StepSequence says of tokens holds on this machine, over pages of halves

  // Traits without a calibration, good for as long as the model.
  ModelTraits traits() const { return {.ropes = ropes, .windows = windows, .attention_scale = attention_scale}; }
};

// One sequence's share of a forward step: `tokens` are appended to `sequence` (room for them already made with
// Sequence::append) and attend to everything before them.
//
// A token's keys, values and logits depend on the tokens before it and on the role of each, bit for bit: not on what is
// computed beside it, how all of it is cut into steps, nor on how many threads. Prompts run in the weights that are
// fastest for many tokens, answers in those that are fastest for one; where these differ, *reproducible* means
// elsewhere what computing all of it as a prompt gives.
struct StepSequence {
  enum class Role {
    kPrompt,
    kAnswer,
    kEither,  // of an answer of which nobody demands to be reproducible: as is faster beside what else is in the step
  };
  Sequence* sequence = nullptr;
  std::span<const Token> tokens;
  bool logits_all = false;   // logits for every token, else for the last only
  bool logits_none = false;  // prefill chunks before the last
  Role role = Role::kPrompt;
  Capture* capture = nullptr;   // what scorers need of this step is left there (model/capture.h)
  LiveCapture* live = nullptr;  // the same for scorers of a sequence that goes on (model/live_capture.h)
};

// Called around layers on the thread that runs the step. Where earlier tokens are still being loaded, `ready(l)` says
// whether layer l's are in place, in `begin` and `resume` alone; it never waits. An error of `before_attention` ends
// the step.
class StepHooks {
 public:
  virtual ~StepHooks() = default;
  virtual bool ready(std::uint32_t /*layer*/) { return true; }
  virtual Status before_attention(std::uint32_t /*layer*/) { return {}; }
  virtual void after_layer(std::uint32_t /*layer*/) {}
};

class Model {
 public:
  // kNotFound, kCorrupt (truncated or hostile file), kUnsupported (unknown architecture, by name).
  static Result<std::unique_ptr<Model>> load(const std::filesystem::path& gguf, const ModelOptions& options);
  virtual ~Model() = default;

  virtual const ModelInfo& info() const = 0;
  // The shape of the pages that the options ask for.
  virtual PageShape page_shape() const = 0;
  // Whether answers that must be the same every time run in other weights than prompts. A step then has tokens of one
  // of these roles, and of kEither: `step` and `begin` refuse both.
  virtual bool answers_apart() const = 0;
  // Whether a step of this batch is computed in the quicker way of few tokens, other weights or rows of their own,
  // which is not a prompt's.
  virtual bool quick(std::span<const StepSequence> batch) const = 0;
  // Whether there is such a way.
  virtual bool has_quick() const = 0;
  // Covers weights and the types they run in, tokenizer, RoPE settings, KV element type, page size; the codec adds its
  // format version.
  virtual Hash128 fingerprint() const = 0;
  // The threads of the matrix library; shared with everything else that computes.
  virtual Executor& executor() = 0;

  // Runs one step over all sequences together (their tokens are one batch). Returns logits, [rows][vocabulary], rows in
  // the order of sequences and tokens that asked for them; valid until the next call. The sequences lie in one pool, of
  // page_shape() or of its other element. Not thread-safe.
  Result<std::span<const float>> step(std::span<const StepSequence> batch, StepHooks* hooks = nullptr);

  // The same, but a layer that is not ready (StepHooks::ready) parks the step in front of that layer's attention:
  // nothing is returned, and `resume` goes on from there, as often as it takes. Until then the sequences and tokens of
  // the batch stay as they are. Beginning another step gives the parked one up: what it wrote of its tokens is
  // undefined.
  virtual Result<std::optional<std::span<const float>>> begin(std::span<const StepSequence> batch,
                                                              StepHooks* hooks = nullptr) = 0;
  // kInvalidArgument where no step is parked.
  virtual Result<std::optional<std::span<const float>>> resume(StepHooks* hooks = nullptr) = 0;
};

// Text and tokens by libllama's vocabulary of the same file; chat template as the file gives it (Jinja).
class Tokenizer {
 public:
  static Result<std::unique_ptr<Tokenizer>> load(const std::filesystem::path& gguf);
  virtual ~Tokenizer() = default;
  // `special`: control tokens written in the text are recognised. Never adds BOS by itself.
  virtual std::vector<Token> tokenize(std::string_view text, bool special) const = 0;
  virtual std::string text(std::span<const Token> tokens, bool special = false) const = 0;
  virtual bool ends_turn(Token token) const = 0;
  virtual Token bos() const = 0;  // -1 for none
  virtual bool adds_bos() const = 0;

  struct ChatMessage {
    std::string role, content;
  };
  // The conversation as the model's own template renders it. kUnsupported where the file has no template (callers then
  // fall back to plain text and say so), kInvalidArgument with the template's own error otherwise.
  virtual Result<std::string> render_chat(std::span<const ChatMessage> messages, bool add_generation_prompt) const = 0;
};

struct SamplingOptions {
  float temperature = 0;    // 0: greedy
  std::uint32_t top_k = 0;  // 0: all
  float top_p = 1, min_p = 0;
  // As vLLM defines them, before all else. `repetition`, above 0, divides the logits above 0 of tokens that the prompt
  // has or that were drawn, and multiplies those below. Then a drawn token's logit loses `frequency` for each time, and
  // `presence` once.
  float repetition_penalty = 1, frequency_penalty = 0, presence_penalty = 0;
  std::uint64_t seed = 0;

  bool penalizes() const { return repetition_penalty != 1 || frequency_penalty != 0 || presence_penalty != 0; }
};

// Draws tokens. Deterministic for a seed. Not thread-safe.
class Sampler {
 public:
  explicit Sampler(const SamplingOptions& options);
  // Before the first token: what is asked. Each a token of the logits.
  void note_prompt(std::span<const Token> prompt);
  Token sample(std::span<const float> logits);

 private:
  std::span<const float> penalized(std::span<const float> logits);
  Token draw(std::span<const float> logits);

  SamplingOptions options_;
  std::uint64_t state_[4];
  std::vector<std::pair<float, Token>> candidates_;
  std::unordered_map<Token, std::uint32_t> times_drawn_;  // of those that are penalized; 0: the prompt alone has it
  std::vector<float> penalized_;
};

}  // namespace shale
