// The way of one answer from the thread that owns the engine to the one that serves its client: whether the engine
// takes the request, text and tokens as they come, then the response.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"

namespace shale {

// One writer, one reader, on any threads. Nothing blocks the writer: pieces that the reader has not taken yet are
// joined, and more than `text_bytes_max` of them and of their tokens end the channel, for its reader is too slow.
class Channel {
 public:
  // `on_news` is called by the writer after each of its calls, so that the reader need not wait in `next`.
  explicit Channel(std::size_t text_bytes_max, std::function<void()> on_news = {})
      : text_bytes_max_(text_bytes_max), on_news_(std::move(on_news)) {}

  // Writer. First whether the request is taken: the rest follows only if it is.
  void begin(Status taken);
  // Those of the prompt, which go along with the first piece or the response.
  void add_prompt(PromptLogprobs prompt);
  // A token, which goes along with the next piece or the response.
  void add(DrawnToken token);
  // False: nobody wants it any more.
  bool push(std::string_view piece);
  void finish(Response response);

  // Reader. What has come since the last call, with the response once that was the end; nothing where nothing has come
  // within `wait`. The first part says no more than that the request was taken; one with `refused` is the only one.
  struct Part {
    std::string text = {};
    PromptLogprobs prompt = {};
    std::vector<DrawnToken> tokens = {};
    std::optional<Response> response = {};
    std::optional<Error> refused = {};
  };
  std::optional<Part> next(std::chrono::milliseconds wait);
  // The reader leaves.
  void abandon();

 private:
  void tell();

  const std::size_t text_bytes_max_;
  const std::function<void()> on_news_;
  std::mutex mutex_;
  std::condition_variable came_;
  std::optional<Status> taken_;
  std::string text_;
  PromptLogprobs prompt_;
  std::vector<DrawnToken> tokens_;
  std::size_t token_bytes_ = 0;
  std::optional<Response> response_;
  bool abandoned_ = false;
};

}  // namespace shale
