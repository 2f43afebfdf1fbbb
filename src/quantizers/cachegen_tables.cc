#include "quantizers/cachegen_tables.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <numeric>

#include "core/model_table.h"
#include "quantizers/cachegen.h"

namespace shale {
namespace {

constexpr ModelTableKind kKind{"SHALEG1\n", "table of cachegen"};
constexpr std::uint32_t kMost = 1 << 12;  // layers, heads and channels of any model

// A channel in the file.
struct Row {
  float width;
  std::uint16_t frequencies[kCachegenSymbols];
};
static_assert(sizeof(Row) == 68);

// Frequencies in proportion to counts, none of them zero.
void set_starts(std::span<const double> counts, CachegenTables::Channel& channel) {
  const double all = std::accumulate(counts.begin(), counts.end(), 0.0);
  constexpr double kShared = kCachegenTotal - kCachegenSymbols;
  double before = 0;
  for (std::uint32_t s = 0; s <= kCachegenSymbols; ++s) {
    channel.starts[s] =
        static_cast<std::uint16_t>(s + std::lround(all > 0 ? kShared * before / all : kShared * s / kCachegenSymbols));
    if (s < kCachegenSymbols) before += counts[s];
  }
}

double entropy_bits(const CachegenTables::Channel& channel) {
  double bits = 0;
  for (std::uint32_t s = 0; s < kCachegenSymbols; ++s) {
    const double share = (channel.starts[s + 1] - channel.starts[s]) / static_cast<double>(kCachegenTotal);
    bits -= share * (std::log2(share) - (s == 0 ? 8 : 0));
  }
  return bits;
}

}  // namespace

CachegenChannels CachegenTables::generic(std::uint32_t head_dim) {
  static const std::vector<Channel> channels = [] {
    constexpr std::size_t kMost = 1 << 12;
    std::vector<double> counts(kCachegenSymbols, 1);
    for (std::uint32_t s = 1; s < kCachegenSymbols; ++s)
      counts[s] = std::exp2(-std::abs(static_cast<double>(s) - 16) / 2);
    Channel channel;
    set_starts(counts, channel);
    return std::vector(kMost, channel);
  }();
  assert(head_dim <= channels.size());
  const auto first = std::span(channels).first(head_dim);
  return {first, first};
}

Status CachegenTables::check_shape(std::uint32_t layers, std::uint32_t kv_heads, std::uint32_t head_dim) const {
  if (layers == layers_ && kv_heads == kv_heads_ && head_dim == head_dim_) return {};
  return fail(ErrorCode::kMismatch,
              "the tables are of {} layers with {} KV heads of {} channels; {}, {} and {} are wanted", layers_,
              kv_heads_, head_dim_, layers, kv_heads, head_dim);
}

void CachegenTables::finish() {
  Hasher hasher;
  double bits = 0;
  for (const Channel& channel : channels_) {
    hasher.add(std::as_bytes(std::span(&channel.width, 1))).add(std::as_bytes(std::span(channel.starts)));
    bits += entropy_bits(channel) / static_cast<double>(channels_.size());
  }
  hash_ = hasher.finish();
  constexpr double kAnchors = 3.0 / kBlockTokens;
  bits_ = kAnchors * (8 + 16.0 / head_dim_) + (1 - kAnchors) * bits + 1.0 / head_dim_;
}

std::vector<std::byte> CachegenTables::serialize(const Hash128& model) const {
  std::vector<Row> rows;
  for (const Channel& channel : channels_) {
    Row& row = rows.emplace_back(Row{channel.width, {}});
    for (std::uint32_t s = 0; s < kCachegenSymbols; ++s) {
      row.frequencies[s] = static_cast<std::uint16_t>(channel.starts[s + 1] - channel.starts[s]);
    }
  }
  return serialize_model_table(
      kKind, model, {.dimensions = {layers_, kv_heads_, head_dim_}, .numbers = std::as_bytes(std::span(rows))});
}

Result<CachegenTables> CachegenTables::parse(std::span<const std::byte> bytes, const Hash128& model) {
  SHALE_ASSIGN(const ModelTable table, parse_model_table(kKind, bytes, model, kMost, 2 * sizeof(Row)));
  const auto [layers, kv_heads, head_dim] = table.dimensions;
  if (table.numbers.empty()) return fail(ErrorCode::kCorrupt, "the table of cachegen is empty");
  CachegenTables tables(layers, kv_heads, head_dim);
  const std::byte* from = table.numbers.data();
  for (Channel& channel : tables.channels_) {
    Row row;
    std::memcpy(&row, from, sizeof(row));
    from += sizeof(row);
    std::uint32_t start = 0;
    bool sound = std::isfinite(row.width) && row.width > 0;
    for (std::uint32_t s = 0; s < kCachegenSymbols; ++s) {
      sound &= row.frequencies[s] >= 1 && start < kCachegenTotal;
      channel.starts[s] = static_cast<std::uint16_t>(start);
      start += row.frequencies[s];
    }
    if (!sound || start != kCachegenTotal) {
      return fail(ErrorCode::kCorrupt, "the table of cachegen holds a channel that nothing can be coded by");
    }
    channel.width = row.width;
    channel.starts.back() = kCachegenTotal;
  }
  tables.finish();
  return tables;
}

CachegenCalibrator::CachegenCalibrator(std::uint32_t layers, std::uint32_t kv_heads, std::uint32_t head_dim,
                                       const CachegenWidths& widths)
    : widths_(widths), tables_(layers, kv_heads, head_dim), sums_(tables_.channels_.size()) {}

void CachegenCalibrator::add_spread(std::uint32_t index, const KvRows<const Half>& rows) {
  const std::size_t d = rows.head_dim;
  Sums* sums = &sums_[2 * index * d];
  const auto add = [](Sums& to, Half x, Half anchor) {
    const double difference = double{to_float(x)} - double{to_float(anchor)};
    if (!std::isfinite(difference)) return;
    to.squares += difference * difference;
    ++to.tokens;
  };
  std::uint32_t anchor = 0;
  for (std::uint32_t t = 0; t < rows.tokens; ++t) {
    if (begins_group(t % kBlockTokens)) {
      anchor = t;
      continue;
    }
    for (std::size_t c = 0; c < d; ++c) {
      add(sums[c], rows.keys[c * rows.key_stride + t], rows.keys[c * rows.key_stride + anchor]);
      add(sums[d + c], rows.values[t * d + c], rows.values[anchor * d + c]);
    }
  }
}

// A channel that never moved has bins of a hundredth of its head's usual.
void CachegenCalibrator::set_widths() {
  const std::size_t d = tables_.head_dim_, per_layer = sums_.size() / tables_.layers_;
  for (std::size_t first = 0; first < sums_.size(); first += d) {
    const float width = widths_[first / per_layer * widths_.size() / tables_.layers_];
    const auto deviation = [](const Sums& sums) {
      return sums.tokens == 0 ? 0 : std::sqrt(sums.squares / static_cast<double>(sums.tokens));
    };
    double usual = 0;
    for (std::size_t c = first; c < first + d; ++c) usual += deviation(sums_[c]) / static_cast<double>(d);
    for (std::size_t c = first; c < first + d; ++c) {
      const double wide = std::max({deviation(sums_[c]), usual / 100, 0x1p-20});
      tables_.channels_[c].width = width * static_cast<float>(wide);
      set_starts(std::vector<double>(kCachegenSymbols, 1), tables_.channels_[c]);
    }
  }
}

void CachegenCalibrator::add_codes(std::uint32_t index, const KvRows<const Half>& rows) {
  const auto quantizer = make_quantizer("cachegen", &tables_).value();
  std::vector<std::byte> codes(quantizer->base_bytes(rows.tokens, rows.head_dim));
  quantizer->of_head(index).encode(rows, {codes});
  const std::byte* block = codes.data();
  for (std::uint32_t first = 0; first < rows.tokens; first += kBlockTokens) {
    const std::uint32_t count = std::min(kBlockTokens, rows.tokens - first);
    for (const bool values : {false, true}) {
      const auto side = cachegen_side(block, count, rows.head_dim, values);
      Sums* sums = &sums_[(2 * std::size_t{index} + values) * rows.head_dim];
      for (std::uint32_t t = 0; t < count; ++t) {
        if (side.by_itself(t)) continue;
        for (std::uint32_t c = 0; c < rows.head_dim; ++c) {
          ++sums[c].counts[cachegen_symbol(static_cast<std::int8_t>(side.code(t, c)))];
        }
      }
    }
    block += cachegen_block_bytes(count, rows.head_dim);
  }
}

CachegenTables CachegenCalibrator::finish() const {
  CachegenTables tables = tables_;
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    std::vector<double> counts(sums_[i].counts.begin(), sums_[i].counts.end());
    set_starts(counts, tables.channels_[i]);
  }
  tables.finish();
  return tables;
}

}  // namespace shale
