#include "server/prompt_length.h"

#include <fmt/format.h>

#include <algorithm>

namespace shale {
namespace {

constexpr std::size_t kTokenBytesMax = 8;                     // no language's text has as many
constexpr std::size_t kTextBytesMin = std::size_t{64} << 10;  // that every model reads
constexpr std::size_t kPieceBytes = std::size_t{16} << 10;
constexpr std::size_t kSeamTokensMax = 64;  // that a cut makes: of a special token or a word, and what follows it

// At most kPieceBytes, whole characters.
std::string_view piece_of(std::string_view text) {
  std::size_t end = std::min(text.size(), kPieceBytes);
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end);
}

}  // namespace

std::optional<std::string> excess_of(std::span<const std::string_view> texts, bool special, std::size_t context_tokens,
                                     const Tokenizer& tokenizer) {
  std::size_t bytes = 0;
  for (const std::string_view text : texts) bytes += text.size();
  if (bytes > std::max(kTextBytesMin, kTokenBytesMax * context_tokens)) return fmt::format("{} bytes", bytes);
  std::size_t tokens = 0, limit = context_tokens;
  for (std::string_view text : texts) {
    while (!text.empty()) {
      if (tokens + bytes <= context_tokens) return std::nullopt;  // no token is shorter than a byte
      const std::string_view piece = piece_of(text);
      tokens += tokenizer.tokenize(piece, special).size();
      text.remove_prefix(piece.size());
      bytes -= piece.size();
      if (!text.empty()) limit += kSeamTokensMax;
      if (tokens > limit) return fmt::format("more than {} tokens", context_tokens);
    }
  }
  return std::nullopt;
}

}  // namespace shale
