#include "demo/demo_stack.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/interrupt.h"

namespace shale {
namespace {

// Contexts that the pool holds at once: the exact one, and compressed copies that are asked together.
constexpr std::uint32_t kPoolContexts = 8;

std::uint64_t share_of(std::uint64_t bytes, double share) {
  return round_up(static_cast<std::uint64_t>(static_cast<double>(bytes) * share), std::size_t{1} << 20);
}

// What reading costs on a tier of this kind, by one without bounds that is made for it.
Result<TierSpeed> own_speed(std::unique_ptr<Tier> probe) {
  SHALE_TRY(probe->measure());
  return probe->speed();
}

}  // namespace

Result<TemporaryFolder> TemporaryFolder::create() {
  std::error_code ignored;
  auto parent = std::filesystem::temp_directory_path(ignored);
  std::string name = ((parent.empty() ? "/tmp" : parent) / "shale-demo-XXXXXX").string();
  if (!mkdtemp(name.data())) {
    return fail(ErrorCode::kIo, "cannot make a folder in {}: {}; set TMPDIR to one that is writable", parent.string(),
                std::strerror(errno));
  }
  return TemporaryFolder(std::filesystem::path(name));
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

Result<std::unique_ptr<DemoStack>> DemoStack::open(Model& model, const Tokenizer& tokenizer, CacheOptions options,
                                                   const DemoHardware& hardware, std::uint64_t tokens,
                                                   std::uint32_t tokens_max) {
  SHALE_ASSIGN(TemporaryFolder folder, TemporaryFolder::create());
  std::unique_ptr<DemoStack> stack(new DemoStack(std::move(folder)));
  const auto& path = stack->folder_.path();
  const PageShape shape = model.page_shape();
  SHALE_ASSIGN(stack->pool_,
               PagePool::create(shape, kPoolContexts * shape.block_bytes() * shape.pages_for(tokens_max)));

  const std::uint64_t bytes = tokens * shape.token_bytes();
  const Clock& clock = stack->clock_;
  std::vector<StoreTier> tiers;
  const auto take = [&](StoreTier opened, const Throttle& throttle, std::unique_ptr<Tier> probe) -> Status {
    SHALE_ASSIGN(const TierSpeed own, own_speed(std::move(probe)));
    stack->tiers_.push_back({opened.tier->name(), throttle.name, opened.tier->capacity_bytes(), own});
    if (!throttle.name.empty()) opened.tier = make_throttled_tier(std::move(opened.tier), throttle, clock);
    tiers.push_back(std::move(opened));
    return {};
  };
  const std::uint64_t memory_bytes = share_of(bytes, hardware.memory_share);
  SHALE_TRY(take({make_memory_tier(memory_bytes, clock)}, {}, make_memory_tier(kUnlimited, clock)));
  const std::uint64_t disk_bytes = share_of(bytes, hardware.disk_share);
  SHALE_ASSIGN(auto disk,
               make_disk_tier({.folder = path / "disk", .capacity_bytes = disk_bytes, .several_writers = true}, clock));
  SHALE_ASSIGN(auto disk_probe, make_disk_tier({.folder = path / "probe"}, clock));
  SHALE_TRY(take({std::move(disk), path / "disk"}, hardware.disk, std::move(disk_probe)));
  SHALE_ASSIGN(auto remote, make_directory_tier(path / "remote", kUnlimited, clock));
  SHALE_ASSIGN(auto remote_probe, make_directory_tier(path / "remote-probe", kUnlimited, clock));
  SHALE_TRY(take({.tier = std::move(remote), .shared = true}, hardware.remote, std::move(remote_probe)));

  const Fingerprint fingerprint{model.fingerprint(), model.info().name};
  SHALE_ASSIGN(auto metadata_store, MetadataStore::open(path / "catalogue.sqlite", fingerprint.hash));
  options.model = model.info().traits();
  options.quick_answers = model.has_quick();
  SHALE_ASSIGN(stack->cache_, Cache::open(std::move(options), fingerprint, *stack->pool_, std::move(tiers),
                                          std::move(metadata_store), clock));
  stack->engine_ = std::make_unique<Engine>(EngineOptions{}, model, tokenizer, *stack->cache_, clock);
  return stack;
}

Status DemoStack::settle() {
  do {
    while (engine_->run_once()) SHALE_TRY(check_interrupt());
    cache_->drain(engine_->model().executor());
    SHALE_TRY(check_interrupt());
  } while (engine_->run_once());
  return {};
}

void DemoStack::empty_pool() { cache_->evict_until_free(pool_->blocks_total()); }

}  // namespace shale
