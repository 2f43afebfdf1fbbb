#include "store/store_load.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace shale {
namespace {

// About one product of bandwidth and latency is asked for at a time, so that what is cancelled has cost little.
constexpr std::uint64_t kReadingBytesMin = std::uint64_t{8} << 20;

std::uint64_t reading_bytes_max(const Tier& tier) {
  const TierSpeed speed = tier.speed();
  return std::max(kReadingBytesMin, static_cast<std::uint64_t>(2 * speed.latency_s * speed.read_bytes_per_s));
}

}  // namespace

StoreLoad::State::State(StoreCore& core_, std::vector<BlockKey> keys_, const MutableKvView& view_,
                        const StoreLoadOptions& options)
    : core(core_),
      keys(std::move(keys_)),
      tokens(options.tokens.begin(), options.tokens.end()),
      view(view_),
      first_block(options.first_block),
      counts(options.counts),
      needs(options.needs) {
  core.begin_load();
}

StoreLoad::State::~State() { release(); }

void StoreLoad::State::plan(const std::vector<ChainSpan>& found, const Hash128& realm_, std::string_view tenant_) {
  realm = realm_;
  tenant = tenant_;
  std::uint32_t end = 0;
  for (const ChainSpan& span : found) {
    // A part begins where a chunk does: chunks that begin before the view are left out.
    const Extent& extent = core.index.at(span.extent);
    ChainSpan where = span;
    while (where.blocks > 0 && where.first_block < first_block) {
      const std::uint32_t left_out = std::min<std::uint32_t>(extent.chunk_blocks, where.blocks);
      ++where.first_chunk;
      where.first_block += left_out;
      where.blocks -= left_out;
    }
    end = span.first_block + span.blocks;
    if (where.blocks == 0) continue;
    Part part;
    part.where = where;
    part.name = extent.name;
    part.tag = extent.names[0];
    part.tier = extent.fastest_tier(needs.tiers_excluded);
    part.version = extent.version;
    part.keep = core.keep_read(extent, needs);
    part.bytes = core.bytes_read(extent, where.blocks, part.keep);
    part.manifest = core.manifests.get(extent.name);
    core.use(span.extent);
    if (counts) core.access(span.extent, static_cast<double>(where.blocks) / extent.blocks);
    core.tiers[part.tier].asked_bytes += part.bytes;
    parts.push_back(std::move(part));
  }
  blocks = end > first_block ? end - first_block : 0;
  skipped = parts.empty() ? blocks : parts.front().where.first_block - first_block;
  const std::uint32_t block_tokens = core.options.geometry.block_tokens;
  for (Part& part : parts) part.tokens_after = (end - part.where.first_block - part.where.blocks) * block_tokens;
}

void StoreLoad::State::release() {
  {
    const std::lock_guard lock(mutex);
    if (std::exchange(released, true)) return;
    reads.clear();
    queue.clear();
  }
  core.remove_load(*this);
  const std::lock_guard lock(core.mutex);
  for (const Part& part : parts) {
    core.tiers[part.tier].asked_bytes -= part.bytes;
    core.unuse(part.where.extent);
  }
}

Status StoreLoad::State::check(const Part& part, const ExtentManifest& manifest) const {
  const std::uint32_t block_tokens = core.options.geometry.block_tokens;
  const std::size_t first = std::size_t{part.where.first_chunk} * (manifest.chunk_tokens / block_tokens);
  const auto wanted = std::span(keys).subspan(part.where.first_block, part.where.blocks);
  if (manifest.name_space != core.name_space || manifest.tenant != realm ||
      manifest.geometry != core.options.geometry || manifest.chunk_tokens != core.options.chunk_tokens ||
      manifest.name() != part.name) {
    return fail(ErrorCode::kNotFound, "extent {}: its manifest is another one's", part.name.hex());
  }
  if (first + wanted.size() > manifest.keys.size() ||
      !std::equal(wanted.begin(), wanted.end(), manifest.keys.begin() + static_cast<std::ptrdiff_t>(first))) {
    return fail(ErrorCode::kNotFound, "extent {} holds other blocks, whose keys look alike", part.name.hex());
  }
  if (tokens.empty() || manifest.token_ids.empty()) return {};
  const std::size_t from = std::size_t{part.where.first_block} * block_tokens;
  const std::size_t count = std::min(wanted.size() * block_tokens, tokens.size() - std::min(tokens.size(), from));
  const auto saved = std::span(manifest.token_ids).subspan(first * block_tokens, count);
  if (count > 0 && !std::ranges::equal(std::span(tokens).subspan(from, count), saved)) {
    return fail(ErrorCode::kMismatch,
                "extent {} was saved for other tokens under the same keys; two programs make "
                "keys differently",
                part.name.hex());
  }
  return {};
}

