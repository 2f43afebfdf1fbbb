#include "model/vocabulary_check.h"

#include <algorithm>
#include <unordered_set>

namespace shale {
namespace {

constexpr std::size_t kTokensMax = 1 << 24;
constexpr std::size_t kTokenBytesMax = 1 << 16;
constexpr std::int32_t kByteType = 6;  // a token for one byte

Status check_special_tokens(const GgufFile& file, std::size_t tokens) {
  for (const std::string_view name : {"bos", "eos", "eot", "eom", "unknown", "seperator", "padding", "mask", "cls"}) {
    const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
    SHALE_ASSIGN(const auto id, file.number(key));
    if (id && *id >= tokens) return fail(ErrorCode::kCorrupt, "{} is {}, beyond the vocabulary", key, *id);
  }
  return {};
}

}  // namespace

Status check_vocabulary(const GgufFile& file) {
  SHALE_ASSIGN(const auto kind, file.text("tokenizer.ggml.model"));
  if (!kind || *kind == "none") return fail(ErrorCode::kUnsupported, "the file has no vocabulary");
  if (*kind != "gpt2" && *kind != "llama" && *kind != "bert") {
    return fail(ErrorCode::kUnsupported, "vocabularies of kind \"{}\" are not supported; bert, gpt2 and llama are",
                *kind);
  }
  SHALE_ASSIGN(const auto tokens, file.texts("tokenizer.ggml.tokens"));
  if (tokens.empty() || tokens.size() > kTokensMax) {
    return fail(ErrorCode::kCorrupt, "a vocabulary of {} tokens", tokens.size());
  }
  std::unordered_set<std::string> seen;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].size() > kTokenBytesMax)
      return fail(ErrorCode::kCorrupt, "token {} is {} bytes long", i, tokens[i].size());
    if (!seen.insert(tokens[i].empty() ? fmt::format("[EMPTY_{}]", i) : std::string(tokens[i])).second) {
      return fail(ErrorCode::kCorrupt, "token {} (\"{}\") is in the vocabulary twice", i, tokens[i]);
    }
  }
  const auto one_each = [&](const std::string& key, std::size_t entries) -> Status {
    if (!file.has(key) || entries == tokens.size()) return {};
    return fail(ErrorCode::kCorrupt, "{} has {} entries for {} tokens", key, entries, tokens.size());
  };
  SHALE_ASSIGN(const auto scores, file.floats("tokenizer.ggml.scores"));
  SHALE_TRY(one_each("tokenizer.ggml.scores", scores.size()));
  SHALE_ASSIGN(const auto types, file.integers("tokenizer.ggml.token_type"));
  SHALE_TRY(one_each("tokenizer.ggml.token_type", types.size()));
  if (*kind == "bert" && std::ranges::find(types, kByteType) != types.end()) {
    return fail(ErrorCode::kCorrupt, "a vocabulary of kind \"bert\" with tokens for bytes");
  }
  // What is no token libllama spells by bytes: by these names or, failing that, as they are.
  for (int byte = 0; *kind == "llama" && byte < 256; ++byte) {
    const std::string name = fmt::format("<0x{:02X}>", byte);
    if (seen.contains(name) || seen.contains(std::string(1, static_cast<char>(byte)))) continue;
    return fail(ErrorCode::kUnsupported, "a vocabulary of kind \"llama\" without {}: not every text can be written",
                name);
  }
  if (*kind == "gpt2") {
    SHALE_ASSIGN(const auto words, file.text("tokenizer.ggml.pre"));
    if (words == "whitespace") {  // which looks for merges of blanks
      return fail(ErrorCode::kUnsupported, "vocabularies whose words end at white space are not supported");
    }
    SHALE_ASSIGN(const auto merges, file.texts("tokenizer.ggml.merges"));
    for (const std::string_view merge : merges) {
      if (merge.find(' ', 1) == std::string_view::npos) {
        return fail(ErrorCode::kCorrupt, "the merge \"{}\" has not two parts", merge);
      }
    }
  }
  return check_special_tokens(file, tokens.size());
}

}  // namespace shale
