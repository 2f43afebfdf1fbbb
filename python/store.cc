#include "store.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <shale/store.hpp>
#include <stdexcept>
#include <tuple>

namespace nb = nanobind;
using namespace nb::literals;

namespace shale {
namespace {

struct StoreError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class Value>
Value checked(kv::Result<Value> result) {
  if (!result) {
    if (result.error().code == SHALE_INVALID_ARGUMENT) throw std::invalid_argument(result.error().message);
    throw StoreError(result.error().message);
  }
  if constexpr (!std::is_void_v<Value>) return std::move(*result);
}

using Tokens = nb::ndarray<const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Table = nb::ndarray<const std::uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Keys come as the bytes of all of them.
std::span<const kv::Key> keys_of(const nb::bytes& bytes) {
  if (bytes.size() % sizeof(kv::Key) != 0) {
    throw std::invalid_argument("keys have 32 bytes each; " + std::to_string(bytes.size()) + " bytes were given");
  }
  return {reinterpret_cast<const kv::Key*>(bytes.c_str()), bytes.size() / sizeof(kv::Key)};
}

nb::bytes bytes_of(std::span<const kv::Key> keys) {
  return nb::bytes(reinterpret_cast<const char*>(keys.data()), keys.size_bytes());
}

nb::bytes block_keys(const Tokens& tokens, std::uint32_t block_tokens, const std::string& seed,
                     const std::vector<std::string>& extras) {
  std::vector<const char*> names;
  for (const std::string& extra : extras) names.push_back(extra.c_str());
  return bytes_of(checked(kv::block_keys({tokens.data(), tokens.size()}, block_tokens, seed.c_str(), names)));
}

// Addresses of layers, and strides in bytes: of block, token, KV head, channel.
using ArrayOf = std::pair<std::vector<std::uintptr_t>, std::array<std::int64_t, 4>>;

class View {
 public:
  View(const ArrayOf& keys, const ArrayOf& values, const std::optional<Table>& block_table,
       std::uint32_t physical_blocks, std::uint32_t tokens, std::uint32_t block_tokens)
      : keys_(pointers(keys)), values_(pointers(values)) {
    view_ = {.keys = array(keys_, keys.second),
             .values = array(values_, values.second),
             .block_table = nullptr,
             .physical_blocks = physical_blocks,
             .tokens = tokens};
    if (!block_table) return;
    table_.assign(block_table->data(), block_table->data() + block_table->size());
    if (block_tokens == 0 || std::uint64_t{block_table->size()} * block_tokens < tokens) {
      throw std::invalid_argument("the block table is shorter than the tokens");
    }
    view_.block_table = table_.data();
  }
  // Layers that the store reads: as many as its geometry has.
  const kv::View& of(std::uint32_t layers, bool values) const {
    if (keys_.size() != layers || (values && values_.size() != layers)) {
      throw std::invalid_argument("the view has " + std::to_string(keys_.size()) + " layers of keys and " +
                                  std::to_string(values_.size()) + " of values; the store has " +
                                  std::to_string(layers));
    }
    return view_;
  }

 private:
  static std::vector<void*> pointers(const ArrayOf& of) {
    std::vector<void*> layers;
    for (const std::uintptr_t address : of.first) layers.push_back(reinterpret_cast<void*>(address));
    return layers;
  }
  static shale_array array(const std::vector<void*>& layers, const std::array<std::int64_t, 4>& strides) {
    return {.base = nullptr,
            .layers = layers.empty() ? nullptr : layers.data(),
            .layer_stride = 0,
            .block_stride = strides[0],
            .token_stride = strides[1],
            .head_stride = strides[2],
            .channel_stride = strides[3]};
  }

  std::vector<void*> keys_, values_;
  std::vector<std::uint32_t> table_;
  kv::View view_;
};

// Closing takes as long as tiers do to end what is being written, and whatever was collected may be the last that held
// the store: others run meanwhile.
struct ClosesUnlocked {
  std::shared_ptr<const std::map<std::string, double>> qualities;  // which the store asks

