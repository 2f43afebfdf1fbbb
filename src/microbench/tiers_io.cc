#include "microbench/tiers_io.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <memory>
#include <random>
#include <utility>

#include "core/quantile.h"
#include "microbench/fio.h"

namespace shale::bench {
namespace {

constexpr std::uint32_t kAlone = 16;  // operations, one after the other, whose median is the latency

// One word of every block, so that comparing costs little beside moving.
void stamp(AlignedBuffer& buffer, std::uint64_t seed) {
  for (std::size_t at = 0; at + sizeof seed <= buffer.size(); at += kIoAlignment) {
    const std::uint64_t word = seed + at;
    std::memcpy(buffer.data() + at, &word, sizeof word);
  }
}

bool stamped(const AlignedBuffer& buffer, std::uint64_t seed) {
  for (std::size_t at = 0; at + sizeof seed <= buffer.size(); at += kIoAlignment) {
    std::uint64_t word = 0;
    std::memcpy(&word, buffer.data() + at, sizeof word);
    if (word != seed + at) return false;
  }
  return true;
}

std::string name_of_rows(const Tier& tier) {
  return tier.emulated().empty() ? tier.name() : fmt::format("{} ({})", tier.name(), tier.emulated());
}

class TierIo {
 public:
  TierIo(Tier& tier, const Clock& clock, std::uint64_t unit_bytes, const TierIoOptions& options)
      : tier_(tier), clock_(clock), unit_bytes_(unit_bytes), beside_(options.beside) {
    blobs_ = static_cast<std::uint32_t>(std::max<std::uint64_t>(options.total_bytes / unit_bytes, kAlone));
    window_ = static_cast<std::uint32_t>(std::max<std::uint64_t>(options.in_flight_bytes / unit_bytes, 1));
    const std::array<std::uint64_t, 2> seed = {static_cast<std::uint64_t>(getpid()), unit_bytes};
    object_ = hash128(std::as_bytes(std::span(seed)));
    for (std::uint32_t i = 0; i < window_; ++i) {
      auto buffer = std::make_shared<AlignedBuffer>(unit_bytes);
      std::memset(buffer->data(), static_cast<int>(i + 1), buffer->size());
      stamp(*buffer, i);
      buffers_.push_back(std::move(buffer));
    }
  }
  ~TierIo() {
    for (std::uint32_t part = 0; part < blobs_; ++part) (void)tier_.remove({object_, part});
  }

  Result<std::vector<TierIoRow>> run() {
    std::vector<std::uint32_t> order(blobs_);
    for (std::uint32_t part = 0; part < blobs_; ++part) order[part] = part;
    std::vector<TierIoRow> rows;
    const auto write = [this](std::uint32_t part) { return tier_.write({object_, part}, buffers_[part % window_]); };
    const auto wait = [](std::uint32_t, TierWrite& operation) { return operation.wait(); };
    const auto read = [this](std::uint32_t part) { return tier_.read({object_, part}); };
    const auto take = [this](std::uint32_t part, TierRead& operation) { return check(part, operation.take()); };

    SHALE_ASSIGN(const double write_alone_s, alone(write, wait));
    for (std::uint32_t part = 0; part < kAlone; ++part) SHALE_TRY(tier_.remove({object_, part}));
    SHALE_ASSIGN(const double write_s, together(order, write, wait));
    rows.push_back(row("write", write_s, write_alone_s));
    SHALE_ASSIGN(const double read_alone_s, alone(read, take));
    SHALE_ASSIGN(const double read_s, together(order, read, take));
    rows.push_back(row("read", read_s, read_alone_s));
    if (beside_) {
      std::vector<BlobId> blobs;
      for (const std::uint32_t part : order) blobs.push_back({object_, part});
      SHALE_ASSIGN(auto others, beside_(blobs, unit_bytes_));
      for (TierIoRow& other : others) other.beside = name_of_rows(tier_);
      std::ranges::move(others, std::back_inserter(rows));
    }
    std::shuffle(order.begin(), order.end(), std::mt19937(1));
    SHALE_ASSIGN(const double random_s, together(order, read, take));
    rows.push_back(row("random read", random_s, read_alone_s));
    return rows;
  }

 private:
  Status check(std::uint32_t part, const Result<BlobBytes>& read) const {
    if (!read) return std::unexpected(read.error());
    if ((*read)->size() == unit_bytes_ && stamped(**read, part % window_)) return {};
    return fail(ErrorCode::kCorrupt, "{} came back from {} different", to_string(BlobId{object_, part}), tier_.name());
  }

