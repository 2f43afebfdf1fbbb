// What is known of answers' quality, by entry and by (method, keep). No I/O, no clock.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "codec/method.h"
#include "core/hash.h"

namespace shale {

struct Quality {
  double quality = 0;         // [0, 1] against the full cache
  bool prior = false;         // not measured on this entry: the mean over others of the same model
  std::uint32_t entries = 1;  // that the figure comes from
};

class QualityTable {
 public:
  void record(const Hash128& entry, const Method& method, double keep, double quality);
  void forget(const Hash128& entry);
  void clear() { measured_.clear(); }

  // The entry's own profile; else the mean of all profiled entries at this (method, keep), which is AdaptCache's cheap
  // profile (arXiv 2509.00105) and flagged as a prior; else nothing. `full` is 1 by definition.
  std::optional<Quality> quality_for(const Hash128& entry, const Method& method, double keep) const;

 private:
  using Key = std::pair<std::string, std::int64_t>;  // method's text, keep in millionths
  struct Measured {
    std::unordered_map<Hash128, double> of_entry;
    double sum = 0;
  };
  static Key key_of(const Method& method, double keep);

  std::map<Key, Measured> measured_;
};

}  // namespace shale
