// What the planner may choose from: an entry's configurations with their bytes, quality and time to first token.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cache/cost_model.h"
#include "cache/entry_index.h"
#include "placement/placement.h"
#include "tier/tier.h"

namespace shale {

// A configuration that an entry has, or will have once queued work is done. No tier: not stored.
struct Configuration {
  Method method = Method::full();
  double keep = 1;
  std::uint32_t tier = kDropped;
  bool operator==(const Configuration&) const = default;
};

class Candidates {
 public:
  // Quality in [0, 1] where it is known; nothing where a configuration was never measured, which then is no candidate.
  using QualityOf = std::function<std::optional<double>(const EntryKey&, const Method&, double keep)>;

  // `methods` without `full`; kInvalidArgument for unknown names. References must outlive this.
  static Result<Candidates> create(const std::vector<std::string>& methods, const PageShape& shape,
                                   std::span<const std::unique_ptr<Tier>> tiers, const CostModel& costs,
                                   QualityOf quality, const CachegenTables* tables = nullptr);

  // Index 0 is `full`.
  const std::vector<Method>& methods() const { return methods_; }
  // Takes one more method into the list: one that a request forced, or that an earlier process stored. Of one whose
  // bits nest, the method of fewer bits comes with it, as every keep does.
  void know(const Method& method);
  // Everything that can be made of the entry: all configurations while an uncompressed copy exists (`has_source`), else
  // what the stored strata allow. Entries that others continue cannot be dropped.
  PlacedEntry offer(const Entry& entry, const Configuration& current, bool has_source, double now_s) const;
  Configuration configuration(const Candidate& candidate) const;

  // Of the stored chunks.
  std::uint64_t bytes(const Method& method, double keep, std::uint32_t tokens) const;
  // Reading and decoding, before any overlap with computation.
  double load_s(const Method& method, double keep, std::uint32_t tokens, std::uint32_t tier) const;
  double recompute_s(const Entry& entry) const;

 private:
  // One way to press an entry, on whichever tier.
  struct Form {
    std::uint32_t method = kFullMethod;
    double keep = 1;
    bool offered = false;  // it can be made, and its quality is known
    bool current = false;  // the entry has it, on one tier
    double quality = 0;
    std::uint64_t bytes = 0;
    double decode_s = 0;
  };
  std::vector<Form> forms(const Entry& entry, const Configuration& current, bool has_source) const;
  // Bytes of the first strata, from none on.
  const std::vector<std::uint64_t>& strata_bytes(const Method& method, std::uint32_t tokens) const;

  std::vector<Method> methods_;
  PageShape shape_;
  std::span<const std::unique_ptr<Tier>> tiers_;
  const CostModel* costs_ = nullptr;
  QualityOf quality_;
  const CachegenTables* tables_ = nullptr;
  // Of strata_bytes, by method and tokens: the same few sizes are asked for again and again.
  mutable std::map<std::pair<std::string, std::uint32_t>, std::vector<std::uint64_t>> sizes_;
};

}  // namespace shale
