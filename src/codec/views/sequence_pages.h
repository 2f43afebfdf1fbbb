// A sequence's first tokens as pages of halves, whatever its pool holds.
#pragma once

#include <cstdint>
#include <optional>

#include "codec/views/sequence_view.h"
#include "codec/views/view_pages.h"
#include "core/executor.h"

namespace shale {

class SequencePages {
 public:
  // The first `tokens` tokens of a sequence whose heads agree there; whole blocks where the pool is not of halves, of
  // which a copy is made. The sequence must stay as it is.
  SequencePages(const Sequence& sequence, std::uint32_t tokens, Executor& executor)
      : staged_(stage(sequence, tokens, executor)),
        pages_(staged_ ? readable(staged_->view()) : view_of(sequence, 0, tokens)) {}

  const ViewPages& operator*() const { return pages_; }
  const ViewPages* operator->() const { return &pages_; }

 private:
  static std::optional<StagedTokens> stage(const Sequence& sequence, std::uint32_t tokens, Executor& executor) {
    if (sequence.pool().shape().element == PageElement::kHalf) return std::nullopt;
    StagedTokens staged(sequence.pool().shape(), tokens);
    staged.read(sequence, 0, executor);
    return staged;
  }

  std::optional<StagedTokens> staged_;
  ViewPages pages_;
};

}  // namespace shale