Status StoreLoad::State::prepare(Part& part) {
  if (part.manifest_read) {
    SHALE_ASSIGN(const BlobBytes bytes, std::exchange(part.manifest_read, nullptr)->take());
    SHALE_ASSIGN(ExtentManifest manifest, ExtentManifest::parse(bytes->bytes()));
    part.manifest = std::make_shared<ExtentManifest>(std::move(manifest));
    core.manifests.put(part.name, part.manifest, 2 * bytes->size());
  }
  SHALE_TRY(check(part, *part.manifest));
  const std::uint32_t block_tokens = core.options.geometry.block_tokens;
  ExtentSpan span;
  span.first_chunk = part.where.first_chunk;
  span.tokens = part.where.blocks * block_tokens;
  span.keep = grid_keep(part.keep);
  span.tokens_after = part.tokens_after;
  const std::uint32_t first = (part.where.first_block - first_block) * block_tokens;
  SHALE_ASSIGN(auto decoder,
               ExtentDecoder::start(*part.manifest, span, view.part(first, span.tokens), core.options.tables));
  part.left_of_group.assign(decoder.layer_groups().size(), 0);
  for (const ExtentRange& range : decoder.ranges()) ++part.left_of_group[range.group];
  part.ranges_left = static_cast<std::uint32_t>(decoder.ranges().size());
  part.decoder = std::move(decoder);
  return {};
}

// Layers of all parts before the next layers of any.
void StoreLoad::State::queue_ranges() {
  queued = true;
  struct Wanted {
    std::uint32_t layer, part, range;
  };
  std::vector<Wanted> wanted;
  for (std::uint32_t p = 0; p < parts.size(); ++p) {
    if (!parts[p].decoder) continue;
    const auto& ranges = parts[p].decoder->ranges();
    for (std::uint32_t r = 0; r < ranges.size(); ++r) {
      wanted.push_back({parts[p].decoder->layer_groups()[ranges[r].group].first, p, r});
    }
  }
  std::ranges::stable_sort(wanted, {}, &Wanted::layer);
  for (const Wanted& range : wanted) queue.emplace_back(range.part, range.range);
}

void StoreLoad::State::issue() {
  while (!queue.empty()) {
    const auto [p, r] = queue.front();
    const Part& part = parts[p];
    const ExtentRange& range = part.decoder->ranges()[r];
    Tier& tier = core.tiers[part.tier].tier();
    if (!reads.empty() && reading_bytes + range.bytes > reading_bytes_max(tier)) return;
    Staging::Share share = core.staging.take(StagedFor::kLoads, range.bytes, reads.empty());
    if (!share) return;
    queue.pop_front();
    reading_bytes += range.bytes;
    reads.push_back(
        {p, r, tier.read({part.name, range.blob}, {range.offset, range.bytes}), std::move(share), range.bytes});
  }
}

