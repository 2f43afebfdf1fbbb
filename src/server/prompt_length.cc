#include "server/prompt_length.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/utf8.h"

namespace shale {
namespace {

constexpr std::size_t kTokenBytesMax = 8;                     // no language's text has as many
constexpr std::size_t kTextBytesMin = std::size_t{64} << 10;  // that every model reads, and that are tokenized once
constexpr std::size_t kPieceBytes = std::size_t{16} << 10;
constexpr std::size_t kSeamBytes = 256;  // on either side of a cut: beyond them it makes no difference

}  // namespace

std::optional<std::string> excess_of(std::span<const std::string_view> texts, bool special, std::size_t context_tokens,
                                     const Tokenizer& tokenizer) {
  std::size_t bytes = 0;
  for (const std::string_view text : texts) bytes += text.size();
  if (bytes > std::max(kTextBytesMin, kTokenBytesMax * context_tokens)) return fmt::format("{} bytes", bytes);
  if (bytes <= kTextBytesMin) return std::nullopt;
  const auto count = [&](std::string_view text) { return tokenizer.tokenize(text, special).size(); };
  std::size_t tokens = 0;
  for (std::string_view text : texts) {
    while (!text.empty()) {
      if (tokens + bytes < context_tokens) return std::nullopt;  // no token is shorter than a byte
      const std::string_view piece = utf8_front(text, kPieceBytes);
      text.remove_prefix(piece.size());
      bytes -= piece.size();
      tokens += count(piece);
      if (!text.empty()) {  // what the cut makes of the tokens about it
        const std::string_view left = utf8_back(piece, kSeamBytes), right = utf8_front(text, kSeamBytes);
        tokens += count({left.data(), left.size() + right.size()});
        tokens -= count(left) + count(right);
      }
      if (tokens >= context_tokens) return fmt::format("at least {} tokens", context_tokens);
    }
  }
  return std::nullopt;
}

}  // namespace shale
