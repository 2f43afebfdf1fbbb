#include "demo/demo_stack.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/interrupt.h"
#include "extents/store_tiers.h"
#include "runtime/serving.h"

namespace shale {
namespace {

// Contexts that the pool holds at once: the exact one, and compressed copies that are asked together.
constexpr std::uint32_t kPoolContexts = 8;

std::uint64_t share_of(std::uint64_t bytes, double share) {
  return round_up(static_cast<std::uint64_t>(static_cast<double>(bytes) * share), std::size_t{1} << 20);
}

// What reading costs on a tier of this kind, by one without bounds and throttle that is made for it.
Result<TierSpeed> own_speed(TierSpec probe, const Clock& clock) {
  probe.capacity_bytes = kUnlimited;
  if (!probe.place.empty()) probe.place += "-probe";
  probe.throttle.reset();
  SHALE_ASSIGN(const auto tier, make_tier(probe, clock));
  SHALE_TRY(tier->measure());
  return tier->speed();
}

// `bytes`: of all documents, uncompressed.
std::vector<TierSpec> tiers_of(const DemoHardware& hardware, std::uint64_t bytes, const std::filesystem::path& folder) {
  std::vector<TierSpec> tiers = {{.scheme = "memory", .name = "memory", .place = {}},
                                 {.scheme = "file", .name = "disk", .place = folder / "disk"},
                                 {.scheme = "dir", .name = "remote", .place = folder / "remote"}};
  tiers[0].capacity_bytes = share_of(bytes, hardware.memory_share);
  tiers[1].capacity_bytes = share_of(bytes, hardware.disk_share);
  if (!hardware.disk.name.empty()) tiers[1].throttle = hardware.disk;
  if (!hardware.remote.name.empty()) tiers[2].throttle = hardware.remote;
  return tiers;
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
  const std::vector<TierSpec> specs = tiers_of(hardware, tokens * shape.token_bytes(), path);
  for (const TierSpec& spec : specs) {
    SHALE_ASSIGN(const TierSpeed own, own_speed(spec, stack->clock_));
    stack->tiers_.push_back({spec.name, spec.throttle ? spec.throttle->name : "", spec.capacity_bytes, own});
  }
  SHALE_ASSIGN(auto tiers, open_store_tiers(specs, stack->clock_));
  SHALE_ASSIGN(auto metadata_store, MetadataStore::open(path / kMetadataStoreName, model.fingerprint()));
  const std::uint64_t pool_bytes = kPoolContexts * shape.block_bytes() * shape.pages_for(tokens_max);
  SHALE_ASSIGN(stack->stack_, EngineStack::open(model, tokenizer, {pool_bytes, std::move(options)}, std::move(tiers),
                                                std::move(metadata_store), stack->clock_));
  return stack;
}

Status DemoStack::settle() {
  do {
    while (engine().run_once()) SHALE_TRY(check_interrupt());
    cache().drain(engine().model().executor());
    SHALE_TRY(check_interrupt());
  } while (engine().run_once());
  return {};
}

}  // namespace shale
