#include "metadata/quality_table.h"

#include <algorithm>
#include <cmath>

namespace shale {

void QualityTable::Sums::add(double quality, double sign) {
  count += sign;
  sum += sign * quality;
  squares += sign * quality * quality;
}

void QualityTable::Sums::add(const Sums& other) {
  count += other.count;
  sum += other.sum;
  squares += other.squares;
}

double QualityTable::Sums::variance() const {
  return count < 2 ? 0 : std::max(0.0, (squares - sum * sum / count) / (count - 1));
}

QualityTable::Key QualityTable::key_of(const Method& method, double keep) {
  return {method.text(), std::llround(keep * 1e6)};
}

QualityTable::Place QualityTable::place(const Hash128& prefix) const {
  const Described* known = described_.find(prefix);
  return {shipped_.contains(prefix), known ? static_cast<std::size_t>(known->kind) : kContextKinds};
}

void QualityTable::describe(const Hash128& prefix, ContextKind kind, std::uint32_t tokens) {
  const Place before = place(prefix);
  Described& described = described_.touch(prefix);
  described.kind = kind;
  if (tokens > 0) described.tokens = tokens;
  move_measured(prefix, before, place(prefix));
  if (described_.size() <= kPrefixesMax) return;
  const Hash128& oldest = described_.oldest().first;
  move_measured(oldest, place(oldest), {.shipped = shipped_.contains(oldest)});
  described_.erase_oldest();
}

void QualityTable::move_measured(const Hash128& prefix, const Place& from, const Place& to) {
  if (from == to) return;
  for (auto& [key, measured] : measured_) {
    const auto of_prefix = measured.of_prefix.find(prefix);
    if (of_prefix == measured.of_prefix.end()) continue;
    from.in(measured).add(of_prefix->second.quality, -1);
    to.in(measured).add(of_prefix->second.quality, 1);
  }
}

void QualityTable::note_shipped(const Hash128& prefix) {
  const Place before = place(prefix);
  shipped_.insert(prefix);
  move_measured(prefix, before, place(prefix));
}

std::optional<ContextKind> QualityTable::kind(const Hash128& prefix) const {
  const Described* known = described_.find(prefix);
  return known ? std::optional(known->kind) : std::nullopt;
}

void QualityTable::bound_error(const Hash128& prefix, const Method& method, double error) {
  errors_.touch(prefix)[method.text()] = error;
  if (errors_.size() > kPrefixesMax) errors_.erase_oldest();
}

void QualityTable::inherit(const Hash128& prefix, double quality) {
  inherited_.touch(prefix) = quality;
  if (inherited_.size() > kPrefixesMax) inherited_.erase_oldest();
}

std::optional<double> QualityTable::inherited(const Hash128& prefix) const {
  const double* known = inherited_.find(prefix);
  return known ? std::optional(*known) : std::nullopt;
}

void QualityTable::record(const Hash128& prefix, const Method& method, double keep, double quality,
                          std::uint32_t questions) {
  Measured& measured = measured_[key_of(method, keep)];
  const auto [own, is_new] = measured.of_prefix.try_emplace(prefix);
  Sums& sums = place(prefix).in(measured);
  if (!is_new) sums.add(own->second.quality, -1);
  own->second = {quality, std::max(1.0, static_cast<double>(questions))};
  sums.add(quality, 1);
}

void QualityTable::forget(const Hash128& prefix) {
  for (auto at = measured_.begin(); at != measured_.end();) {
    Measured& measured = at->second;
    if (const auto own = measured.of_prefix.find(prefix); own != measured.of_prefix.end()) {
      place(prefix).in(measured).add(own->second.quality, -1);
      measured.of_prefix.erase(own);
    }
    at = measured.of_prefix.empty() ? measured_.erase(at) : std::next(at);
  }
  described_.erase(prefix);
  inherited_.erase(prefix);
  errors_.erase(prefix);
}

QualityTable::Prior QualityTable::drawn(const Sums& sums, const Prior& toward) {
  const double prefixes = sums.count + kPriorPrefixes;
  return {.mean = (sums.sum + kPriorPrefixes * toward.mean) / prefixes,
          .variance = (sums.count * sums.variance() + kPriorPrefixes * toward.variance) / prefixes,
          .prefixes = toward.prefixes};
}

QualityTable::Prior QualityTable::prior_of(const Measured& measured, const Hash128& prefix) const {
  const Place place = this->place(prefix);
  Prior prior;
  auto sources = std::array{measured.shipped, measured.own};
  if (const auto of_prefix = measured.of_prefix.find(prefix); of_prefix != measured.of_prefix.end()) {
    sources[!place.shipped][place.kind].add(of_prefix->second.quality, -1);
  }
  for (const ByKind& by_kind : sources) {
    Sums all;
    for (const Sums& sums : by_kind) all.add(sums);
    const auto prefixes = static_cast<std::uint32_t>(std::llround(all.count));
    if (prefixes == 0) continue;
    prior = prior.prefixes == 0 ? Prior{all.mean(), all.variance(), 0} : drawn(all, prior);
    prior.prefixes += prefixes;
  }
  if (place.kind == kContextKinds) return prior;
  for (const ByKind& by_kind : sources) prior = drawn(by_kind[place.kind], prior);
  return prior;
}

std::optional<Quality> QualityTable::near_lossless(const Hash128& prefix, const Method& method) const {
  const auto* of_prefix = errors_.find(prefix);
  if (!of_prefix) return std::nullopt;
  const auto error = of_prefix->find(method.text());
  if (error == of_prefix->end() || !(error->second <= kNearLossless)) return std::nullopt;
  const double quality = 1 - error->second;
  return Quality{quality, quality, error->second, QualitySource::kBound, 0};
}

std::uint32_t QualityTable::questions(const Hash128& prefix, const Method& method) const {
  const std::string text = method.text();
  std::optional<double> least;
  for (auto at = measured_.lower_bound({text, 0}); at != measured_.end() && at->first.first == text; ++at) {
    const auto own = at->second.of_prefix.find(prefix);
    if (own != at->second.of_prefix.end())
      least = std::min(own->second.questions, least.value_or(own->second.questions));
  }
  return static_cast<std::uint32_t>(least.value_or(0));
}

std::optional<Quality> QualityTable::quality_for(const Hash128& prefix, const Method& method, double keep) const {
  if (method.is_full()) return Quality{.quality = 1, .expected = 1};
  const auto at = measured_.find(key_of(method, keep));
  if (at == measured_.end()) return near_lossless(prefix, method);
  const Prior prior = prior_of(at->second, prefix);
  const bool says = prior.prefixes >= kPriorPrefixesMin;
  const auto found = at->second.of_prefix.find(prefix);
  if (found == at->second.of_prefix.end()) {
    const Described* described = described_.find(prefix);
    const bool short_one =
        described && described->tokens > 0 && described->tokens < kPriorTokensMin && !method.scorer.empty();
    if (!says || short_one) return near_lossless(prefix, method);
    return Quality{prior.mean, prior.mean, std::sqrt(prior.variance), QualitySource::kPrior, prior.prefixes};
  }
  const OfPrefix& own = found->second;
  if (prior.prefixes == 0) return Quality{.quality = own.quality, .expected = own.quality};
  const double weight = own.questions / (own.questions + kPriorQuestions);
  return Quality{.quality = own.quality,
                 .expected = weight * own.quality + (1 - weight) * prior.mean,
                 .spread = std::sqrt((1 - weight) * prior.variance)};
}

}  // namespace shale