  void operator()(kv::Store* store) const {
    std::optional<nb::gil_scoped_release> others_run;
    if (PyGILState_Check()) others_run.emplace();
    delete store;
  }
};

// Handles share the store, which closes when it and all of them are gone.
struct Load {
  std::shared_ptr<kv::Store> store;
  kv::Load load;
};
struct Save {
  std::shared_ptr<kv::Store> store;
  kv::Save save;
};

class Store {
 public:
  Store(const std::string& name_space, const std::string& tiers, const kv::Geometry& geometry, shale_packing packing,
        std::uint32_t chunk_tokens, std::int32_t threads, std::uint64_t staging_bytes, bool late,
        std::map<std::string, double> qualities)
      : layers_(geometry.layers), values_(geometry.element != SHALE_OPAQUE || geometry.opaque_bytes[1] > 0) {
    kv::Options options = {};
    options.name_space = name_space.c_str();
    options.geometry = geometry;
    options.tiers = tiers.c_str();
    options.packing = packing;
    options.chunk_tokens = chunk_tokens;
    options.threads = threads;
    options.staging_bytes = staging_bytes;
    options.late = late;
    const auto known = std::make_shared<const std::map<std::string, double>>(std::move(qualities));
    if (!known->empty()) {
      options.placement.quality_found = [](void* context, const char* method, double keep) {
        const auto& by_method = *static_cast<const std::map<std::string, double>*>(context);
        const auto found = by_method.find(method);
        return found == by_method.end() || keep < 1 ? 0.0 : found->second;
      };
      options.placement.context = const_cast<std::map<std::string, double>*>(known.get());
    }
    const nb::gil_scoped_release others_run;
    store_ = std::shared_ptr<kv::Store>(new kv::Store(checked(kv::Store::open(options))), ClosesUnlocked{known});
  }

  auto lookup(const nb::bytes& keys, bool lossy, double quality_min, const std::string& tenant) const {
    const kv::Lookup found = checked(open()->lookup(keys_of(keys), {lossy, quality_min}, tenant.c_str()));
    return std::tuple(found.blocks, found.exact_blocks, found.quality, found.tier, found.ready_s, found.pending);
  }

  std::unique_ptr<Load> load(const nb::bytes& keys, const View& view, bool lossy, double quality_min,
                             const std::string& tenant, std::uint32_t first_block,
                             const std::optional<Tokens>& tokens) const {
    kv::LoadOptions options = {};
    options.needs = {lossy, quality_min};
    options.tenant = tenant.c_str();
    options.first_block = first_block;
    if (tokens) options.tokens = tokens->data();
    if (tokens) options.token_count = tokens->size();
    kv::Load load = checked(open()->load(keys_of(keys), view.of(layers_, values_), options));
    return std::make_unique<Load>(Load{store_, std::move(load)});
  }

  std::unique_ptr<Save> save(const nb::bytes& keys, const View& view, const std::string& method, double keep,
                             double quality, const std::string& tenant, std::uint32_t first_block,
                             const std::vector<std::uint32_t>& boundaries, double recompute_s, const std::string& label,
                             bool pin, double time_to_live_s, const std::optional<Tokens>& tokens) const {
    kv::SaveHints hints = {};
    hints.tenant = tenant.c_str();
    hints.first_block = first_block;
    hints.boundaries = boundaries.data();
    hints.boundary_count = boundaries.size();
    hints.method = method.c_str();
    hints.keep = keep;
    hints.quality = quality == 0 ? std::numeric_limits<float>::min() : quality;  // 0 would say 1
    hints.recompute_s = recompute_s;
    hints.label = label.c_str();
    hints.pin = pin;
    hints.time_to_live_s = time_to_live_s;
    if (tokens) hints.tokens = tokens->data();
    if (tokens) hints.token_count = tokens->size();
    kv::Save save = checked(open()->save(keys_of(keys), view.of(layers_, values_), hints));
    return std::make_unique<Save>(Save{store_, std::move(save)});
  }

  template <kv::Result<std::uint32_t> (kv::Store::*call)(std::span<const kv::Key>, const char*)>
  std::uint32_t for_prefix(const nb::bytes& keys, const std::string& tenant) const {
    return checked(((*open()).*call)(keys_of(keys), tenant.c_str()));
  }

  void set_quota(const std::string& tenant, std::uint64_t bytes_max) const {
    checked(open()->set_quota(tenant.c_str(), bytes_max));
  }
  int event_fd() const { return open()->event_fd(); }
  bool work(double budget_s) const {
    const std::shared_ptr<kv::Store> store = open();
    const nb::gil_scoped_release others_run;
    return checked(store->work(budget_s));
  }
  void flush() const {
    std::shared_ptr<kv::Store> store = open();
    const nb::gil_scoped_release others_run;
    checked(store->flush());
  }
  void close() { store_.reset(); }

