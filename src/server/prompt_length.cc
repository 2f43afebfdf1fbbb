#include "server/prompt_length.h"

#include <fmt/format.h>

#include <algorithm>

namespace shale {
namespace {

constexpr std::size_t kTokenBytesMax = 8;                     // no language's text has as many
constexpr std::size_t kTextBytesMin = std::size_t{64} << 10;  // that every model reads
constexpr std::size_t kPieceBytes = std::size_t{16} << 10;
constexpr std::size_t kSeamBytes = 256;  // on either side of a cut: beyond them it makes no difference

bool inside_character(std::string_view text, std::size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80;
}

// At most so many bytes of it, whole characters.
std::string_view front_of(std::string_view text, std::size_t bytes) {
  std::size_t end = std::min(text.size(), bytes);
  while (inside_character(text, end)) --end;
  return text.substr(0, end);
}
std::string_view back_of(std::string_view text, std::size_t bytes) {
  std::size_t begin = text.size() - std::min(text.size(), bytes);
  while (inside_character(text, begin)) ++begin;
  return text.substr(begin);
}

}  // namespace

std::optional<std::string> excess_of(std::span<const std::string_view> texts, bool special, std::size_t context_tokens,
                                     const Tokenizer& tokenizer) {
  std::size_t bytes = 0;
  for (const std::string_view text : texts) bytes += text.size();
  if (bytes > std::max(kTextBytesMin, kTokenBytesMax * context_tokens)) return fmt::format("{} bytes", bytes);
  const auto count = [&](std::string_view text) { return tokenizer.tokenize(text, special).size(); };
  std::size_t tokens = 0;
  for (std::string_view text : texts) {
    while (!text.empty()) {
      if (tokens + bytes < context_tokens) return std::nullopt;  // no token is shorter than a byte
      const std::string_view piece = front_of(text, kPieceBytes);
      text.remove_prefix(piece.size());
      bytes -= piece.size();
      tokens += count(piece);
      if (!text.empty()) {  // what the cut makes of the tokens about it
        const std::string_view left = back_of(piece, kSeamBytes), right = front_of(text, kSeamBytes);
        tokens += count({left.data(), left.size() + right.size()});
        tokens -= count(left) + count(right);
      }
      if (tokens >= context_tokens) return fmt::format("at least {} tokens", context_tokens);
    }
  }
  return std::nullopt;
}

}  // namespace shale
