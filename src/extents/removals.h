// What a store removes from a tier, from when it is not to be found any more until it is gone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>

#include "core/hash.h"

namespace shale {

// The owner of blobs: an extent's name and the tag of its first chunk.
struct BlobOwner {
  Hash128 name;
  std::uint64_t tag = 0;
};

struct Removal {
  BlobOwner owner;          // without a tag: an object of the store's owner's own
  std::uint64_t bytes = 0;  // that it takes until it is gone; 0 where somebody else counts them
  std::string tenant = {};  // of the extent
  bool told = false;        // to who takes events, or there is nothing to tell
};

// Removals are tried as they come, until one fails. Then the tier is left alone: those that fail, or come, are owed.
// One of them is tried again after a pause, which doubles while that fails; once it works, the others follow, one at a
// time. Guarded by its owner's mutex.
class Removals {
 public:
  static constexpr double kPauseS = 5, kPauseMaxS = 60;

  // It is about to be tried.
  void begin(const Removal& removal);
  // Whether it had better be owed than tried now.
  bool rests(const Hash128& name, double now_s) const { return owed() > 0 && again_ != name && now_s < again_s_; }
  // It could not be removed, for that reason; or, without one, was not tried.
  void owe(Removal removal, double now_s, std::string why = {});
  // The one that has been owed longest, about to be tried again; nothing while none is due, or one is at it.
  std::optional<Removal> begin_again(double now_s);
  // It is gone, or given up.
  void end(const Hash128& name);
  // It is wanted again, or there again: it is not owed any more.
  void forget(const Hash128& name);

  bool contains(const Hash128& name) const { return all_.contains(name); }
  // Whether it is about to be tried, or being so: not to be written before that has ended.
  bool tries(const Hash128& name) const;
  std::uint64_t bytes() const { return bytes_; }  // of all
  std::size_t owed() const { return owed_.size() + (again_ ? 1 : 0); }
  // Why the last that failed did; empty while none is owed.
  std::string why() const { return owed() > 0 ? why_ : std::string(); }

 private:
  struct Known {
    std::uint64_t bytes = 0;
    bool is_owed = false;
  };
  void note(const Removal& removal, bool is_owed);

  std::unordered_map<Hash128, Known> all_;
  std::uint64_t bytes_ = 0;
  std::deque<Removal> owed_;
  std::optional<Hash128> again_;  // of these before, tried again
  double again_s_ = 0, pause_s_ = kPauseS;
  std::string why_;
};

}  // namespace shale
