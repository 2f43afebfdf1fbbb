// The way of one answer from the thread that owns the engine to the one that serves its client: text as it comes, then
// the response.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "engine/engine.h"

namespace shale {

// One writer, one reader, on any threads. Nothing blocks the writer: pieces that the reader has not taken yet are
// joined, and more than `text_bytes_max` of them end the channel, for its reader is too slow.
class Channel {
 public:
  explicit Channel(std::size_t text_bytes_max) : text_bytes_max_(text_bytes_max) {}

  // Writer. False: nobody wants it any more.
  bool push(std::string_view piece);
  void finish(Response response);

  // Reader. What has come since the last call, with the response once that was the end; nothing where nothing has come
  // within `wait`.
  struct Part {
    std::string text;
    std::optional<Response> response;
  };
  std::optional<Part> next(std::chrono::milliseconds wait);
  // The reader leaves.
  void abandon();

 private:
  const std::size_t text_bytes_max_;
  std::mutex mutex_;
  std::condition_variable came_;
  std::string text_;
  std::optional<Response> response_;
  bool abandoned_ = false;
};

}  // namespace shale
