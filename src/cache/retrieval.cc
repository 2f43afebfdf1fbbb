#include "cache/retrieval.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace shale {

Observations StoredObservations::take() { return read_ && read_->ready() ? wait() : Observations{}; }

Observations StoredObservations::wait() {
  if (!read_) return {};
  return read_observations(std::exchange(read_, nullptr)->take(), *manifest_, *stats_);
}

Status Retrieval::decode(Load& load, std::uint32_t chunk, Executor& executor) {
  const Manifest& manifest = *load.object.manifest;
  const auto decoded = [&]() -> Status {
    SHALE_ASSIGN(const BlobBytes bytes, std::exchange(load.reads[chunk], nullptr)->take());
    const double start_s = clock_->now_s();
    SHALE_TRY(load.decoder.decode(chunk, bytes->bytes(), executor));
    costs_->decoded(load.method.quantizer, bytes->size(), clock_->now_s() - start_s);
    --load.missing[manifest.group_of(manifest.chunks[chunk])];
    return {};
  };
  Status status = decoded();
  if (status) return status;
  failure_ = Failure{manifest.key, load.object.name(), load.object.tier, status.error()};
  return fail_in(fmt::format("entry {} ({})", manifest.key.hex(), manifest.method.text()), std::move(status).error());
}

// By layers over all loads; with `wait` whether or not a chunk has come.
Result<bool> Retrieval::decode_some(Executor& executor, double budget_s, bool wait) {
  const double start_s = clock_ ? clock_->now_s() : 0;
  bool worked = false;
  std::size_t groups = 0;
  for (const Load& load : loads_) groups = std::max(groups, load.missing.size());
  for (std::uint32_t group = 0; group < groups; ++group) {
    for (Load& load : loads_) {
      if (group >= load.missing.size() || load.missing[group] == 0) continue;
      const Manifest& manifest = *load.object.manifest;
      for (const std::uint32_t chunk : load.decoder.chunks()) {
        if (manifest.group_of(manifest.chunks[chunk]) != group || !load.reads[chunk]) continue;
        if (!wait && !load.reads[chunk]->ready()) continue;
        SHALE_TRY(decode(load, chunk, executor));
        worked = true;
        if (clock_->now_s() - start_s >= budget_s) return true;
      }
    }
  }
  return worked;
}

Result<bool> Retrieval::poll(Executor& executor, double budget_s) { return decode_some(executor, budget_s, false); }

bool Retrieval::layer_loaded(std::uint32_t layer) const {
  return std::ranges::all_of(loads_, [layer](const Load& load) {
    const std::vector<ChunkInfo>& chunks = load.object.manifest->chunks;
    const auto chunk = std::ranges::find_if(chunks, [&](const ChunkInfo& each) { return layer < each.end_layer; });
    return load.missing[load.object.manifest->group_of(*chunk)] == 0;
  });
}

bool Retrieval::loaded() const {
  return std::ranges::all_of(loads_, [](const Load& load) {
    return std::ranges::all_of(load.missing, [](std::uint32_t missing) { return missing == 0; });
  });
}

bool Retrieval::late() const {
  if (loads_.empty() || clock_->now_s() - begun_s_ < late_after_s(expected_s_)) return false;
  return std::ranges::any_of(loads_, [](const Load& load) {
    return std::ranges::any_of(load.reads, [](const auto& read) { return read && !read->ready(); });
  });
}

Status Retrieval::ensure_all(Executor& executor) {
  SHALE_TRY(decode_some(executor, std::numeric_limits<double>::infinity(), true));
  return {};
}

}  // namespace shale
