// Several sequences through the model together, in as few steps as they fit.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "model/model.h"

namespace shale {

// Tokens of one forward step: a request that comes meanwhile waits for it, a tenth of a second or so.
inline constexpr std::uint32_t kStepTokens = 128;

struct Feed {
  Sequence* sequence = nullptr;  // makes room for the tokens itself
  std::span<const Token> tokens;
};

// Rows of logits, [rows][vocabulary], of feed number `feed` from its token `first` on; valid during the call.
using OnLogits = std::function<void(std::size_t feed, std::size_t first, std::span<const float> rows)>;

// Whether somebody wants the work to end: looked at before each step, which then ends it with kCancelled. Empty:
// nobody.
using Stop = std::function<bool()>;
Status check_stop(const Stop& stop);

// Appends each feed's tokens to its sequence. Without `on_logits` none are computed. Sequences must differ. On an error
// (kFull: the pool) sequences may have grown by some of their tokens.
Status feed(Model& model, std::span<const Feed> feeds, const OnLogits& on_logits = {}, const Stop& stop = {});

}  // namespace shale