  nb::dict stats() const {
    const auto stats = checked(open()->stats());
    nb::dict result, tenants, tiers;
    for (std::size_t i = 0; i < stats->tenant_count; ++i) {
      const shale_tenant_stats& row = stats->tenants[i];
      nb::dict tenant;
      tenant["bytes"] = row.bytes;
      tenant["bytes_max"] = row.bytes_max;
      tenant["dropped_for_room"] = row.dropped_for_room;
      tenant["refused"] = row.refused;
      tenant["lookups"] = row.lookups;
      tenant["blocks_asked"] = row.blocks_asked;
      tenant["blocks_found"] = row.blocks_found;
      tenant["blocks_loaded"] = row.blocks_loaded;
      tenant["blocks_saved"] = row.blocks_saved;
      tenants[row.tenant] = tenant;
    }
    for (std::size_t i = 0; i < stats->tier_count; ++i) {
      const shale_tier_stats& row = stats->tiers[i];
      nb::dict tier;
      tier["extents"] = row.extents;
      tier["chunks"] = row.chunks;
      tier["bytes"] = row.bytes;
      tier["capacity_bytes"] = row.capacity_bytes;
      tier["blocks_loaded"] = row.blocks_loaded;
      tier["bytes_read"] = row.bytes_read;
      tier["bytes_written"] = row.bytes_written;
      tier["demoted"] = row.demoted;
      tier["removed"] = row.removed;
      tier["trouble"] = row.trouble ? nb::cast(row.trouble) : nb::none();
      tiers[row.name] = tier;
    }
    result["tenants"] = tenants;
    result["tiers"] = tiers;
    result["extents"] = stats->extents;
    result["chunks"] = stats->chunks;
    result["index_bytes"] = stats->index_bytes;
    result["saves"] = stats->saves;
    result["blocks_shared"] = stats->blocks_shared;
    result["extents_failed"] = stats->extents_failed;
    result["damaged_chunks"] = stats->damaged_chunks;
    result["stale_extents"] = stats->stale_extents;
    result["expired_extents"] = stats->expired_extents;
    result["discovered_extents"] = stats->discovered_extents;
    result["events_lost"] = stats->events_lost;
    result["staged_bytes"] = stats->staged_bytes;
    return result;
  }

  // (kind, tier, tenant, parent, keys, block_tokens) each.
  nb::list take_events(std::size_t max) const {
    constexpr const char* kKinds[] = {"stored", "removed", "lost"};
    const auto taken = checked(open()->take_events(max));
    nb::list events;
    for (std::size_t i = 0; i < taken->count; ++i) {
      const shale_event& event = taken->events[i];
      events.append(nb::make_tuple(kKinds[event.kind], event.tier, event.tenant, bytes_of({&event.parent, 1}),
                                   bytes_of({event.keys, event.key_count}), event.block_tokens));
    }
    return events;
  }

 private:
  // Held during a call: another thread may close the store meanwhile.
  std::shared_ptr<kv::Store> open() const {
    if (!store_) throw std::invalid_argument("the store has been closed");
    return store_;
  }

