// The chunks that shared tiers are being asked for, were asked for lately, and are to be asked for.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "extents/block_keys.h"
#include "extents/extent_index.h"

namespace shale {

// Asks for what begins with keys[block], and goes on where that ends.
struct ChainQuestion {
  std::vector<BlockKey> keys;
  std::uint32_t block = 0;
  Hash128 realm;
  std::uint16_t realm_number = 0;

  std::uint64_t tag(std::uint32_t at) const { return chunk_tag(keys[at], realm); }
};

// Chunks by tag (chunk_tag). Not thread-safe.
class AskedChunks {
 public:
  // Its first chunk counts as being asked for from now on. True where no other question waits: somebody has to begin
  // to take them.
  bool add(ChainQuestion question) {
    begin(question.tag(question.block));
    questions_.push_back(std::move(question));
    return questions_.size() == 1;
  }
  bool waiting() const { return !questions_.empty(); }
  std::optional<ChainQuestion> take() {
    if (questions_.empty()) return std::nullopt;
    std::optional<ChainQuestion> first(std::move(questions_.front()));
    questions_.pop_front();
    return first;
  }

  void begin(std::uint64_t tag) { asking_.insert(tag); }
  // `answered`: else it may be asked for again soon.
  void end(std::uint64_t tag, double now_s, bool answered) {
    asking_.erase(tag);
    asked_s_[tag] = answered ? now_s : now_s - kAgainAfterS + kAgainAfterFailureS;
  }
  bool being_asked(std::uint64_t tag) const { return asking_.contains(tag); }
  // Too lately to be asked for again, or still.
  bool lately(std::uint64_t tag, double now_s) const {
    const auto asked = asked_s_.find(tag);
    return being_asked(tag) || (asked != asked_s_.end() && asked->second + kAgainAfterS > now_s);
  }
  void forget(double now_s) {
    std::erase_if(asked_s_, [&](const auto& asked) { return asked.second + kAgainAfterS < now_s; });
  }

 private:
  static constexpr double kAgainAfterS = 1, kAgainAfterFailureS = 0.1;

  std::deque<ChainQuestion> questions_;
  std::unordered_set<std::uint64_t> asking_;
  std::unordered_map<std::uint64_t, double> asked_s_;
};

}  // namespace shale
