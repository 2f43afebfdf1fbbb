#include "http/http_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/parsing.h"

namespace shale {
namespace {

constexpr std::size_t kMethodMax = 16, kChunkLineMax = 256;

bool token_char(char c) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || kMarks.contains(c);
}

bool is_token(std::string_view text) { return !text.empty() && std::ranges::all_of(text, token_char); }

std::optional<std::string> percent_decoded(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      result += text[i];
      continue;
    }
    const auto byte = parse_integer<std::uint64_t>(text.substr(i + 1, 2), 16);
    if (!byte || *byte == 0 || i + 2 >= text.size()) return std::nullopt;
    result += static_cast<char>(*byte);
    i += 2;
  }
  return result;
}

}  // namespace

bool HttpParser::fail(int status, std::string message) {
  failure_ = {status, std::move(message)};
  stage_ = Stage::kFailed;
  return false;
}

std::size_t HttpParser::feed(std::string_view bytes) {
  const std::size_t given = bytes.size();
  const Stage stage = stage_;
  if (stage == Stage::kHead) {
    while (stage_ == stage && !bytes.empty() && read_line(bytes)) head_line();
  } else if (stage == Stage::kBody) {
    chunked_ ? read_chunked(bytes) : read_plain(bytes);
  }
  return given - bytes.size();
}

// Moves bytes into the line; true once it is whole, without its end.
bool HttpParser::read_line(std::string_view& bytes) {
  const bool of_chunk = stage_ == Stage::kBody && part_ != Part::kTrailer;  // which is bounded by itself
  const std::size_t room = of_chunk ? kChunkLineMax - line_.size() : limits_.head_bytes - head_bytes_;
  const std::size_t end = bytes.substr(0, room).find('\n');
  const bool whole = end != std::string_view::npos;
  const std::string_view piece = bytes.substr(0, whole ? end + 1 : room);
  bytes.remove_prefix(piece.size());
  of_chunk ? framing_bytes_ += piece.size() : head_bytes_ += piece.size();
  const std::size_t old = line_.size();
  line_ += piece;
  if (whole && !line_.ends_with("\r\n")) return fail(400, "a line ends without CR");
  const std::size_t text = line_.size() - (whole ? 2 : line_.ends_with('\r') ? 1 : 0);
  // A CR that ended what came before was looked at as a line's end that may come.
  for (std::size_t i = old == 0 ? 0 : old - 1; i < text; ++i) {
    const auto c = static_cast<unsigned char>(line_[i]);
    if ((c < ' ' && c != '\t') || c == 0x7f) return fail(400, "the head holds control characters");
  }
  if (whole) {
    line_.resize(line_.size() - 2);
  } else if (!bytes.empty()) {
    if (of_chunk) return fail(400, "a chunk's first line is too long");
    return fail(431, fmt::format("the head is longer than {} bytes", limits_.head_bytes));
  }
  return whole;
}

bool HttpParser::head_line() {
  const bool first = request_.method.empty();
  if (line_.empty() && !first) return begin_body();
  // One empty line may follow the request before this one.
  const bool ok = first ? (line_.empty() && head_bytes_ == 2) || request_line() : field_line();
  line_.clear();
  return ok;
}

bool HttpParser::request_line() {
  const std::size_t method_end = line_.find(' '), target_end = line_.rfind(' ');
  const std::string_view line = line_;
  if (method_end == line.npos || target_end == method_end || method_end > kMethodMax ||
      !is_token(line.substr(0, method_end))) {
    return fail(400, "the first line is no request: METHOD TARGET HTTP/1.1");
  }
  const std::string_view version = line.substr(target_end + 1);
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    const bool other = version.size() == 8 && version.starts_with("HTTP/");
    return fail(other ? 505 : 400, "this server speaks HTTP/1.1");
  }
  request_.version_1_1 = version.ends_with('1');
  if (!target(line.substr(method_end + 1, target_end - method_end - 1))) return false;
  request_.method = line.substr(0, method_end);
  return true;
}

// "/path?query", or "http://authority/path?query", whose authority counts more than the field `Host`.
bool HttpParser::target(std::string_view text) {
  if (!std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7f && c != '#'; })) {
    return fail(400, "the target holds characters that must be percent-encoded");
  }
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!same_ignoring_case(text.substr(0, scheme.size()), scheme)) continue;
    text.remove_prefix(scheme.size());
    authority_ = text.substr(0, text.find_first_of("/?"));
    text.remove_prefix(authority_.size());
    if (authority_.empty()) return fail(400, "the target names no host");
    if (text.empty()) text = "/";
  }
  auto path = percent_decoded(text.substr(0, text.find('?')));
  if (!path || (!path->starts_with('/') && *path != "*")) return fail(400, "the target is no path");
  request_.path = std::move(*path);
  return true;
}

