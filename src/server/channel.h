// The way of answers from the thread that owns the engine to the one that serves their client: whether the engine takes
// the requests, text and tokens as they come, then the responses.
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

// Of requests that were submitted together, an answer's choices, numbered from 0. One writer, one reader, on any
// threads. Nothing blocks the writer: pieces that the reader has not taken yet are joined, and more than
// `text_bytes_max` of a choice's and of its tokens end the channel, for its reader is too slow.
class Channel {
 public:
  // `on_news` is called by the writer after each of its calls, so that the reader need not wait in `next`.
  explicit Channel(std::size_t text_bytes_max, std::size_t choices = 1, std::function<void()> on_news = {});

  // Writer. First whether the requests are taken: the rest is heard of only if they are.
  void begin(Status taken);
  // Those of the prompt, which go along with the first piece or the response.
  void add_prompt(std::size_t choice, PromptLogprobs prompt);
  // A token, which goes along with the next piece or the response.
  void add(std::size_t choice, DrawnToken token);
  // False: nobody wants it any more.
  bool push(std::size_t choice, std::string_view piece);
  void finish(std::size_t choice, Response response);

  // Reader. What has come of one choice since that was told of last, with the response once that was its end; the
  // choices take turns. Nothing where nothing has come within `wait`. The first part says no more than that the
  // requests were taken; one with `refused` is the only one.
  struct Part {
    std::size_t choice = 0;
    std::string text = {};
    PromptLogprobs prompt = {};
    std::vector<DrawnToken> tokens = {};
    std::optional<Response> response = {};
    std::optional<Error> refused = {};
    bool news() const { return !text.empty() || response; }
  };
  std::optional<Part> next(std::chrono::milliseconds wait);
  // The reader leaves.
  void abandon();

 private:
  struct Choice {
    Part coming;
    std::size_t token_bytes = 0;
  };
  bool news() const;
  void tell();

  const std::size_t text_bytes_max_;
  const std::function<void()> on_news_;
  std::mutex mutex_;
  std::condition_variable came_;
  std::optional<Status> taken_;
  bool begun_ = false;  // the reader knows that they are taken
  std::vector<Choice> choices_;
  std::size_t turn_ = 0;  // of the choices
  bool abandoned_ = false;
};

}  // namespace shale
