#include "cache/retrieval.h"

#include <algorithm>

namespace shale {

Status Retrieval::load_group(Load& load, std::uint32_t group, Executor& executor) {
  const Manifest& manifest = *load.object.manifest;
  std::uint64_t decoded_bytes = 0;
  double decode_s = 0;
  for (const std::uint32_t chunk : load.decoder.chunks()) {
    if (manifest.group_of(manifest.chunks[chunk]) != group) continue;
    SHALE_ASSIGN(const BlobBytes bytes, load.reads[chunk]->take());
    const double start_s = clock_->now_s();
    SHALE_TRY(load.decoder.decode(chunk, bytes->bytes(), executor));
    decoded_bytes += bytes->size();
    decode_s += clock_->now_s() - start_s;
  }
  costs_->decoded(load.method.quantizer, decoded_bytes, decode_s);
  load.loaded[group] = true;
  return {};
}

Status Retrieval::ensure_layer(std::uint32_t layer, Executor& executor) {
  for (Load& load : loads_) {
    const std::vector<ChunkInfo>& chunks = load.object.manifest->chunks;
    const auto group = static_cast<std::uint32_t>(
        std::ranges::find_if(chunks, [&](const ChunkInfo& chunk) { return layer < chunk.end_layer; }) - chunks.begin());
    if (load.loaded[group]) continue;
    if (Status status = load_group(load, group, executor); !status) {
      const std::string where =
          fmt::format("entry {} ({})", load.object.manifest->key.hex(), load.object.manifest->method.text());
      failure_ = Failure{load.object.manifest->key, load.object.name(), load.object.tier, status.error()};
      return fail_in(where, std::move(status).error());
    }
  }
  return {};
}

Status Retrieval::ensure_all(Executor& executor) {
  for (const Load& load : loads_) {
    const std::uint32_t layers = load.object.manifest->shape.layers;
    for (std::uint32_t layer = 0; layer < layers; ++layer) SHALE_TRY(ensure_layer(layer, executor));
  }
  return {};
}

}  // namespace shale