bool HttpParser::field_line() {
  if (++head_lines_ > limits_.head_lines) {
    return fail(431, fmt::format("the head has more than {} fields", limits_.head_lines));
  }
  const std::string_view line = line_;
  const std::size_t colon = line.find(':');
  if (colon == line.npos || !is_token(line.substr(0, colon))) {
    const bool folded = line.starts_with(' ') || line.starts_with('\t');
    return fail(400, folded ? "a field goes on in the next line" : "a line of the head is no field: NAME: VALUE");
  }
  if (stage_ == Stage::kHead) {  // trailers are read and ignored
    request_.fields.emplace_back(lower_case(line.substr(0, colon)), trimmed(line.substr(colon + 1), kHttpSpace));
  }
  return true;
}

// The head is whole: how long is the body?
bool HttpParser::begin_body() {
  line_.clear();
  const auto count = [&](std::string_view name) {
    return std::ranges::count(request_.fields, name, &HttpFields::value_type::first);
  };
  const auto hosts = count("host"), lengths = count("content-length"), codings = count("transfer-encoding");
  if (hosts > 1 || (hosts == 0 && request_.version_1_1)) return fail(400, "a request has one `Host`");
  if (!authority_.empty()) {
    std::erase_if(request_.fields, [](const auto& field) { return field.first == "host"; });
    request_.fields.emplace_back("host", authority_);
  }
  if (lengths + codings > 1)
    return fail(400, "a request has one `Content-Length` or one `Transfer-Encoding`, not both");
  if (codings == 1) {
    if (!request_.version_1_1) return fail(400, "HTTP/1.0 has no `Transfer-Encoding`");
    if (!same_ignoring_case(request_.field("transfer-encoding"), "chunked")) {
      return fail(501, "of transfer codings only `chunked` is read");
    }
    chunked_ = true;
  } else if (lengths == 1) {
    const auto length = parse_integer<std::uint64_t>(request_.field("content-length"), 10);
    if (!length) return fail(400, "`Content-Length` is not a number");
    if (*length > limits_.body_bytes) {
      return fail(413, fmt::format("the body is too long: {} bytes, at most {}", *length, limits_.body_bytes));
    }
    body_left_ = *length;
  }
  head_bytes_ = 0;  // from here on of trailers
  stage_ = Stage::kBody;
  return true;
}

void HttpParser::take_data(std::string_view& bytes) {
  const std::size_t count = std::min<std::uint64_t>(bytes.size(), body_left_);
  request_.body += bytes.substr(0, count);
  bytes.remove_prefix(count);
  body_left_ -= count;
}

void HttpParser::read_plain(std::string_view& bytes) {
  take_data(bytes);
  if (body_left_ == 0) stage_ = Stage::kWhole;
}

void HttpParser::read_chunked(std::string_view& bytes) {
  while (stage_ == Stage::kBody && !bytes.empty()) {
    if (part_ == Part::kData) {
      take_data(bytes);
      if (body_left_ == 0) part_ = Part::kDataEnd;
      continue;
    }
    if (!read_line(bytes)) return;
    if (framing_bytes_ > limits_.body_bytes) {
      fail(413, "the body's chunks are too small");
    } else if (part_ == Part::kSize) {
      chunk_size();
    } else if (part_ == Part::kDataEnd) {
      line_.empty() ? void(part_ = Part::kSize) : void(fail(400, "a chunk is longer than it says"));
    } else if (line_.empty()) {
      stage_ = Stage::kWhole;
    } else {
      field_line();
    }
    line_.clear();
  }
}

// "SIZE" or "SIZE;EXTENSION", which is ignored.
bool HttpParser::chunk_size() {
  const std::string_view line = line_;
  const auto size = parse_integer<std::uint64_t>(line.substr(0, line.find(';')), 16);
  if (!size) return fail(400, "a chunk's size is not a number");
  if (*size > limits_.body_bytes - request_.body.size()) {
    return fail(413, fmt::format("the body is too long: at most {} bytes", limits_.body_bytes));
  }
  body_left_ = *size;
  part_ = *size == 0 ? Part::kTrailer : Part::kData;
  if (*size == 0) head_bytes_ = head_lines_ = 0;
  return true;
}

}  // namespace shale
