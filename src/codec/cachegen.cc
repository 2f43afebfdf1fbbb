// cachegen (Liu et al. 2023, arXiv 2310.07240): neighbouring tokens resemble each other, so each is coded as its
// difference to an anchor, the first of a group of ten, which has 8 bits; in bins that are wider in later layers, where
// errors hurt less; and packed by how often each code comes up in its layer and channel, which is calibrated once a
// checkpoint. Ours: a token that strays beyond all bins is coded by itself, so that no input is far from what it
// decodes to; anchors have a scale of their own and are not packed; codes of one head share four coder states.
#include "codec/cachegen.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <optional>
#include <vector>

#include "codec/cachegen_tables.h"
#include "codec/rans.h"
#include "codec/registry.h"

namespace shale {
namespace {

using Channels = std::span<const CachegenTables::Channel>;

constexpr std::uint32_t kRawBits = 8;  // of a code after an escape
constexpr float kLargestHalf = 65504;

// Never below what it is made of, so that the largest code is 127; never zero.
Half scale_of(std::span<const float> elements) {
  float largest = 0;
  for (const float x : elements) largest = std::max(largest, std::abs(x));
  Half scale = to_half(largest / 127);
  if (to_float(scale) * 127 < largest || scale.bits == 0) ++scale.bits;
  return scale;
}

void code_by_itself(std::span<const float> token, const CachegenSide<std::byte>& to, std::uint32_t t) {
  const Half scale = scale_of(token);
  std::memcpy(to.scales + t * sizeof scale, &scale, sizeof scale);
  const float inverse = 1 / to_float(scale);
  for (std::uint32_t c = 0; c < token.size(); ++c) {
    to.code(t, c) = static_cast<std::byte>(static_cast<std::int8_t>(std::nearbyint(token[c] * inverse)));
  }
}

// False where a difference lies beyond all bins.
bool code_difference(std::span<const float> token, std::span<const float> anchor, Channels channels,
                     const CachegenSide<std::byte>& to, std::uint32_t t) {
  bool within = true;
  for (std::uint32_t c = 0; c < token.size(); ++c) {
    const float bin = std::nearbyint((token[c] - anchor[c]) / channels[c].width);
    within &= std::abs(bin) <= 127;
    to.code(t, c) = static_cast<std::byte>(static_cast<std::int8_t>(std::clamp(bin, -127.0f, 127.0f)));
  }
  std::memset(to.scales + t * sizeof(Half), 0, sizeof(Half));
  return within;
}

// What token t decodes to; `anchor` is that of the group's first token, which this sets.
void decode_token(const CachegenSide<const std::byte>& from, std::uint32_t t, Channels channels,
                  std::span<float> anchor, std::span<float> token) {
  const auto code = [&](std::uint32_t c) { return static_cast<float>(static_cast<std::int8_t>(from.code(t, c))); };
  if (begins_group(t) || from.by_itself(t)) {
    const float scale = to_float(from.scale(t));
    for (std::uint32_t c = 0; c < token.size(); ++c) token[c] = scale * code(c);
    if (begins_group(t)) std::ranges::copy(token, anchor.begin());
  } else {
    for (std::uint32_t c = 0; c < token.size(); ++c) token[c] = anchor[c] + channels[c].width * code(c);
  }
}

Half stored(float x) { return to_half(std::clamp(x, -kLargestHalf, kLargestHalf)); }
float usable(Half x) { return std::isfinite(to_float(x)) ? to_float(x) : 0; }

// get(t, c) is an element.
template <class Get>
void encode_side(std::uint32_t head_dim, Channels channels, const CachegenSide<std::byte>& to, const Get& get) {
  std::vector<float> memory(2 * std::size_t{head_dim});
  const auto token = std::span(memory).first(head_dim), anchor = std::span(memory).last(head_dim);
  for (std::uint32_t t = 0; t < kBlockTokens; ++t) {
    for (std::uint32_t c = 0; c < head_dim; ++c) token[c] = usable(get(t, c));
    if (!begins_group(t) && code_difference(token, anchor, channels, to, t)) continue;
    code_by_itself(token, to, t);
    if (!begins_group(t)) continue;
    decode_token({to.scales, to.codes, to.token_stride, to.channel_stride}, t, channels, anchor, token);
  }
}

template <class Set>
void decode_side(std::uint32_t head_dim, Channels channels, const CachegenSide<const std::byte>& from, const Set& set) {
  std::vector<float> memory(2 * std::size_t{head_dim});
  const auto token = std::span(memory).first(head_dim), anchor = std::span(memory).last(head_dim);
  for (std::uint32_t t = 0; t < kBlockTokens; ++t) {
    decode_token(from, t, channels, anchor, token);
    for (std::uint32_t c = 0; c < head_dim; ++c) set(t, c, stored(token[c]));
  }
}

// Calls visit(side, number of the side's first token among all, token of the block, channels) for every token of all
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

class Cachegen final : public Quantizer {
 public:
  // Of one head of the tables.
  Cachegen(const CachegenTables& tables, std::uint32_t head) : tables_(&tables), head_(head) {}
  // Of the first head, with all others beside it; null: of any, by generic tables.
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
  void encode_block(const KvRows<const Half>& rows, std::byte* out, std::byte*, const Ahead&) const override {
    const std::uint32_t d = rows.head_dim;
    const Model model(*this, d);
    encode_side(d, model.keys, cachegen_side(out, kBlockTokens, d, false),
                [&](std::uint32_t t, std::uint32_t c) { return rows.keys[c * rows.key_stride + t]; });
    encode_side(d, model.values, cachegen_side(out, kBlockTokens, d, true),
                [&](std::uint32_t t, std::uint32_t c) { return rows.values[std::size_t{t} * d + c]; });
  }
  void decode_block(const std::byte* in, const std::byte*, const KvRows<Half>& rows) const override {
    const std::uint32_t d = rows.head_dim;
    const Model model(*this, d);
    decode_side(d, model.keys, cachegen_side(in, kBlockTokens, d, false),
                [&](std::uint32_t t, std::uint32_t c, Half x) { rows.keys[c * rows.key_stride + t] = x; });
    decode_side(d, model.values, cachegen_side(in, kBlockTokens, d, true),
                [&](std::uint32_t t, std::uint32_t c, Half x) { rows.values[std::size_t{t} * d + c] = x; });
  }

