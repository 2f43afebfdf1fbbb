// What a caller holds of a save.
#include <chrono>
#include <utility>

#include "store/store_save.h"

namespace shale {

void StoreSave::State::set_released() {
  {
    const std::lock_guard lock(mutex);
    released = true;
  }
  changed.notify_all();
  core.signal();
}

void StoreSave::State::set_done(Status with) {
  {
    const std::lock_guard lock(mutex);
    done = true;
    status = std::move(with);
  }
  set_released();
}

template <class Reached>
Status StoreSave::State::wait_until(const Reached& reached) {
  InlineExecutor executor;
  std::unique_lock lock(mutex);
  while (!reached()) {
    if (core.options.threads == 0) {
      lock.unlock();
      if (!core.work(executor, 1e-3)) core.clock.sleep_until_s(core.clock.now_s() + 1e-4);
      lock.lock();
    } else {
      changed.wait_for(lock, std::chrono::milliseconds(10));
    }
  }
  return status;
}

StoreSave::StoreSave(std::shared_ptr<State> state) : state_(std::move(state)) {}
StoreSave::~StoreSave() { cancel(); }

bool StoreSave::released() const {
  const std::lock_guard lock(state_->mutex);
  return state_->released || state_->cancelled;
}

bool StoreSave::done() const {
  const std::lock_guard lock(state_->mutex);
  return state_->done;
}

Status StoreSave::wait_released() {
  return state_->wait_until([this] { return state_->released || state_->cancelled; });
}

Status StoreSave::wait() {
  return state_->wait_until([this] { return state_->done; });
}

void StoreSave::cancel() {
  const std::lock_guard reading(state_->view_mutex);
  state_->cancelled = true;
}

std::uint32_t StoreSave::shared_blocks() const { return state_->shared_blocks; }

}  // namespace shale
