// Does to a server, its folders and its clock what a plan says, and undoes it.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "trial/chaos_plan.h"
#include "trial/serve_trial.h"
#include "trial/shared_tiers.h"

namespace shale {

class Trouble {
 public:
  // `shared` outlives this.
  Trouble(const TrialFolders& folders, SharedTiers& shared) : folders_(folders), shared_(shared) {}

  // Begins a fault of any kind but those that end the process, which must run. It is instant, or lasts until `end`.
  void begin(const Fault& fault, std::size_t number, pid_t pid);
  // Undoes what a fault did: one that `begin` has begun and nobody has ended.
  void end(std::size_t number);
  // Undoes what ends with the process, and what would keep another from beginning.
  void before_kill();
  void end_all();

  // Cuts some of the files that were written last, as a machine does that loses power.
  void tear(std::uint64_t draw);
  // Files of blobs that were damaged so far.
  std::size_t damaged_blobs() const { return damaged_blobs_; }
  // What is wrong now, for messages; "nothing" where nothing is.
  std::string now() const;

 private:
  struct Active {
    std::size_t number = 0;
    Fault fault;
    pid_t pid = 0;
    rlimit before = {};  // of a limit
  };
  void apply(Active& active);
  void undo(const Active& active);
  void move_away(const Active& active) const;
  void bring_back(const Active& active);
  void flip(std::uint64_t draw);
  void write_fault_file() const;
  void tell_proxy(const std::string& tier);
  std::filesystem::path folder_of(const Fault& fault) const;

  const TrialFolders folders_;
  SharedTiers& shared_;
  std::vector<Active> active_;
  std::size_t damaged_blobs_ = 0;
};

}  // namespace shale
