#include <algorithm>
#include <array>

#include "core/hash.h"
#include "trace/session.h"

namespace shale {
namespace {

constexpr std::uint64_t kSharedIds = std::uint64_t{1} << 63;

// The `at`-th block of every session whose prefix `tool_tokens` and `system_tokens` stand for.
std::uint64_t shared_id(std::uint64_t tool_tokens, std::uint64_t system_tokens, std::uint64_t at) {
  const std::array<std::uint64_t, 3> key = {tool_tokens, system_tokens, at};
  return hash128(std::as_bytes(std::span(key))).low | kSharedIds;
}

}  // namespace

SessionWalk::SessionWalk(SessionStream stream, std::uint64_t number, std::uint32_t block_tokens, PrefixSharing sharing)
    : stream_(std::move(stream)), number_(number), block_tokens_(block_tokens), sharing_(sharing) {
  const std::uint64_t tokens = std::uint64_t{stream_.tool_tokens} + stream_.system_tokens;
  shared_blocks_ = sharing == PrefixSharing::kNone ? 0 : tokens / block_tokens;
  if (!at_end()) step(stream_.requests[0]);
}

std::uint64_t SessionWalk::global_id(std::uint64_t local, std::size_t at) {
  if (next_ == 0 && at < shared_blocks_) prefix_.push_back(local);
  if (at >= prefix_.size() || prefix_[at] != local) return number_ * kSessionIdsMax + local;
  if (sharing_ == PrefixSharing::kAll) return kSharedIds | at;
  const bool is_tools = (at + 1) * block_tokens_ <= stream_.tool_tokens;
  return shared_id(stream_.tool_tokens, is_tools ? 0 : stream_.system_tokens, at);
}

void SessionWalk::step(const SessionRequest& request) {
  path_.resize(request.keep);
  for (const SessionRun& run : std::span(stream_.runs).subspan(request.first_run, request.runs)) {
    for (std::uint64_t i = 0; i < run.count; ++i) path_.push_back(global_id(run.first + i, path_.size()));
  }
}

void SessionWalk::next(RawRequest& request) {
  const SessionRequest& now = stream_.requests[next_++];
  request.input_tokens = now.input_tokens;
  request.output_tokens = now.output_tokens;
  request.output_blocks = 0;
  request.blocks = path_;
  if (at_end()) return;

  const SessionRequest& after = stream_.requests[next_];
  step(after);
  const std::size_t prompt = request.blocks.size();
  if (after.keep < prompt || prompt > now.input_tokens / block_tokens_) return;
  const std::uint64_t tokens = std::uint64_t{now.input_tokens} + now.output_tokens;
  const std::size_t end = std::min<std::size_t>(path_.size(), tokens / block_tokens_);
  if (end <= prompt) return;
  request.blocks.insert(request.blocks.end(), path_.begin() + static_cast<std::ptrdiff_t>(prompt),
                        path_.begin() + static_cast<std::ptrdiff_t>(end));
  request.output_blocks = static_cast<std::uint32_t>(end - prompt);
}

}  // namespace shale
