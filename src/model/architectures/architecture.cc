#include "model/architectures/architecture.h"

#include <fmt/ranges.h>

#include <array>
#include <cmath>

#include "model/architectures/architecture_table.h"

namespace shale {
namespace {

constexpr std::array kArchitectures = {&kGemma3, &kLlama, &kQwen2};

// Reads keys below the architecture's prefix, with bounds that keep every later product within 64 bits.
class Keys {
 public:
  Keys(const GgufFile& file, std::string_view prefix) : file_(file), prefix_(prefix) {}

  std::string key(std::string_view name) const { return fmt::format("{}.{}", prefix_, name); }

  Result<std::uint32_t> number(std::string_view name, std::uint64_t max,
                               std::optional<std::uint32_t> otherwise = std::nullopt, std::uint64_t min = 1) const {
    SHALE_ASSIGN(const auto value, file_.number(key(name)));
    if (!value && otherwise) return *otherwise;
    if (!value) return fail(ErrorCode::kCorrupt, "{} is missing", key(name));
    if (*value < min || *value > max) {
      return fail(ErrorCode::kCorrupt, "{} is {}, which is not within {} … {}", key(name), *value, min, max);
    }
    return static_cast<std::uint32_t>(*value);
  }

  Result<float> positive(std::string_view name, std::optional<float> otherwise = std::nullopt) const {
    SHALE_ASSIGN(const auto value, file_.real(key(name)));
    if (!value && otherwise) return *otherwise;
    if (!value) return fail(ErrorCode::kCorrupt, "{} is missing", key(name));
    if (!(*value > 0) || !(*value < 1e30)) return fail(ErrorCode::kCorrupt, "{} is {}", key(name), *value);
    return static_cast<float>(*value);
  }

  const GgufFile& file() const { return file_; }

