#include "engine/text_stream.h"

#include <algorithm>
#include <utility>

namespace shale {

namespace {

// Bytes at the end of `text` that begin a UTF-8 character and do not complete it.
std::size_t incomplete_character(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xc0) == 0x80) continue;  // a continuation byte
    const std::size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return length > back ? back : 0;
  }
  return 0;
}

// Bytes at the end of `text` with which `stop` could begin.
std::size_t possible_beginning(std::string_view text, std::string_view stop) {
  for (std::size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length) {
    if (text.ends_with(stop.substr(0, length))) return length;
  }
  return 0;
}

}  // namespace

TextStream::TextStream(std::vector<std::string> stop, bool include_stop)
    : stop_(std::move(stop)), include_stop_(include_stop) {
  std::erase_if(stop_, [](const std::string& text) { return text.empty(); });
}

std::string TextStream::push(std::string_view bytes) {
  if (stopped_) return {};
  held_ += bytes;
  std::size_t begin = 0, end = std::string::npos;  // of the stop string that is complete first
  for (const std::string& stop : stop_) {
    const std::size_t at = held_.find(stop);
    if (at == std::string::npos || at + stop.size() >= end) continue;
    begin = at;
    end = at + stop.size();
  }
  if (end != std::string::npos) {
    stopped_ = true;
    std::string shown = release(include_stop_ ? end : begin);
    held_.clear();
    return shown;
  }
  std::size_t keep = incomplete_character(held_);
  for (const std::string& stop : stop_) keep = std::max(keep, possible_beginning(held_, stop));
  return release(held_.size() - keep);
}

std::string TextStream::finish() { return stopped_ ? std::string() : release(held_.size()); }

std::string TextStream::release(std::size_t bytes) {
  std::string shown = held_.substr(0, bytes);
  held_.erase(0, bytes);
  text_ += shown;
  return shown;
}

}  // namespace shale
