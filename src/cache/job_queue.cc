#include "cache/job_queue.h"

#include <algorithm>

namespace shale {
namespace {

constexpr std::uint64_t kPreparedBytesMax = std::uint64_t{128} << 20;
constexpr std::size_t kUnderWay = 16;  // jobs looked at for their turn: their reads and writes overlap

}  // namespace

void JobQueue::finish(std::size_t job, const std::function<void(Entry&)>& done) {
  Entry& entry = jobs_[job]->entry();
  jobs_.erase(jobs_.begin() + static_cast<std::ptrdiff_t>(job));
  done(entry);
}

bool JobQueue::work(Executor& executor, const std::function<void(Entry&)>& done) {
  std::uint64_t prepared = 0;
  for (const auto& job : jobs_) prepared += job->prepared_bytes();
  const bool room = prepared < kPreparedBytesMax;
  for (std::size_t i = 0; i < std::min(jobs_.size(), kUnderWay); ++i) {
    Job& job = *jobs_[i];
    const bool after_its_own = std::any_of(jobs_.begin(), jobs_.begin() + static_cast<std::ptrdiff_t>(i),
                                           [&](const auto& before) { return &before->entry() == &job.entry(); });
    if (after_its_own || (i > 0 && job.unprepared() && !room)) continue;
    switch (job.step(executor)) {
      case Job::Progress::kWorked:
        return true;
      case Job::Progress::kDeferred:
        std::rotate(jobs_.begin() + static_cast<std::ptrdiff_t>(i), jobs_.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                    jobs_.end());
        return true;
      case Job::Progress::kDone:
        finish(i, done);
        return true;
      case Job::Progress::kWaiting:
        break;
    }
    if (job.frees_room()) break;
  }
  return room && std::ranges::any_of(jobs_, [&](const auto& job) { return job->prepare(executor); });
}

bool JobQueue::give_up(const std::function<double(const Entry&)>& worth, const std::function<void(Entry&)>& done) {
  std::size_t least = jobs_.size();
  double least_worth = 0;
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    if (!jobs_[i]->can_be_given_up()) continue;
    const double each = worth(jobs_[i]->entry());
    if (least < jobs_.size() && each >= least_worth) continue;
    least = i;
    least_worth = each;
  }
  if (least == jobs_.size()) return false;
  finish(least, done);
  return true;
}

std::uint32_t JobQueue::slabs_kept() const {
  std::uint32_t slabs = 0;
  for (const auto& job : jobs_) slabs += job->can_be_given_up() ? job->slabs_kept() : 0;
  return slabs;
}

}  // namespace shale
