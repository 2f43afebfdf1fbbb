// Background work in its order: what frees room on a tier comes before what takes it, and what is done to one entry
// happens as it was asked for. While one job's I/O is under way, the next go on.
//
// Encoding holds the pool's pages, so it does not wait for its turn: entries that are to be stored are encoded as soon
// as there is time, as long as what waits to be written stays within 128 MiB.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "cache/job.h"

namespace shale {

// Not thread-safe.
class JobQueue {
 public:
  void push_back(std::unique_ptr<Job> job) { jobs_.push_back(std::move(job)); }
  bool empty() const { return jobs_.empty(); }
  std::size_t size() const { return jobs_.size(); }
  void clear() { jobs_.clear(); }

  // One piece of work; false when there is none to do now. `done` is called with the entry of each job that ended,
  // which may remove the entry where nothing pins it any more.
  bool work(Executor& executor, const std::function<void(Entry&)>& done);
  // Drops the job whose entry is worth least of those that can be given up, where there is one. `done` as above.
  bool give_up(const std::function<double(const Entry&)>& worth, const std::function<void(Entry&)>& done);

  // That giving up all that can be given up would leave to the pool.
  std::uint32_t slabs_kept() const;

 private:
  void finish(std::size_t job, const std::function<void(Entry&)>& done);

  std::vector<std::unique_ptr<Job>> jobs_;
};

}  // namespace shale
