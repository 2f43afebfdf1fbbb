#include "cache/candidates.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "codec/layout.h"
#include "scoring/scorer.h"

namespace shale {

namespace {

std::uint64_t bytes_at(const std::vector<std::uint64_t>& strata_bytes, double keep) {
  if (strata_bytes.size() <= 2) return strata_bytes.back();
  const auto stratum = std::ranges::lower_bound(kKeepGrid, keep) - kKeepGrid.begin();
  return strata_bytes[static_cast<std::size_t>(std::min<std::ptrdiff_t>(stratum, kKeepGrid.size() - 1)) + 1];
}

}  // namespace

Result<Candidates> Candidates::create(const std::vector<std::string>& methods, const PageShape& shape,
                                      std::span<const std::unique_ptr<Tier>> tiers, const CostModel& costs,
                                      QualityOf quality, const CachegenTables* tables) {
  Candidates candidates;
  candidates.methods_.push_back(Method::full());
  for (const std::string& text : methods) {
    SHALE_ASSIGN(Method method, Method::parse(text));
    SHALE_TRY(method.check());
    candidates.know(method);
  }
  candidates.shape_ = shape;
  candidates.tiers_ = tiers;
  candidates.costs_ = &costs;
  candidates.quality_ = std::move(quality);
  candidates.tables_ = tables;
  return candidates;
}

void Candidates::know(const Method& method) {
  for (const Method& each : {method, method.coarsened()}) {
    if (std::ranges::find(methods_, each) == methods_.end()) methods_.push_back(each);
  }
}

const std::vector<std::uint64_t>& Candidates::strata_bytes(const Method& method, std::uint32_t tokens) const {
  std::vector<std::uint64_t>& cumulative = sizes_[{method.text(), tokens}];
  if (cumulative.empty()) {
    cumulative.push_back(0);
    const auto layout = ObjectLayout::make(shape_, method, tokens, tables_);
    const std::uint32_t strata = layout ? layout->strata() : 0;
    for (std::uint32_t s = 0; s < strata; ++s) cumulative.push_back(cumulative.back() + layout->stratum_bytes(s));
  }
  return cumulative;
}

std::uint64_t Candidates::bytes(const Method& method, double keep, std::uint32_t tokens) const {
  return bytes_at(strata_bytes(method, tokens), keep);
}

double Candidates::load_s(const Method& method, double keep, std::uint32_t tokens, std::uint32_t tier) const {
  const std::uint64_t size = bytes(method, keep, tokens);
  const TierSpeed speed = tiers_[tier]->speed();
  return speed.latency_s + static_cast<double>(size) / speed.read_bytes_per_s +
         costs_->decode_s(method.quantizer, size);
}

double Candidates::recompute_s(const Entry& entry) const {
  if (entry.recompute_s > 0) return entry.recompute_s;
  return costs_->prefill_s(static_cast<std::uint32_t>(entry.tokens.size()), entry.first_position);
}

std::vector<Candidates::Form> Candidates::forms(const Entry& entry, const Configuration& current,
                                                bool has_source) const {
  const auto tokens = static_cast<std::uint32_t>(entry.tokens.size());
  std::vector<Form> forms;
  const auto consider = [&](std::uint32_t index, const std::vector<std::uint64_t>& sizes, double keep) {
    const Method& method = methods_[index];
    const bool reachable = has_source || std::ranges::any_of(entry.objects, [&](const StoredObject& object) {
                             return object.serves(method, keep).has_value();
                           });
    const bool is_current = current.tier != kDropped && current.method == method && current.keep == keep;
    if (!reachable && !is_current) return;
    const std::optional<double> quality = method.is_full() ? 1.0 : quality_(entry.key, method, keep);
    if (!quality && !is_current) return;
    const std::uint64_t size = bytes_at(sizes, keep);
    forms.push_back({.method = index,
                     .keep = keep,
                     .offered = reachable && quality,
                     .current = is_current,
                     .quality = quality.value_or(0),
                     .bytes = size,
                     .decode_s = costs_->decode_s(method.quantizer, size)});
  };
  for (std::uint32_t method = 0; method < methods_.size(); ++method) {
    const std::vector<std::uint64_t>& sizes = strata_bytes(methods_[method], tokens);
    if (methods_[method].scorer.empty()) {
      consider(method, sizes, 1.0);
    } else {
      for (const double keep : kKeepGrid) consider(method, sizes, keep);
    }
  }
  return forms;
}

PlacedEntry Candidates::offer(const Entry& entry, const Configuration& current, bool has_source, double now_s) const {
  PlacedEntry placed{
      .id = entry.key.low,
      .frequency = entry.frequency.value(now_s),
      .last_access_s = entry.frequency.last_access_s(),
      .accesses = entry.frequency.count(),
      .candidates = {},
      .current = kDropped,
      .pinned = entry.pins > 0,
      .full_copy_bytes = has_source ? bytes(Method::full(), 1, static_cast<std::uint32_t>(entry.tokens.size())) : 0};

  const double recompute_s = this->recompute_s(entry);
  const std::vector<Form> forms = this->forms(entry, current, has_source);
  // The lowest tier keeps entries uncompressed where it is not bounded; where it is, pressing there is what makes room.
  const auto lowest = static_cast<std::uint32_t>(tiers_.size() - 1);
  const bool press_lowest = tiers_[lowest]->capacity_bytes() != kUnlimited;
  placed.candidates.reserve(forms.size() * tiers_.size() + 1);
  for (std::uint32_t tier = 0; tier < tiers_.size(); ++tier) {
    const TierSpeed speed = tiers_[tier]->speed();
    for (const Form& form : forms) {
      // A request may have forced a configuration that nobody measured: it stays where it is, worth nothing.
      const bool is_current = form.current && current.tier == tier;
      if (!form.offered && !is_current) continue;
      const bool stays_there = current.tier == tier && current.method == methods_[form.method];
      if (tier == lowest && !press_lowest && form.method != kFullMethod && !stays_there) continue;
      if (is_current) placed.current = static_cast<std::uint32_t>(placed.candidates.size());
      const double load_s = speed.latency_s + static_cast<double>(form.bytes) / speed.read_bytes_per_s + form.decode_s;
      placed.candidates.push_back({.method = form.method,
                                   .keep = form.keep,
                                   .tier = tier,
                                   .bytes = form.bytes,
                                   .quality = form.quality,
                                   .ttft_s = std::min(load_s, recompute_s)});
    }
  }
  if (entry.children == 0 || current.tier == kDropped) {
    if (current.tier == kDropped) placed.current = static_cast<std::uint32_t>(placed.candidates.size());
    placed.candidates.push_back(
        {.method = kFullMethod, .keep = 1, .tier = kDropped, .bytes = 0, .quality = 1, .ttft_s = recompute_s});
  }
  assert(placed.current < placed.candidates.size());
  return placed;
}

Configuration Candidates::configuration(const Candidate& candidate) const {
  return {methods_[candidate.method], candidate.keep, candidate.tier};
}

}  // namespace shale