 private:
  const GgufFile& file_;
  std::string_view prefix_;
};

// Features of a known architecture that change its numbers and are not implemented.
Status refuse_unsupported(const Keys& keys) {
  SHALE_ASSIGN(const auto scaling, keys.file().text(keys.key("rope.scaling.type")));
  if (scaling && *scaling != "none" && *scaling != "linear") {
    return fail(ErrorCode::kUnsupported, "RoPE scaling \"{}\" is not supported", *scaling);
  }
  SHALE_ASSIGN(const auto cap, keys.file().real(keys.key("final_logit_softcapping")));
  if (cap && *cap != 0) {
    return fail(ErrorCode::kUnsupported, "{} = {} is not supported", keys.key("final_logit_softcapping"), *cap);
  }
  SHALE_ASSIGN(const auto experts, keys.file().number(keys.key("expert_count")));
  if (experts && *experts > 0) return fail(ErrorCode::kUnsupported, "mixtures of experts are not supported");
  return {};
}

// What positions are multiplied by: 1 / factor of linear scaling (Chen et al. 2023, arXiv 2306.15595).
Result<float> read_rope_scale(const Keys& keys) {
  SHALE_ASSIGN(const auto type, keys.file().text(keys.key("rope.scaling.type")));
  if (type && *type == "none") return 1.0F;
  for (const std::string_view name : {"rope.scaling.factor", "rope.scale_linear"}) {
    SHALE_ASSIGN(const auto factor, keys.file().real(keys.key(name)));
    if (!factor) continue;
    if (*factor == 0) return 1.0F;
    if (!(*factor >= 1e-3 && *factor <= 1e6)) return fail(ErrorCode::kCorrupt, "{} is {}", keys.key(name), *factor);
    return static_cast<float>(1 / *factor);
  }
  return 1.0F;
}

// Which layers have windows.
Result<std::vector<bool>> read_window_pattern(const Keys& keys, std::uint32_t layers, std::uint32_t period) {
  constexpr std::string_view kName = "attention.sliding_window_pattern";
  const std::string key = keys.key(kName);
  if (keys.file().array_length(key)) {
    SHALE_ASSIGN(std::vector<bool> windowed, keys.file().flags(key));
    if (windowed.size() < layers) {
      return fail(ErrorCode::kCorrupt, "{} speaks of {} layers of {}", key, windowed.size(), layers);
    }
    return windowed;
  }
  SHALE_ASSIGN(period, keys.number(kName, 1024, period));
  std::vector<bool> windowed(layers);
  for (std::uint32_t l = 0; l < layers; ++l) windowed[l] = (l + 1) % period != 0;
  return windowed;
}

Result<std::vector<Hyperparameters::Layer>> read_layers(const Keys& keys, const Architecture& architecture) {
  SHALE_ASSIGN(const std::uint32_t count, keys.number("block_count", 1024));
  SHALE_ASSIGN(const float base, keys.positive("rope.freq_base", 10000.0F));
  SHALE_ASSIGN(const float scale, read_rope_scale(keys));
  std::vector<Hyperparameters::Layer> layers(count, {.window = 0, .rope_base = base, .rope_scale = scale});
  if (architecture.window_period == 0) return layers;
  SHALE_ASSIGN(const std::uint32_t window, keys.number("attention.sliding_window", 1 << 28, 0, 0));
  if (window == 0) return layers;
  SHALE_ASSIGN(const std::vector<bool> windowed, read_window_pattern(keys, count, architecture.window_period));
  SHALE_ASSIGN(const float window_base, keys.positive("rope.freq_base_swa", architecture.window_rope_base));
  for (std::uint32_t l = 0; l < count; ++l) {
    if (windowed[l]) layers[l] = {.window = window, .rope_base = window_base, .rope_scale = 1};
  }
  return layers;
}

}  // namespace

std::span<const Architecture* const> architectures() { return kArchitectures; }

Result<Hyperparameters> read_hyperparameters(const GgufFile& file) {
  SHALE_ASSIGN(const auto name, file.text("general.architecture"));
  if (!name) return fail(ErrorCode::kCorrupt, "general.architecture is missing");
  Hyperparameters hyper{};
  std::vector<std::string_view> known;
  for (const Architecture* architecture : kArchitectures) {
    known.push_back(architecture->name);
    if (architecture->name == *name) hyper.architecture = architecture;
  }
  if (!hyper.architecture) {
    return fail(ErrorCode::kUnsupported, "architecture \"{}\" is not supported; these are: {}", *name,
                fmt::join(known, ", "));
  }
  const Keys keys(file, *name);
  SHALE_TRY(refuse_unsupported(keys));
  SHALE_ASSIGN(const auto title, file.text("general.name"));
  hyper.name = title.value_or(*name);

  SHALE_ASSIGN(hyper.layers, read_layers(keys, *hyper.architecture));
  SHALE_ASSIGN(hyper.embedding, keys.number("embedding_length", 1 << 17));
  SHALE_ASSIGN(hyper.feed_forward, keys.number("feed_forward_length", 1 << 20));
  SHALE_ASSIGN(hyper.query_heads, keys.number("attention.head_count", 1024));
  SHALE_ASSIGN(hyper.kv_heads, keys.number("attention.head_count_kv", 1024, hyper.query_heads));
  SHALE_ASSIGN(hyper.context_max, keys.number("context_length", 1 << 28));
  SHALE_ASSIGN(hyper.norm_epsilon, keys.positive("attention.layer_norm_rms_epsilon"));
  const std::uint32_t head_dim = std::max<std::uint32_t>(1, hyper.embedding / hyper.query_heads);
  SHALE_ASSIGN(hyper.head_dim, keys.number("attention.key_length", 1024, head_dim));
  SHALE_ASSIGN(const std::uint32_t value_dim, keys.number("attention.value_length", 1024, hyper.head_dim));
  SHALE_ASSIGN(hyper.rope_dimensions, keys.number("rope.dimension_count", hyper.head_dim, hyper.head_dim));

  if (hyper.query_heads % hyper.kv_heads != 0) {
    return fail(ErrorCode::kCorrupt, "{} query heads do not divide among {} KV heads", hyper.query_heads,
                hyper.kv_heads);
  }
  if (value_dim != hyper.head_dim || hyper.head_dim % 8 != 0 || hyper.head_dim > 512) {
    return fail(ErrorCode::kUnsupported,
                "heads of {} key and {} value channels are not supported; equal multiples of 8 up to 512 are",
                hyper.head_dim, value_dim);
  }
  if (hyper.rope_dimensions % 2 != 0) return fail(ErrorCode::kCorrupt, "an odd number of rotated channels");

  const GgufTensor* embedding = file.tensor("token_embd.weight");
  if (!embedding) return fail(ErrorCode::kCorrupt, "tensor token_embd.weight is missing");
  if (embedding->shape[1] > (1 << 24)) return fail(ErrorCode::kCorrupt, "a vocabulary of {}", embedding->shape[1]);
  hyper.vocabulary = static_cast<std::uint32_t>(embedding->shape[1]);
  const auto tokens = file.array_length("tokenizer.ggml.tokens");
  if (tokens && *tokens != hyper.vocabulary) {
    return fail(ErrorCode::kCorrupt, "{} tokens in the vocabulary but {} rows in token_embd.weight", *tokens,
                hyper.vocabulary);
  }
  return hyper;
}

}  // namespace shale
