// cachegen (Liu et al. 2023, arXiv 2310.07240): neighbouring tokens resemble each other, so each is coded as its
// difference to an anchor, the first of a group of ten, which has 8 bits; in bins that are wider in later layers, where
// errors hurt less; and packed by how often each code comes up in its layer and channel, which is calibrated once a
// checkpoint. Ours: a token that strays beyond all bins is coded by itself, so that no input is far from what it
// decodes to; anchors have a scale of their own and are not packed; codes of one head share four coder states.
#include "quantizers/cachegen.h"

#include <algorithm>
#include <cassert>
#include <ranges>
#include <vector>

#include "quantizers/registry.h"

namespace shale {
namespace {

using Channels = std::span<const CachegenTables::Channel>;

// Calls visit(side, token of the block, number of the token among all, keys' before values') for every token of all
// blocks, keys before values in each.
template <class Byte, class Visit>
void for_each_token(Byte* codes, std::uint32_t tokens, std::uint32_t head_dim, const Visit& visit) {
  for (std::uint32_t first = 0; first < tokens; first += kBlockTokens) {
    const std::uint32_t count = std::min(kBlockTokens, tokens - first);
    for (const bool values : {false, true}) {
      const CachegenSide<Byte> side = cachegen_side(codes, count, head_dim, values);
      for (std::uint32_t t = 0; t < count; ++t) visit(side, t, first + t + (values ? tokens : 0));
    }
    codes += cachegen_block_bytes(count, head_dim);
  }
}

// A token that is coded by differences.
struct Packed {
  CachegenSide<const std::byte> side;
  std::uint32_t token;
  Channels channels;
};

class Cachegen final : public Quantizer {
 public:
  // By one head of the tables.
  Cachegen(const CachegenTables& tables, std::uint32_t head) : tables_(&tables), head_(head) {}
  // By the first head's tables, with all others beside it; null: for any head, by generic tables.
  explicit Cachegen(const CachegenTables* tables) : tables_(tables), head_(0) {
    if (!tables) return;
    for (std::uint32_t head = 0; head < tables->layers() * tables->kv_heads(); ++head)
      heads_.emplace_back(*tables, head);
  }

  std::string_view name() const override { return "cachegen"; }
  double bits() const override { return tables_ ? tables_->bits() : 4; }
  bool needs_tables() const override { return tables_ == nullptr; }
  const Quantizer& of_head(std::uint32_t index) const override {
    assert(heads_.empty() || index < heads_.size());
    return heads_.empty() ? *this : heads_[index];
  }

  bool packs() const override { return true; }
  Hash128 tables() const override { return tables_ ? tables_->hash() : Hash128{}; }
  std::size_t packed_bytes_max(std::uint32_t tokens, std::uint32_t head_dim) const override;
  void pack(std::span<const std::byte> codes, std::uint32_t tokens, std::uint32_t head_dim,
            std::vector<std::byte>& out) const override;
  bool unpack(std::span<const std::byte> packed, std::uint32_t tokens, std::uint32_t head_dim,
              std::span<std::byte> codes) const override;

 private:
  Planes planes(std::uint32_t tokens, std::uint32_t head_dim) const override {
    const std::size_t scales = tokens * sizeof(Half);
    return {Plane{1, scales}, Plane{1, scales}, Plane{head_dim, tokens}, Plane{tokens, head_dim}};
  }
  void encode_block(const KvRows<const Half>& rows, std::byte* out, std::byte*, const Ahead& ahead) const override {
    encode_cachegen_block(rows, channels(rows.head_dim), out, ahead);
  }
  void decode_block(const std::byte* in, const std::byte*, const KvRows<Half>& rows) const override {
    decode_cachegen_block(in, channels(rows.head_dim), rows);
  }

  // This head's channels.
  CachegenChannels channels(std::uint32_t head_dim) const {
    const CachegenChannels channels = tables_ ? tables_->head(head_) : CachegenTables::generic(head_dim);
    assert(channels.keys.size() == head_dim);
    return channels;
  }

  const CachegenTables* tables_;  // null: generic ones
  std::uint32_t head_;
  std::vector<Cachegen> heads_;
};

std::size_t flag_bytes(std::uint32_t tokens) { return (2 * std::size_t{tokens} + 7) / 8; }

std::size_t Cachegen::packed_bytes_max(std::uint32_t tokens, std::uint32_t head_dim) const {
  const std::size_t coded = (kRansBits + 8) * 2 * std::size_t{head_dim} * tokens / 8;
  return flag_bytes(tokens) + 2 * sizeof(Half) * tokens + coded + kRansStates * sizeof(std::uint32_t) + 2 * kRansStates;
}

void Cachegen::pack(std::span<const std::byte> codes, std::uint32_t tokens, std::uint32_t head_dim,
                    std::vector<std::byte>& out) const {
  assert(codes.size() == base_bytes(tokens, head_dim));
  const CachegenChannels of = channels(head_dim);
  std::vector<std::byte> flags(flag_bytes(tokens)), scales, anchors;
  std::vector<Packed> differences;
  for_each_token(codes.data(), tokens, head_dim, [&](const auto& side, std::uint32_t t, std::uint32_t number) {
    if (!side.by_itself(t)) return differences.push_back({side, t, number < tokens ? of.keys : of.values});
    flags[number / 8] |= std::byte{1} << number % 8;
    scales.insert(scales.end(), side.scales + t * sizeof(Half), side.scales + (t + 1) * sizeof(Half));
    for (std::uint32_t c = 0; c < head_dim; ++c) anchors.push_back(side.code(t, c));
  });
  for (const auto* part : {&flags, &scales, &anchors}) out.insert(out.end(), part->begin(), part->end());
  RansWriter writer;
  for (const Packed& each : std::views::reverse(differences)) {
    write_cachegen_differences(writer, each.channels, each.side, each.token);
  }
  writer.finish(out);
}

bool Cachegen::unpack(std::span<const std::byte> packed, std::uint32_t tokens, std::uint32_t head_dim,
                      std::span<std::byte> codes) const {
  assert(codes.size() == base_bytes(tokens, head_dim));
  const CachegenChannels of = channels(head_dim);
  if (packed.size() < flag_bytes(tokens)) return false;
  const std::span<const std::byte> flags = packed.first(flag_bytes(tokens));
  const auto by_itself = [&](std::uint32_t number) {
    return (flags[number / 8] >> number % 8 & std::byte{1}) != std::byte{0};
  };
  std::size_t count = 0;
  for (std::uint32_t number = 0; number < 2 * tokens; ++number) count += by_itself(number);
  if (packed.size() - flags.size() < count * (sizeof(Half) + head_dim)) return false;
  const std::byte* scale = packed.data() + flags.size();
  const std::byte* anchor = scale + count * sizeof(Half);
  RansReader reader(packed.subspan(flags.size() + count * (sizeof(Half) + head_dim)));
  for_each_token(codes.data(), tokens, head_dim, [&](const auto& side, std::uint32_t t, std::uint32_t number) {
    if (by_itself(number)) {
      std::memcpy(side.scales + t * sizeof(Half), scale, sizeof(Half));
      scale += sizeof(Half);
      for (std::uint32_t c = 0; c < head_dim; ++c) side.code(t, c) = *anchor++;
      return;
    }
    std::memset(side.scales + t * sizeof(Half), 0, sizeof(Half));
    read_cachegen_differences(reader, number < tokens ? of.keys : of.values, side, t);
  });
  return reader.ended_soundly();
}

}  // namespace

std::unique_ptr<Quantizer> make_cachegen(const CachegenTables* tables) { return std::make_unique<Cachegen>(tables); }

}  // namespace shale