  // The channels of this head.
  struct Model {
    Model(const Cachegen& of, std::uint32_t head_dim) {
      if (!of.tables_) generic.emplace(CachegenTables::generic(head_dim));
      const CachegenTables& tables = of.tables_ ? *of.tables_ : *generic;
      keys = tables.keys(of.head_);
      values = tables.values(of.head_);
      assert(keys.size() == head_dim);
    }
    std::optional<CachegenTables> generic;
    Channels keys, values;
  };

  const CachegenTables* tables_;  // null: generic ones
  std::uint32_t head_;
  std::vector<Cachegen> heads_;
};

std::size_t flag_bytes(std::uint32_t tokens) { return (2 * std::size_t{tokens} + 7) / 8; }

std::size_t Cachegen::packed_bytes_max(std::uint32_t tokens, std::uint32_t head_dim) const {
  const std::size_t coded = (kRansBits + kRawBits) * 2 * std::size_t{head_dim} * tokens / 8;
  return flag_bytes(tokens) + 2 * sizeof(Half) * tokens + coded + kRansStates * sizeof(std::uint32_t) + 2 * kRansStates;
}

void Cachegen::pack(std::span<const std::byte> codes, std::uint32_t tokens, std::uint32_t head_dim,
                    std::vector<std::byte>& out) const {
  assert(codes.size() == base_bytes(tokens, head_dim));
  const Model model(*this, head_dim);
  std::vector<std::byte> flags(flag_bytes(tokens)), scales, anchors;
  std::vector<std::pair<const CachegenTables::Channel*, std::int8_t>> differences;
  for_each_token(codes.data(), tokens, head_dim, [&](const auto& side, std::uint32_t t, std::uint32_t number) {
    const Channels channels = number < tokens ? model.keys : model.values;
    const bool by_itself = side.by_itself(t);
    if (by_itself) {
      flags[number / 8] |= std::byte{1} << number % 8;
      scales.insert(scales.end(), side.scales + t * sizeof(Half), side.scales + (t + 1) * sizeof(Half));
    }
    for (std::uint32_t c = 0; c < head_dim; ++c) {
      if (by_itself) {
        anchors.push_back(side.code(t, c));
      } else {
        differences.emplace_back(&channels[c], static_cast<std::int8_t>(side.code(t, c)));
      }
    }
  });
  for (const auto* part : {&flags, &scales, &anchors}) out.insert(out.end(), part->begin(), part->end());
  RansWriter writer;
  for (std::size_t i = differences.size(); i > 0; --i) {
    const auto& [channel, code] = differences[i - 1];
    const std::size_t state = (i - 1) % kRansStates;
    const std::size_t symbol = cachegen_symbol(code);
    if (symbol == kCachegenEscape) {
      constexpr std::uint32_t kEach = 1u << (kRansBits - kRawBits);
      writer.put(state, static_cast<std::uint8_t>(code) * kEach, kEach);
    }
    writer.put(state, channel->starts[symbol], channel->starts[symbol + 1] - channel->starts[symbol]);
  }
  writer.finish(out);
}

bool Cachegen::unpack(std::span<const std::byte> packed, std::uint32_t tokens, std::uint32_t head_dim,
                      std::span<std::byte> codes) const {
  assert(codes.size() == base_bytes(tokens, head_dim));
  const Model model(*this, head_dim);
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
  const auto next = [&](const CachegenTables::Channel& channel, std::size_t state) {
    const std::uint32_t slot = reader.slot(state);
    std::size_t symbol = 0;
    for (std::uint32_t s = 1; s < kCachegenSymbols; ++s) symbol += channel.starts[s] <= slot;
    reader.take(state, channel.starts[symbol], channel.starts[symbol + 1] - channel.starts[symbol]);
    if (symbol != kCachegenEscape) return static_cast<std::byte>(symbol - kCachegenCentre);
    constexpr std::uint32_t kEach = 1u << (kRansBits - kRawBits);
    const std::uint32_t raw = reader.slot(state) / kEach;
    reader.take(state, raw * kEach, kEach);
    return static_cast<std::byte>(raw);
  };
  for_each_token(codes.data(), tokens, head_dim, [&](const auto& side, std::uint32_t t, std::uint32_t number) {
    const Channels channels = number < tokens ? model.keys : model.values;
    if (by_itself(number)) {
      std::memcpy(side.scales + t * sizeof(Half), scale, sizeof(Half));
      scale += sizeof(Half);
      for (std::uint32_t c = 0; c < head_dim; ++c) side.code(t, c) = *anchor++;
      return;
    }
    std::memset(side.scales + t * sizeof(Half), 0, sizeof(Half));
    for (std::uint32_t c = 0; c < head_dim; ++c) side.code(t, c) = next(channels[c], c % kRansStates);
  });
  return reader.ended_soundly();
}

}  // namespace

std::unique_ptr<Quantizer> make_cachegen(const CachegenTables* tables) { return std::make_unique<Cachegen>(tables); }

}  // namespace shale