bool StoreLoad::State::pump() {
  const std::lock_guard lock(mutex);
  if (released) return false;
  bool all = true, arrived = parts.empty() && !queued;  // what has nothing to load is over
  for (Part& part : parts) {
    if (part.decoder || part.error) continue;
    if (!part.manifest && !part.manifest_read) {
      part.manifest_read = core.tiers[part.tier].tier().read(manifest_blob(part.tag, part.name));
    }
    if (part.manifest_read && !part.manifest_read->ready()) {
      all = false;
    } else {
      Status prepared = no_memory_is_an_error([&] { return prepare(part); }, kNoMemory);
      if (!prepared) part.error = std::move(prepared).error();
      arrived = true;
    }
  }
  if (all && !queued) queue_ranges();
  issue();
  const auto ready =
      static_cast<std::size_t>(std::ranges::count_if(reads, [](const Read& read) { return read.read->ready(); }));
  arrived = arrived || ready > ready_seen;
  ready_seen = ready;
  return arrived;
}

std::optional<StoreLoad::State::Read> StoreLoad::State::take_ready() {
  const auto first = std::ranges::find_if(reads, [](const Read& read) { return read.read->ready(); });
  if (first == reads.end()) return std::nullopt;
  std::optional<Read> ready(std::move(*first));
  reads.erase(first);
  ready_seen -= std::min<std::size_t>(ready_seen, 1);
  return ready;
}

void StoreLoad::State::decode(Read& read, Executor& executor) {
  Part& part = parts[read.part];
  const ExtentRange& range = part.decoder->ranges()[read.range];
  const auto bytes = read.read->take();
  if (!bytes) return part.decoder->skip(read.range, bytes.error());
  decoded_bytes += range.bytes;
  const auto in_range = (*bytes)->bytes().subspan(range.offset - read.read->first_byte(), range.bytes);
  (void)part.decoder->decode(read.range, in_range, executor);  // the decoder knows what failed
}

bool StoreLoad::State::planned() {
  if (!done && pump()) core.signal();  // polling is what it arrived for
  const std::lock_guard lock(mutex);
  if (queued) note_runs();
  return queued || done;
}

// Decodes until nothing more has arrived, or the time has passed: at least one read.
bool StoreLoad::State::poll(Executor& executor, double until_s) {
  if (done) return true;
  for (bool in_time = true; in_time;) {
    pump();
    std::optional<Read> ready;
    {
      const std::lock_guard lock(mutex);
      ready = take_ready();
    }
    if (!ready) break;
    decode(*ready, executor);
    in_time = core.clock.now_s() < until_s;
    const std::lock_guard lock(mutex);
    Part& part = parts[ready->part];
    --part.left_of_group[part.decoder->ranges()[ready->range].group];
    --part.ranges_left;
    reading_bytes -= ready->bytes;
    ready->share = {};
    issue();  // what comes next is on its way while more is decoded
  }
  {
    const std::lock_guard lock(mutex);
    if (queued) note_runs();
    const bool over = queued && std::ranges::all_of(parts, [](const Part& part) {
                        return part.error || (part.decoder && part.ranges_left == 0);
                      });
    if (over) finish();
  }
  if (done) release();  // others are not behind it any more
  return done;
}

StoreRun StoreLoad::State::run_of(const Part& part) const {
  StoreRun run{
      part.where.first_block - first_block, part.where.blocks, part.manifest->method, grid_keep(part.keep), {}};
  if (run.method.scorer.empty()) return run;
  const std::uint32_t heads = core.options.geometry.layers * core.options.geometry.kv_heads;
  const std::uint32_t loaded = part.where.blocks * core.options.geometry.block_tokens;
  const std::uint32_t end_chunk =
      part.where.first_chunk + (loaded + core.options.chunk_tokens - 1) / core.options.chunk_tokens;
  for (std::uint32_t head = 0; head < heads; ++head) run.rows.push_back(part.decoder->rows(head, end_chunk));
  return run;
}

// With all manifests known.
void StoreLoad::State::note_runs() {
  if (std::exchange(runs_noted, true)) return;
  for (const Part& part : parts) {
    if (!part.error) runs.push_back(run_of(part));
  }
}

