#include "microbench/store_io.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <thread>
#include <utility>

#include "codec/extent.h"
#include "core/half.h"
#include "core/quantile.h"
#include "microbench/fio.h"
#include "store/store.h"
#include "tiers/tiers.h"

namespace shale::bench {
namespace {

constexpr std::uint64_t kPieceBytes = std::uint64_t{1} << 20;  // of a copy with its checksum
constexpr double kMemoryRoom = 1.1;                            // manifests and blobs' borders beside what is encoded

KvGeometry geometry() {
  KvGeometry geometry;
  geometry.layers = 16;
  geometry.kv_heads = 4;
  geometry.head_dim = 64;
  geometry.block_tokens = 16;
  return geometry;
}

// One thread for each number below `threads`; the first error of any.
Status on_threads(unsigned threads, const std::function<Status(unsigned)>& work) {
  std::vector<Status> statuses(threads);
  {
    std::vector<std::jthread> running;
    for (unsigned t = 0; t < threads; ++t) running.emplace_back([&, t] { statuses[t] = work(t); });
  }
  for (Status& status : statuses) SHALE_TRY(std::move(status));
  return {};
}

struct Timed {
  double save_s = 0, load_s = 0, copy_s = 0, fio_read = 0, fio_write = 0;
  std::uint64_t read_unit = 0, write_unit = 0;
  double read_bytes = 0, written_bytes = 0;  // at rest
};

class StoreIo {
 public:
  StoreIo(const StoreIoOptions& options, const Clock& clock)
      : options_(options), clock_(clock), context_bytes_(geometry().bytes(options.context_tokens)) {
    for (std::uint32_t c = 0; c < options_.contexts; ++c) {
      from_.emplace_back(context_bytes_);
      to_.emplace_back(context_bytes_);
      fill(from_.back().bytes(), c);
      std::memset(to_.back().data(), 0, context_bytes_);
      const std::vector<std::int32_t> tokens(options_.context_tokens, static_cast<std::int32_t>(c));
      keys_.push_back(block_keys("bench", tokens, geometry().block_tokens));
      earlier_[0].push_back(block_keys("first", tokens, geometry().block_tokens));
      earlier_[1].push_back(block_keys("second", tokens, geometry().block_tokens));
    }
  }

  ~StoreIo() { remove_folder(); }

  Result<std::vector<StoreIoRow>> run(bool disk) {
    std::vector<StoreIoRow> rows;
    for (const std::string& method : options_.methods) {
      for (const unsigned threads : options_.threads) {
        std::vector<Timed> rounds;
        for (int round = 0; round < std::max(options_.rounds, 1); ++round) {
          SHALE_ASSIGN(rounds.emplace_back(), measure(disk, method, threads));
        }
        report(disk, method, threads, rounds, rows);
      }
    }
    return rows;
  }

 private:
  using ContextKeys = std::vector<std::vector<BlockKey>>;

  std::filesystem::path folder() const { return options_.folder / "store"; }
  void remove_folder() const {
    std::error_code ignored;
    std::filesystem::remove_all(folder(), ignored);
  }

  static void fill(std::span<std::byte> bytes, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<Half> some(std::size_t{1} << 20);
    for (Half& value : some) value = to_half(normal(random));
    const auto pattern = std::as_bytes(std::span(some));
    for (std::size_t at = 0; at < bytes.size(); at += pattern.size()) {
      std::memcpy(bytes.data() + at, pattern.data(), std::min(pattern.size(), bytes.size() - at));
    }
  }

  KvView view_from(std::uint32_t c) const {
    return packed_view<const std::byte>(geometry(), KvPacking::kTokensHeads, from_[c].data(), options_.context_tokens);
  }
  MutableKvView view_to(std::uint32_t c) {
    return packed_view<std::byte>(geometry(), KvPacking::kTokensHeads, to_[c].data(), options_.context_tokens);
  }

  // Contexts t, t + threads, … for thread t.
  Status each_context(unsigned threads, const std::function<Status(std::uint32_t)>& work) const {
    return on_threads(threads, [&](unsigned t) -> Status {
      for (std::uint32_t c = t; c < options_.contexts; c += threads) SHALE_TRY(work(c));
      return {};
    });
  }

