#include "model/architecture.h"

#include <fmt/ranges.h>

#include <array>
#include <cmath>

#include "model/architecture_table.h"

namespace shale {
namespace {

constexpr std::array kArchitectures = {&kLlama, &kQwen2};

// Reads keys below the architecture's prefix, with bounds that keep every later product within 64 bits.
class Keys {
 public:
  Keys(const GgufFile& file, std::string_view prefix) : file_(file), prefix_(prefix) {}

  Result<std::uint32_t> number(std::string_view name, std::uint64_t max,
                               std::optional<std::uint32_t> otherwise = std::nullopt) const {
    const std::string key = fmt::format("{}.{}", prefix_, name);
    SHALE_ASSIGN(const auto value, file_.number(key));
    if (!value && otherwise) return *otherwise;
    if (!value) return fail(ErrorCode::kCorrupt, "{} is missing", key);
    if (*value < 1 || *value > max) {
      return fail(ErrorCode::kCorrupt, "{} is {}, which is not within 1 … {}", key, *value, max);
    }
    return static_cast<std::uint32_t>(*value);
  }

  Result<float> positive(std::string_view name, std::optional<float> otherwise = std::nullopt) const {
    const std::string key = fmt::format("{}.{}", prefix_, name);
    SHALE_ASSIGN(const auto value, file_.real(key));
    if (!value && otherwise) return *otherwise;
    if (!value) return fail(ErrorCode::kCorrupt, "{} is missing", key);
    if (!(*value > 0) || !(*value < 1e30)) return fail(ErrorCode::kCorrupt, "{} is {}", key, *value);
    return static_cast<float>(*value);
  }

 private:
  const GgufFile& file_;
  std::string_view prefix_;
};

// Features of a known architecture that change its numbers and are not implemented.
Status refuse_unsupported(const GgufFile& file, std::string_view prefix) {
  const auto key = [&](std::string_view name) { return fmt::format("{}.{}", prefix, name); };
  SHALE_ASSIGN(const auto scaling, file.text(key("rope.scaling.type")));
  if (scaling && *scaling != "none") {
    return fail(ErrorCode::kUnsupported, "RoPE scaling \"{}\" is not supported", *scaling);
  }
  for (const std::string_view name : {"rope.scale_linear", "rope.scaling.factor"}) {
    SHALE_ASSIGN(const auto factor, file.real(key(name)));
    if (factor && *factor != 1 && *factor != 0) {
      return fail(ErrorCode::kUnsupported, "{} = {} is not supported", key(name), *factor);
    }
  }
  SHALE_ASSIGN(const auto experts, file.number(key("expert_count")));
  if (experts && *experts > 0) return fail(ErrorCode::kUnsupported, "mixtures of experts are not supported");
  return {};
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
  SHALE_TRY(refuse_unsupported(file, *name));
  SHALE_ASSIGN(const auto title, file.text("general.name"));
  hyper.name = title.value_or(*name);

  const Keys keys(file, *name);
  SHALE_ASSIGN(hyper.layers, keys.number("block_count", 1024));
  SHALE_ASSIGN(hyper.embedding, keys.number("embedding_length", 1 << 17));
  SHALE_ASSIGN(hyper.feed_forward, keys.number("feed_forward_length", 1 << 20));
  SHALE_ASSIGN(hyper.query_heads, keys.number("attention.head_count", 1024));
  SHALE_ASSIGN(hyper.kv_heads, keys.number("attention.head_count_kv", 1024, hyper.query_heads));
  SHALE_ASSIGN(hyper.context_max, keys.number("context_length", 1 << 28));
  SHALE_ASSIGN(hyper.norm_epsilon, keys.positive("attention.layer_norm_rms_epsilon"));
  SHALE_ASSIGN(hyper.rope_base, keys.positive("rope.freq_base", 10000.0F));
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