// Says what came and what did not, and tells the store what is not as it should be.
void StoreLoad::State::finish() {
  done = true;
  std::vector<std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>> by_tier;  // blocks that came, and their bytes
  Hasher ancestors;
  bool exact = true;
  runs.clear();
  std::uint32_t expected = first_block;
  const auto note_gap = [&](std::uint32_t end) {
    if (end <= expected) return;
    auto error = fail(ErrorCode::kNotFound, "the chunk of {} blocks begins before the view", end - expected);
    failures.push_back({expected - first_block, end - expected, std::move(error).error()});
  };
  for (Part& part : parts) {
    note_gap(part.where.first_block);
    expected = part.where.first_block + part.where.blocks;
    const std::uint32_t first = part.where.first_block - first_block;
    std::map<ErrorCode, std::uint32_t> failed;  // chunks, by bit; what is damaged before what cannot be read now
    std::uint32_t came = part.where.blocks;
    const std::uint32_t chunk_blocks = core.chunk_blocks();
    for (std::uint32_t b = 0; b < part.where.blocks; b += chunk_blocks) {
      const std::uint32_t chunk = part.where.first_chunk + b / chunk_blocks;
      const Error* const error = part.error ? &*part.error : part.decoder->failure(chunk);
      if (!error) continue;
      failed[error->code] |= 1u << chunk;
      const std::uint32_t count = std::min(chunk_blocks, part.where.blocks - b);
      const bool goes_on = !failures.empty() && failures.back().first_block + failures.back().blocks == first + b &&
                           failures.back().error.code == error->code;
      if (goes_on) {
        failures.back().blocks += count;
      } else {
        failures.push_back({first + b, count, *error});
      }
      came -= count;
    }
    by_tier.emplace_back(part.tier, came, part.bytes * came / part.where.blocks);
    for (const auto& [code, chunks] : failed) core.report(part.where.extent, part.version, part.tier, code, chunks);
    if (part.error) continue;
    if (!part.manifest->method.is_full()) {
      exact = false;
      ancestors.add(part.name);
    }
    runs.push_back(run_of(part));
  }
  note_gap(first_block + blocks);
  if (!exact) lineage = ancestors.finish();
  const std::lock_guard lock(core.mutex);
  for (const auto& [tier, came, bytes] : by_tier) {
    core.tenant(tenant).counts.blocks_loaded += came;
    core.tiers[tier].counts.blocks_loaded += came;
    core.tiers[tier].counts.bytes_read += bytes;
  }
}

bool StoreLoad::State::layer_ready(std::uint32_t layer) const {
  if (done) return true;
  const std::lock_guard lock(mutex);
  return queued && std::ranges::all_of(parts, [&](const Part& part) {
           if (part.error) return true;
           const auto& groups = part.decoder->layer_groups();
           for (std::size_t g = 0; g < groups.size() && groups[g].first <= layer; ++g) {
             if (part.left_of_group[g] > 0) return false;
           }
           return true;
         });
}

// Asleep in the oldest read, which is the next that is needed. Its bytes stay with it until poll() takes them.
void StoreLoad::State::wait_for_any() {
  std::shared_ptr<TierRead> read;
  {
    const std::lock_guard lock(mutex);
    const auto reading = std::ranges::find_if(parts, [](const Part& part) { return part.manifest_read != nullptr; });
    if (reading != parts.end()) {
      read = reading->manifest_read;
    } else if (!reads.empty()) {
      read = reads.front().read;
    }
  }
  if (!read) return core.clock.sleep_until_s(core.clock.now_s() + 1e-4);  // there is no room to read now
  while (!read->ready()) core.clock.sleep_until_s(core.clock.now_s() + 2e-5);
}

std::uint32_t StoreLoad::State::owing() const {
  const std::lock_guard lock(mutex);
  std::uint32_t tiers = 0;
  for (const Part& part : parts) {
    if (part.manifest_read && !part.manifest_read->ready()) tiers |= 1u << part.tier;
  }
  for (const Read& read : reads) {
    if (!read.read->ready()) tiers |= 1u << parts[read.part].tier;
  }
  return tiers;
}

void StoreLoad::State::cancel() {
  if (done) return release();
  cancelled = done = true;
  release();
}

}  // namespace shale
