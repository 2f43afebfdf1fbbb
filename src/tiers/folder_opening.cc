#include "tiers/folder_opening.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

namespace shale {
namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr auto kHangsAfter = std::chrono::seconds(10);

}  // namespace

struct FolderOpening::State {
  State(std::filesystem::path path, Open call) : folder(std::move(path)), open(std::move(call)) {}

  const std::filesystem::path folder;
  const Open open;
  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  bool closing = false;
  std::optional<OpenFolder> opened;
  std::optional<Error> failure;                       // of the last attempt that ended
  std::optional<SteadyClock::time_point> began = {};  // of the one in flight
};

FolderOpening::FolderOpening(std::filesystem::path folder, Open open, double again_after_s)
    : state_(std::make_shared<State>(std::move(folder), std::move(open))) {
  state_->began = SteadyClock::now();
  // Nobody can join a thread whose call never returns.
  std::thread([state = state_, pause = std::chrono::duration<double>(again_after_s)] {
    for (;;) {
      Result<OpenFolder> opened = state->open();
      std::unique_lock lock(state->mutex);
      state->began.reset();
      if (opened) {
        if (!state->closing) state->opened = std::move(*opened);
      } else {
        state->failure = std::move(opened).error();
      }
      state->changed.notify_all();
      if (opened || state->changed.wait_for(lock, pause, [&] { return state->closing; })) return;
      state->began = SteadyClock::now();
    }
  }).detach();
}

FolderOpening::~FolderOpening() {
  const std::lock_guard lock(state_->mutex);
  state_->closing = true;
  state_->opened.reset();
  state_->changed.notify_all();
}

void FolderOpening::wait(double patience_s) {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait_for(lock, std::chrono::duration<double>(patience_s),
                           [this] { return state_->opened || state_->failure; });
}

std::optional<OpenFolder> FolderOpening::take() {
  const std::lock_guard lock(state_->mutex);
  return std::exchange(state_->opened, std::nullopt);
}

Error FolderOpening::trouble() const {
  const std::lock_guard lock(state_->mutex);
  const auto waited = state_->began ? SteadyClock::now() - *state_->began : SteadyClock::duration();
  if (state_->failure && waited < kHangsAfter) return *state_->failure;
  return {ErrorCode::kIo,
          fmt::format("{} does not answer: opening it has not ended after {} s", state_->folder.string(),
                      std::chrono::duration_cast<std::chrono::seconds>(waited).count())};
}

}  // namespace shale