  Result<double> seconds(const std::function<Status()>& work) const {
    const double start_s = clock_.now_s();
    SHALE_TRY(work());
    return clock_.now_s() - start_s;
  }

  Result<Timed> measure(bool disk, const std::string& method, unsigned threads) {
    remove_folder();
    SHALE_ASSIGN(const Method by, Method::parse(method));
    SHALE_ASSIGN(StoreTier tier, disk ? open_disk() : open_memory(by));
    Tier& inside = *tier.tier;
    StoreOptions options;
    options.name_space = "bench";
    options.geometry = geometry();
    options.threads = threads;
    std::vector<StoreTier> tiers;
    tiers.push_back(std::move(tier));
    SHALE_ASSIGN(const auto store, Store::open(std::move(options), std::move(tiers), clock_));

    Timed timed;
    // Later ones are dearer. Else what is there is worth as much, and the store may refuse what is new.
    double recompute_s = 1;
    const auto save_all = [&](const ContextKeys& keys) {
      recompute_s *= 2;
      return each_context(threads, [&](std::uint32_t c) { return save_one(*store, by, keys[c], c, recompute_s); });
    };
    // Memory is full, and some have been given up in it already.
    for (const auto& keys : disk ? std::span<const ContextKeys>() : std::span(earlier_)) SHALE_TRY(save_all(keys));
    SHALE_ASSIGN(timed.save_s, seconds([&] { return save_all(keys_); }));
    SHALE_TRY(store->flush());
    SHALE_ASSIGN(timed.load_s, seconds([&] {
                   return each_context(threads, [&](std::uint32_t c) { return load_one(*store, method, c); });
                 }));
    SHALE_TRY(check(method));
    const TierStats stats = inside.stats();
    timed.read_bytes = static_cast<double>(stats.read_bytes);
    timed.written_bytes = static_cast<double>(stats.written_bytes);
    timed.read_unit = stats.read_bytes / std::max<std::uint64_t>(stats.reads, 1);
    timed.write_unit = stats.written_bytes / std::max<std::uint64_t>(stats.writes, 1);
    if (!disk) {
      SHALE_ASSIGN(timed.copy_s, seconds([&] { return copy_all(threads); }));
    } else if (options_.fio) {
      SHALE_TRY(run_fio_beside(timed, stats));
    }
    return timed;
  }

  // Just large enough for all contexts.
  Result<StoreTier> open_memory(const Method& method) const {
    SHALE_ASSIGN(const std::uint64_t bytes, extent_bytes(geometry(), method, options_.context_tokens));
    StoreTier tier;
    tier.tier = make_memory_tier(static_cast<std::uint64_t>(kMemoryRoom * static_cast<double>(bytes)) *
                                     static_cast<std::uint64_t>(options_.contexts),
                                 clock_);
    return tier;
  }

  Result<StoreTier> open_disk() const {
    DiskTierOptions options;
    options.folder = folder();
    options.several_writers = true;
    StoreTier tier;
    tier.folder = folder();
    SHALE_ASSIGN(tier.tier, make_disk_tier(options, clock_));
    return tier;
  }

  Status save_one(Store& store, const Method& method, std::span<const BlockKey> keys, std::uint32_t c,
                  double recompute_s) const {
    SHALE_ASSIGN(const auto save, store.save(keys, view_from(c), {.method = method, .recompute_s = recompute_s}));
    return save->wait();
  }

  Status load_one(Store& store, const std::string& method, std::uint32_t c) {
    StoreLoadOptions options;
    options.needs.exact = method == "full";
    SHALE_ASSIGN(const auto load, store.load(keys_[c], view_to(c), options));
    SHALE_TRY(load->wait());
    if (!load->failures().empty()) return std::unexpected(load->failures().front().error);
    if (load->blocks() == keys_[c].size()) return {};
    return fail(ErrorCode::kInternal, "{} of {} blocks were found", load->blocks(), keys_[c].size());
  }

