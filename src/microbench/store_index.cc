#include "microbench/store_index.h"

#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "core/quantile.h"
#include "store/store.h"
#include "tiers/tiers.h"

namespace shale::bench {
namespace {

constexpr std::uint32_t kBlockTokens = 16;
constexpr std::uint32_t kChainBlocks = 512, kChunkBlocks = 16;
constexpr std::uint32_t kChainChunks = kChainBlocks / kChunkBlocks;
constexpr std::size_t kSavesAtOnce = 32;
constexpr std::uint64_t kMemoryBytes = std::uint64_t{1} << 20;

KvGeometry index_geometry() {
  KvGeometry index_geometry;
  index_geometry.element = KvElement::kOpaque;
  index_geometry.layers = 1;
  index_geometry.block_tokens = kBlockTokens;
  index_geometry.opaque_bytes = {1, 0};
  return index_geometry;
}

// Random, and the same each time it is asked for.
std::vector<BlockKey> chain(std::uint64_t number) {
  std::vector<BlockKey> keys(kChainBlocks);
  std::mt19937_64 random(number);
  for (BlockKey& key : keys) {
    const std::array<std::uint64_t, 4> words = {random(), random(), random(), random()};
    std::memcpy(key.data(), words.data(), key.size());
  }
  return keys;
}

// Below memory with room for a few extents, where there is to be any.
Result<std::unique_ptr<Store>> open_store(const std::filesystem::path& folder, std::uint64_t memory_bytes,
                                          const Clock& clock) {
  DiskTierOptions disk;
  disk.folder = folder;
  disk.several_writers = true;
  std::vector<StoreTier> tiers;
  if (memory_bytes > 0) tiers.push_back({make_memory_tier(memory_bytes, clock)});
  StoreTier& lowest = tiers.emplace_back();
  lowest.folder = folder;
  SHALE_ASSIGN(lowest.tier, make_disk_tier(disk, clock));
  StoreOptions options;
  options.name_space = "bench";
  options.geometry = index_geometry();
  options.chunk_tokens = kChunkBlocks * kBlockTokens;
  options.events_max = 0;  // nobody takes them
  return Store::open(std::move(options), std::move(tiers), clock);
}

Status fill(Store& store, std::uint64_t chains) {
  std::array<std::byte, kChainBlocks> bytes = {};
  const KvView view = packed_view<const std::byte>(index_geometry(), KvPacking::kTokensHeads, bytes.data(),
                                                   kChainBlocks * kBlockTokens);
  std::vector<std::unique_ptr<StoreSave>> saves(kSavesAtOnce);
  for (std::uint64_t c = 0; c < chains + kSavesAtOnce; ++c) {
    std::unique_ptr<StoreSave>& slot = saves[c % kSavesAtOnce];
    if (slot) SHALE_TRY(slot->wait());
    slot.reset();
    if (c >= chains) continue;
    SHALE_ASSIGN(slot, store.save(chain(c), view));
  }
  return store.flush();
}

// Fills the folder and ends without a word, as kill -9 does.
Status fill_and_die(const std::filesystem::path& folder, std::uint64_t chains, const Clock& clock) {
  const pid_t child = fork();
  if (child < 0) return fail(ErrorCode::kIo, "cannot start a process: {}", std::strerror(errno));
  if (child == 0) {
    auto store = open_store(folder, 0, clock);
    if (!store || !fill(**store, chains)) _exit(1);
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return {};
  return fail(ErrorCode::kIo, "{} could not be filled: is there room?", folder.string());
}

// What the process has allocated and not given back.
double heap_bytes() {
  const auto heap = mallinfo2();
  return static_cast<double>(heap.uordblks + heap.hblkhd);
}

struct Opened {
  std::unique_ptr<Store> store;
  double seconds = 0;
};

Result<Opened> open_and_find(const std::filesystem::path& folder, const Clock& clock) {
  Opened opened;
  const std::vector<BlockKey> keys = chain(0);
  const double start_s = clock.now_s();
  SHALE_ASSIGN(opened.store, open_store(folder, kMemoryBytes, clock));
  const std::uint32_t found = opened.store->lookup(keys).blocks;
  opened.seconds = clock.now_s() - start_s;
  if (found == kChainBlocks) return opened;
  return fail(ErrorCode::kCorrupt, "{} of {} blocks are found after opening", found, kChainBlocks);
}

Status time_lookups(Store& store, const StoreIndexOptions& options, std::uint64_t chains, const Clock& clock,
                    StoreIndexResult& result) {
  std::mt19937_64 random(1);
  std::vector<double> seconds;
  for (std::uint32_t i = 0; i < options.lookups; ++i) {
    const std::vector<BlockKey> keys = chain(random() % chains);
    const double start_s = clock.now_s();
    const std::uint32_t found = store.lookup(keys).blocks;
    seconds.push_back(clock.now_s() - start_s);
    if (found != kChainBlocks) return fail(ErrorCode::kCorrupt, "{} of {} blocks are found", found, kChainBlocks);
  }
  result.lookup_s = quantile(seconds, 0.5);
  result.lookup_p99_s = quantile(seconds, 0.99);
  return {};
}

}  // namespace

Result<StoreIndexResult> measure_store_index(const StoreIndexOptions& options, const Clock& clock) {
  const std::uint64_t chains = std::max<std::uint64_t>(options.chunks / kChainChunks, 1);
  StoreIndexResult result;
  const double start_s = clock.now_s();
  SHALE_TRY(fill_and_die(options.folder, chains, clock));
  result.save_s = clock.now_s() - start_s;
  {
    SHALE_ASSIGN(const Opened killed, open_and_find(options.folder, clock));
    result.open_after_kill_s = killed.seconds;
    result.found_after_kill = killed.store->stats().chunks;
  }
  const double heap_before = heap_bytes();
  SHALE_ASSIGN(const Opened closed, open_and_find(options.folder, clock));
  result.open_after_close_s = closed.seconds;
  const StoreStats stats = closed.store->stats();
  result.chunks = stats.chunks;
  result.extents = stats.extents;
  const auto a_chunk = [&](double bytes) {
    return bytes / static_cast<double>(std::max<std::uint64_t>(stats.chunks, 1));
  };
  result.index_bytes_a_chunk = a_chunk(static_cast<double>(stats.index_bytes));
  SHALE_TRY(time_lookups(*closed.store, options, chains, clock, result));
  while (!closed.store->idle()) clock.sleep_until_s(clock.now_s() + 0.01);  // until every extent has its place
  result.bytes_a_chunk = a_chunk(heap_bytes() - heap_before);
  return result;
}

}  // namespace shale::bench
