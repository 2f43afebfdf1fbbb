#include "codec/extent_decoding.h"

#include "quantizers/stream.h"
#include "quantizers/token_coding.h"

namespace shale {

void ExtentDecoder::State::plan() {
  for (std::uint32_t group = 0; group < layout.groups().size(); ++group) {
    const std::uint32_t first = first_chunks[group];
    if (first == sight.end_chunk) continue;
    for (std::uint32_t tier = 0; tier < sight.tiers; ++tier) {
      for (std::uint32_t plane = 0; plane < layout.planes(tier); ++plane) {
        const std::uint32_t index = layout.blob(tier, plane, group);
        const BlobChunk& begin = manifest.blobs[index].chunks[first];
        const BlobChunk& last = manifest.blobs[index].chunks[sight.end_chunk - 1];
        const std::uint64_t bytes = last.offset + last.bytes - begin.offset;
        if (bytes > 0) ranges.push_back({index, group, first, sight.end_chunk, begin.offset, bytes});
      }
    }
  }
  progress.resize(ranges.size(), Progress::kWanted);
  waiting.resize(ranges.size());
}

std::optional<std::uint32_t> ExtentDecoder::State::partner(std::uint32_t range) const {
  for (std::uint32_t other = 0; other < ranges.size(); ++other) {
    if (blob(ranges[other]).tier == blob(ranges[range]).tier && ranges[other].group == ranges[range].group &&
        other != range) {
      return other;
    }
  }
  return std::nullopt;
}

// Notes the chunks of a range that failed, and why each did; the first of them.
Status ExtentDecoder::State::settle(const ExtentRange& range, const Faults& faults) {
  Status first;
  const std::lock_guard lock(mutex);
  for (std::uint32_t i = 0; i < faults.size(); ++i) {
    if (!faults[i]) continue;
    auto error =
        fail(*faults[i], "chunk {} of an extent, layers {} to {}: {}", range.first_chunk + i, blob(range).first_layer,
             blob(range).end_layer,
             faults[i] == ErrorCode::kMismatch ? "it was packed by other tables than are loaded" : "it is damaged");
    if (first) first = error;
    auto& failure = failures[range.first_chunk + i];
    if (!failure) failure = std::move(error).error();
  }
  return first;
}

void ExtentDecoder::State::copy_layer(const ExtentRange& range, std::uint32_t chunk, std::uint32_t layer,
                                      std::span<const std::byte> bytes) {
  const KvGeometry& geometry = manifest.geometry;
  const std::uint32_t block_tokens = geometry.block_tokens, first = chunk * manifest.chunk_tokens;
  const std::byte* from = bytes.data() + bytes.size() / (blob(range).end_layer - blob(range).first_layer) *
                                             (layer - blob(range).first_layer);
  for (std::uint32_t token = first; token < end_of(chunk); token += block_tokens, from += geometry.block_bytes()) {
    const std::uint32_t count = std::min(block_tokens, end_of(chunk) - token);
    blocks->copy(layer, (token - sight.first_token) / block_tokens, count, from);
  }
  flush_stream();
}

// Copies beside the check of the checksum: what is copied of damaged bytes is nonsense that nobody sees, for the chunk
// fails.
Status ExtentDecoder::State::decode_exact(const ExtentRange& range, std::span<const std::byte> bytes,
                                          Executor& executor) {
  const std::uint32_t layers = blob(range).end_layer - blob(range).first_layer;
  Faults faults(range.end_chunk - range.first_chunk);
  executor.parallel_for(faults.size() * (layers + 1), [&](std::size_t i) {
    const auto number = static_cast<std::uint32_t>(i / (layers + 1)),
               step = static_cast<std::uint32_t>(i % (layers + 1));
    const std::uint32_t chunk = range.first_chunk + number;
    const auto of_chunk = part(range, bytes, chunk);
    if (step == 0) {
      faults[number] = check({&range, bytes}, chunk);
    } else {
      copy_layer(range, chunk, blob(range).first_layer + step - 1, of_chunk);
    }
  });
  return settle(range, faults);
}

void ExtentDecoder::State::decode_section(const CodedSection& section, std::uint32_t tier, std::uint32_t chunk,
                                          const Codes<const std::byte>& codes, HalfBlock& block) const {
  const std::uint32_t layer = section.head / kv_heads(), head = section.head % kv_heads();
  const std::uint32_t first = chunk * manifest.chunk_tokens, end = end_of(chunk);
  const std::uint32_t first_row = rows_between(manifest, section.head, sight.first_token, first, sight.tiers);
  const Quantizer& quantizer = layout.quantizer(tier).of_head(section.head);
  const std::byte* const rows = block.raw();
  if (!layout.ranked()) {
    decode_blocks(quantizer, codes, section.tokens, 0, end - first, block.rows(),
                  [&](std::uint32_t token, std::uint32_t count) {
                    block.convert_to();
                    tokens.copy(layer, head, first_row + token, count, rows, 0);
                  });
    return;
  }
  std::vector<PlacedRun> runs;  // `token` is the number within the section
  std::uint32_t wanted = 0;
  for_each_run(manifest.tiers, section.head, first, end, tier, sight.tiers, [&](const PlacedRun& run) {
    runs.push_back({wanted, first_row + run.row, run.count});
    wanted += run.count;
  });
  auto run = runs.begin();
  decode_blocks(quantizer, codes, section.tokens, 0, wanted, block.rows(),
                [&](std::uint32_t token, std::uint32_t count) {
                  block.convert_to();
                  for (const std::uint32_t last = token + count; token < last;) {
                    const std::uint32_t done = token - run->token, left = run->count - done;
                    const std::uint32_t part = std::min(left, last - token);
                    tokens.copy(layer, head, run->row + done, part, rows, token % kBlockTokens);
                    token += part;
                    if (part == left) ++run;
                  }
                });
}

Status ExtentDecoder::State::decode_lossy(const Source& base, const Source* refinement, const Source* unverified,
                                          Executor& executor) {
  const BlobInfo& info = blob(*base.range);
  const std::uint32_t first_chunk = base.range->first_chunk, pieces = info.end_layer - info.first_layer + 1;
  const auto codes = [&](const Source& source, const CodedSection& section, std::uint32_t chunk) {
    return part(*source.range, source.bytes, chunk).subspan(section.offset, section.bytes);
  };
  Faults faults(base.range->end_chunk - first_chunk);
  executor.parallel_for(faults.size() * pieces, [&](std::size_t i) {
    const auto number = static_cast<std::uint32_t>(i / pieces), piece = static_cast<std::uint32_t>(i % pieces);
    const std::uint32_t chunk = first_chunk + number;
    if (piece == 0) {
      if (unverified) faults[number] = check(*unverified, chunk);
      return;
    }
    HalfBlock block(view.geometry);
    const std::uint32_t first_head = (info.first_layer + piece - 1) * kv_heads();
    for (std::uint32_t head = first_head; head < first_head + kv_heads(); ++head) {
      const CodedSection section = layout.section(info.tier, kBasePlane, chunk, head, info.first_layer);
      Codes<const std::byte> in{codes(base, section, chunk), {}};
      if (refinement) {
        const CodedSection finer = layout.section(info.tier, kRefinementPlane, chunk, head, info.first_layer);
        in.refinement = codes(*refinement, finer, chunk);
      }
      decode_section(section, info.tier, chunk, in, block);
    }
    flush_stream();
  });
  return settle(*base.range, faults);
}

Status ExtentDecoder::State::decode_packed(const Source& source, Executor& executor) {
  const BlobInfo& info = blob(*source.range);
  Faults faults(source.range->end_chunk - source.range->first_chunk);
  for (std::uint32_t number = 0; number < faults.size(); ++number) {
    const std::uint32_t chunk = source.range->first_chunk + number;
    faults[number] = check(source, chunk);
    if (faults[number]) continue;
    const std::vector<CodedSection> sections = layout.sections(info, chunk);
    const auto unpacked = unpack_chunk(layout.quantizer(info.tier), manifest.geometry.head_dim, sections,
                                       part(*source.range, source.bytes, chunk), executor);
    if (!unpacked) {
      faults[number] = unpacked.error().code;
      continue;
    }
    executor.parallel_for(sections.size(), [&](std::size_t i) {
      HalfBlock block(view.geometry);
      decode_section(sections[i], info.tier, chunk,
                     {unpacked->bytes().subspan(sections[i].offset, sections[i].bytes), {}}, block);
      flush_stream();
    });
  }
  return settle(*source.range, faults);
}

// Nothing is decoded before a base and its refinement are both there and sound.
Status ExtentDecoder::State::decode_nested(const Source& source, std::uint32_t partner, Executor& executor) {
  const auto number = static_cast<std::uint32_t>(source.range - ranges.data());
  AlignedBuffer other;
  {
    const std::lock_guard lock(mutex);
    if (progress[partner] == Progress::kSkipped) return {};
    if (progress[partner] == Progress::kWanted || progress[partner] == Progress::kTaken) {
      waiting[number] = AlignedBuffer(source.bytes.size());
      std::ranges::copy(source.bytes, waiting[number].data());
      progress[number] = Progress::kWaiting;
    } else {
      other = std::move(waiting[partner]);
    }
  }
  if (other.empty()) {
    Faults faults(source.range->end_chunk - source.range->first_chunk);
    executor.parallel_for(faults.size(), [&](std::size_t i) {
      faults[i] = check(source, source.range->first_chunk + static_cast<std::uint32_t>(i));
    });
    return settle(*source.range, faults);
  }
  const Source kept{&ranges[partner], other.bytes()};
  const bool is_base = blob(*source.range).plane == kBasePlane;
  return decode_lossy(is_base ? source : kept, is_base ? &kept : &source, &source, executor);
}

}  // namespace shale