  std::shared_ptr<kv::Store> store_;
  std::uint32_t layers_;
  bool values_;
};

nb::list failures_of(Load& of) {
  nb::list result;
  for (const shale_failure& failure : checked(of.load.failures())) {
    result.append(nb::make_tuple(failure.first_block, failure.blocks, failure.message));
  }
  return result;
}

nb::list runs_of(Load& of, std::uint32_t heads) {
  nb::list result;
  for (const shale_run& run : checked(of.load.runs())) {
    nb::object rows = nb::none();
    if (run.rows) rows = nb::cast(std::vector<std::uint32_t>(run.rows, run.rows + heads));
    result.append(nb::make_tuple(run.first_block, run.blocks, run.method, run.keep, rows));
  }
  return result;
}

nb::bytes lineage_keys(Load& of, const nb::bytes& keys) {
  const auto given = keys_of(keys);
  return bytes_of(checked(of.load.lineage_keys({given.begin(), given.end()})));
}

}  // namespace

void bind_store(nb::module_& module) {
  nb::exception<StoreError>(module, "StoreError", PyExc_RuntimeError);
  module.def("_block_keys", &block_keys, "tokens"_a, "block_tokens"_a, "seed"_a, "extras"_a);
  nb::class_<View>(module, "_View")
      .def(nb::init<const ArrayOf&, const ArrayOf&, const std::optional<Table>&, std::uint32_t, std::uint32_t,
                    std::uint32_t>(),
           "keys"_a, "values"_a, "block_table"_a.none(), "physical_blocks"_a, "tokens"_a, "block_tokens"_a);

  // The wait of others must not hold the interpreter's lock, for it may last as long as a tier takes.
  const auto unlocked = nb::call_guard<nb::gil_scoped_release>();
  nb::class_<Load>(module, "_Load")
      .def("blocks", [](const Load& of) { return of.load.blocks(); })
      .def("skipped", [](const Load& of) { return of.load.skipped(); })
      .def(
          "poll", [](Load& of) { return checked(of.load.poll()); }, unlocked)
      .def(
          "layer_ready", [](const Load& of, std::uint32_t layer) { return of.load.layer_ready(layer); }, "layer"_a)
      .def(
          "wait_layer", [](Load& of, std::uint32_t layer) { checked(of.load.wait_layer(layer)); }, "layer"_a, unlocked)
      .def(
          "wait", [](Load& of) { checked(of.load.wait()); }, unlocked)
      .def(
          "cancel", [](Load& of) { of.load.cancel(); }, unlocked)
      .def("done", [](const Load& of) { return of.load.done(); })
      .def("failures", &failures_of)
      .def("runs", &runs_of, "heads"_a)
      .def("lineage_keys", &lineage_keys, "keys"_a);
  nb::class_<Save>(module, "_Save")
      .def("released", [](const Save& of) { return of.save.released(); })
      .def("done", [](const Save& of) { return of.save.done(); })
      .def(
          "wait_released", [](Save& of) { checked(of.save.wait_released()); }, unlocked)
      .def(
          "wait", [](Save& of) { checked(of.save.wait()); }, unlocked)
      .def(
          "cancel", [](Save& of) { of.save.cancel(); }, unlocked)
      .def("shared_blocks", [](const Save& of) { return of.save.shared_blocks(); });
  nb::class_<Store>(module, "_Store")
      .def("__init__",
           [](Store* self, const std::string& name_space, const std::string& tiers, int element, std::uint32_t layers,
              std::uint32_t kv_heads, std::uint32_t head_dim, std::uint32_t block_tokens,
              std::pair<std::uint32_t, std::uint32_t> opaque_bytes, int packing, std::uint32_t chunk_tokens,
              std::int32_t threads, std::uint64_t staging_bytes, bool late, std::map<std::string, double> qualities) {
             const kv::Geometry geometry = {
                 static_cast<shale_element>(element),      layers, kv_heads, head_dim, block_tokens,
                 {opaque_bytes.first, opaque_bytes.second}};
             new (self) Store(name_space, tiers, geometry, static_cast<shale_packing>(packing), chunk_tokens, threads,
                              staging_bytes, late, std::move(qualities));
           })
      .def("lookup", &Store::lookup)
      .def("load", &Store::load, "keys"_a, "view"_a, "lossy"_a, "quality_min"_a, "tenant"_a, "first_block"_a,
           "tokens"_a.none())
      .def("save", &Store::save, "keys"_a, "view"_a, "method"_a, "keep"_a, "quality"_a, "tenant"_a, "first_block"_a,
           "boundaries"_a, "recompute_s"_a, "label"_a, "pin"_a, "time_to_live_s"_a, "tokens"_a.none())
      .def("touch", &Store::for_prefix<&kv::Store::touch>)
      .def("pin", &Store::for_prefix<&kv::Store::pin>)
      .def("unpin", &Store::for_prefix<&kv::Store::unpin>)
      .def("remove", &Store::for_prefix<&kv::Store::remove>)
      .def("set_quota", &Store::set_quota)
      .def("event_fd", &Store::event_fd)
      .def("work", &Store::work, "budget_s"_a)
      .def("flush", &Store::flush)
      .def("close", &Store::close)
      .def("stats", &Store::stats)
      .def("take_events", &Store::take_events);
}

}  // namespace shale
