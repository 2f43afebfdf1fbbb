// Which chunks shared tiers are being asked for, and which they were asked for lately.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <unordered_set>

namespace shale {

// By tag (chunk_tag). Not thread-safe.
class AskedChunks {
 public:
  void begin(std::uint64_t tag) { asking_.insert(tag); }
  void end(std::uint64_t tag, double now_s) {
    asking_.erase(tag);
    asked_s_[tag] = now_s;
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
  static constexpr double kAgainAfterS = 1;

  std::unordered_set<std::uint64_t> asking_;
  std::unordered_map<std::uint64_t, double> asked_s_;
};

}  // namespace shale