  // Median seconds of one operation.
  Result<double> alone(const auto& start, const auto& finish) {
    std::vector<double> seconds;
    for (std::uint32_t part = 0; part < kAlone; ++part) {
      const double start_s = clock_.now_s();
      SHALE_TRY(finish(part, *start(part)));
      seconds.push_back(clock_.now_s() - start_s);
    }
    return quantile(std::move(seconds), 0.5);
  }

  // Seconds of all, a window of them in flight.
  Result<double> together(const std::vector<std::uint32_t>& order, const auto& start, const auto& finish) {
    const double start_s = clock_.now_s();
    std::vector<decltype(start(0))> in_flight(window_);
    for (std::size_t i = 0; i < order.size() + window_; ++i) {
      auto& slot = in_flight[i % window_];
      if (i >= window_ && i - window_ < order.size()) SHALE_TRY(finish(order[i - window_], *slot));
      slot = i < order.size() ? start(order[i]) : nullptr;
    }
    return clock_.now_s() - start_s;
  }

  TierIoRow row(std::string operation, double seconds, double latency_s) const {
    return {name_of_rows(tier_), unit_bytes_, std::move(operation), static_cast<double>(blobs_ * unit_bytes_) / seconds,
            latency_s};
  }

  Tier& tier_;
  const Clock& clock_;
  const std::uint64_t unit_bytes_;
  const decltype(TierIoOptions::beside)& beside_;
  std::uint32_t blobs_ = 0;
  std::uint32_t window_ = 0;
  Hash128 object_;
  std::vector<BlobBytes> buffers_;
};

// The three operations of one unit, fio's way.
Result<std::vector<TierIoRow>> fio_round(const std::filesystem::path& folder, std::uint64_t unit,
                                         const TierIoOptions& options) {
  const std::filesystem::path file = folder / fmt::format("fio-{}", getpid());
  const std::unique_ptr<const std::filesystem::path, void (*)(const std::filesystem::path*)> cleanup(
      &file, [](const std::filesystem::path* path) { unlink(path->c_str()); });
  const std::uint64_t total = std::max(options.total_bytes / unit, std::uint64_t{kAlone}) * unit;
  const std::uint64_t asked = std::max<std::uint64_t>(options.in_flight_bytes / unit, 1);
  std::vector<TierIoRow> rows;
  for (const auto& [mode, operation] : {std::pair{"write", "write"}, {"read", "read"}, {"randread", "random read"}}) {
    const bool writes = std::string_view(mode) == "write";
    SHALE_ASSIGN(const FioMetrics together, run_fio(file, writes ? like_disk_writes(unit, asked, total)
                                                                 : like_disk_reads(mode, unit, asked, total)));
    SHALE_ASSIGN(const FioMetrics alone, run_fio(file, {mode, unit, 1, kAlone * unit}));
    rows.push_back({"fio", unit, operation, together.bytes_per_s, alone.median_s});
  }
  return rows;
}

// Rounds of the same rows, to one.
std::vector<TierIoRow> medians(const std::vector<std::vector<TierIoRow>>& rounds) {
  std::vector<TierIoRow> rows = rounds.front();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::vector<double> bytes_per_s, latency_s;
    for (const auto& round : rounds) {
      bytes_per_s.push_back(round[i].bytes_per_s);
      latency_s.push_back(round[i].latency_s);
    }
    rows[i].bytes_per_s = quantile(std::move(bytes_per_s), 0.5);
    rows[i].latency_s = quantile(std::move(latency_s), 0.5);
  }
  return rows;
}

}  // namespace

Result<std::vector<TierIoRow>> measure_tier_io(Tier& tier, const Clock& clock, const TierIoOptions& options) {
  std::vector<TierIoRow> rows, fio_rows;
  for (const std::uint64_t unit : options.units) {
    std::vector<std::vector<TierIoRow>> rounds, fio_rounds;
    for (int round = 0; round < std::max(options.rounds, 1); ++round) {
      if (!options.fio_folder.empty()) {
        SHALE_ASSIGN(auto measured, fio_round(options.fio_folder, unit, options));
        for (TierIoRow& row : measured) row.beside = name_of_rows(tier);
        fio_rounds.push_back(std::move(measured));
      }
      SHALE_ASSIGN(auto measured, TierIo(tier, clock, unit, options).run());
      rounds.push_back(std::move(measured));
    }
    std::ranges::move(medians(rounds), std::back_inserter(rows));
    if (!fio_rounds.empty()) std::ranges::move(medians(fio_rounds), std::back_inserter(fio_rows));
  }
  std::ranges::move(fio_rows, std::back_inserter(rows));
  return rows;
}

}  // namespace shale::bench