  Status check(const std::string& method) const {
    if (method != "full") return {};
    for (std::uint32_t c = 0; c < options_.contexts; ++c) {
      if (std::memcmp(from_[c].data(), to_[c].data(), context_bytes_) != 0) {
        return fail(ErrorCode::kCorrupt, "context {} came back different", c);
      }
    }
    return {};
  }

  // What a load cannot do without: the checksum of each byte, and its way to where it belongs.
  Status copy_all(unsigned threads) {
    std::atomic<std::uint64_t> sum = 0;
    SHALE_TRY(each_context(threads, [&](std::uint32_t c) -> Status {
      for (std::size_t at = 0; at < context_bytes_; at += kPieceBytes) {
        const std::size_t bytes = std::min<std::size_t>(kPieceBytes, context_bytes_ - at);
        sum += hash128({from_[c].data() + at, bytes}).low;
        std::memcpy(to_[c].data() + at, from_[c].data() + at, bytes);
      }
      return {};
    }));
    if (sum == 0) return fail(ErrorCode::kInternal, "the checksums of random bytes are all zero");
    return {};
  }

  Status run_fio_beside(Timed& timed, const TierStats& stats) const {
    const std::filesystem::path file = options_.folder / fmt::format("fio-{}", getpid());
    const std::unique_ptr<const std::filesystem::path, void (*)(const std::filesystem::path*)> cleanup(
        &file, [](const std::filesystem::path* path) { unlink(path->c_str()); });
    SHALE_ASSIGN(const FioMetrics write,
                 run_fio(file, like_disk_writes(timed.write_unit, stats.writes, stats.written_bytes)));
    SHALE_ASSIGN(const FioMetrics read,
                 run_fio(file, like_disk_reads("read", timed.read_unit, stats.reads, stats.read_bytes)));
    timed.fio_write = write.bytes_per_s;
    timed.fio_read = read.bytes_per_s;
    return {};
  }

  template <class Value>
  static double median_of(const std::vector<Timed>& rounds, const Value& value) {
    std::vector<double> values;
    for (const Timed& round : rounds) values.push_back(value(round));
    return quantile(std::move(values), 0.5);
  }

  void report(bool disk, const std::string& method, unsigned threads, const std::vector<Timed>& rounds,
              std::vector<StoreIoRow>& rows) const {
    const double logical = static_cast<double>(context_bytes_) * options_.contexts;
    StoreIoRow row{.operation = "save", .tier = disk ? "disk" : "memory", .method = method, .threads = threads};
    row.bytes_per_s = logical / median_of(rounds, [](const Timed& t) { return t.save_s; });
    row.unit_bytes = disk ? rounds.front().write_unit : 0;
    const double copied = disk ? 0 : logical / median_of(rounds, [](const Timed& t) { return t.copy_s; });
    const Timed& last = rounds.back();
    row.peer_bytes_per_s = disk ? median_of(rounds, [](const Timed& t) { return t.fio_write; }) * logical /
                                      std::max(1.0, last.written_bytes)
                                : copied;
    rows.push_back(row);
    row.operation = "load";
    row.bytes_per_s = logical / median_of(rounds, [](const Timed& t) { return t.load_s; });
    row.unit_bytes = disk ? rounds.front().read_unit : 0;
    row.peer_bytes_per_s =
        disk ? median_of(rounds, [](const Timed& t) { return t.fio_read; }) * logical / std::max(1.0, last.read_bytes)
             : copied;
    rows.push_back(row);
  }

  const StoreIoOptions& options_;
  const Clock& clock_;
  const std::size_t context_bytes_;
  std::vector<AlignedBuffer> from_, to_;
  ContextKeys keys_;
  std::array<ContextKeys, 2> earlier_;
};

}  // namespace

Result<std::vector<StoreIoRow>> measure_store_io(const StoreIoOptions& options, const Clock& clock) {
  StoreIo io(options, clock);
  SHALE_ASSIGN(auto rows, io.run(false));
  SHALE_ASSIGN(auto disk_rows, io.run(true));
  rows.insert(rows.end(), disk_rows.begin(), disk_rows.end());
  return rows;
}

}  // namespace shale::bench
