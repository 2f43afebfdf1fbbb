#include "engine/waiting_queue.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace shale {
namespace {

// Schedulers' numbers are shorter; those who wait together never share one.
std::uint32_t number_of(RequestId id) { return static_cast<std::uint32_t>(id); }

}  // namespace

void WaitingQueue::add(std::unique_ptr<RequestState> run) {
  Tenant& tenant = tenants_[run->share->tenant];
  tenant.share = run->share;
  Line& line = tenant.lines[run->request.priority];
  if (!line.scheduler) line.scheduler = std::move(make_scheduler(scheduler_, options_, *this)).value();
  const std::uint32_t id = number_of(run->id);
  const WaitingRequest request{
      .id = id,
      .arrival_s = run->submitted_s,
      .prompt_blocks = cache_.pool().shape().pages_for(static_cast<std::uint32_t>(run->prompt.size()))};
  runs_.emplace(id, std::move(run));
  line.scheduler->add(request);
}

RequestState& WaitingQueue::next() {
  assert(!runs_.empty());
  const auto least = std::ranges::min_element(tenants_, {}, [](const auto& each) { return each.second.service(); });
  Line& line = least->second.lines.begin()->second;
  if (!line.next) line.next = runs_.at(line.scheduler->take()).get();
  return *line.next;
}

std::unique_ptr<RequestState> WaitingQueue::withdraw(RequestId id) {
  const auto found = runs_.find(number_of(id));
  if (found == runs_.end() || found->second->id != id) return nullptr;
  std::unique_ptr<RequestState> run = std::move(found->second);
  runs_.erase(found);
  const auto tenant = tenants_.find(run->share->tenant);
  auto& lines = tenant->second.lines;
  const auto place = lines.find(run->request.priority);
  Line& line = place->second;
  if (line.next == run.get()) {
    line.next = nullptr;
  } else {
    line.scheduler->withdraw(number_of(id));
  }
  if (!line.next && line.scheduler->waiting() == 0) lines.erase(place);
  if (lines.empty()) tenants_.erase(tenant);
  return run;
}

std::uint32_t WaitingQueue::resident_prefix(const WaitingRequest& request) const {
  const RequestState& run = *runs_.at(request.id);
  return cache_.pool_prefix(run.prompt, run.request.policy.salt) / cache_.pool().shape().block_size;
}

}  // namespace shale
