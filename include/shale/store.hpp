// store.h in C++23: handles that close themselves, errors as std::expected, spans. Header only; the contracts are
// store.h's.
//
//   auto store = shale::kv::Store::open({.name_space = …, .geometry = …, .tiers = "memory:?size=4GiB"});
//   auto keys = shale::kv::block_keys(tokens, 16);
//   auto load = store->load(*keys, view);
//   load->wait_layer(0);
#pragma once

#include <shale/store.h>

#include <cstdint>
#include <expected>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shale::kv {

struct Error {
  shale_code code = SHALE_INTERNAL;
  std::string message;
};

template <class T>
using Result = std::expected<T, Error>;

using Key = shale_key;
using View = shale_view;
using Geometry = shale_geometry;
using Options = shale_store_options;
using LoadOptions = shale_load_options;
using SaveHints = shale_save_hints;
using Needs = shale_needs;
using Lookup = shale_lookup;

// The thread's message, if `code` is an error.
inline Result<void> checked(shale_code code) {
  if (code == SHALE_OK) return {};
  return std::unexpected(Error{code, shale_error_message()});
}

// `value`, unless `code` is an error.
template <class T>
Result<T> checked(shale_code code, T value) {
  if (code == SHALE_OK) return value;
  return std::unexpected(Error{code, shale_error_message()});
}

inline Result<std::vector<Key>> block_keys(std::span<const std::int32_t> tokens, std::uint32_t block_tokens,
                                           const char* seed = "", std::span<const char* const> extras = {}) {
  std::vector<Key> keys(block_tokens ? tokens.size() / block_tokens : 0);
  const shale_code code =
      shale_block_keys(seed, tokens.data(), tokens.size(), block_tokens, extras.data(), extras.size(), keys.data());
  return checked(code, std::move(keys));
}

// Owns one handle and frees it.
struct Close {
  void operator()(shale_store* store) const { shale_store_close(store); }
  void operator()(shale_load* load) const { shale_load_free(load); }
  void operator()(shale_save* save) const { shale_save_free(save); }
  void operator()(shale_stats* stats) const { shale_stats_free(stats); }
  void operator()(shale_events* events) const { shale_events_free(events); }
};
template <class T>
using Owned = std::unique_ptr<T, Close>;

// Must be gone before its store.
class Load {
 public:
  explicit Load(shale_load* load) : load_(load) {}

  std::uint32_t blocks() const { return shale_load_blocks(load_.get()); }
  std::uint32_t skipped() const { return shale_load_skipped(load_.get()); }
  Result<bool> poll() {
    bool done = false;
    const shale_code code = shale_load_poll(load_.get(), &done);
    return checked(code, done);
  }
  bool layer_ready(std::uint32_t layer) const { return shale_load_layer_ready(load_.get(), layer); }
  Result<void> wait_layer(std::uint32_t layer) { return checked(shale_load_wait_layer(load_.get(), layer)); }
  Result<void> wait() { return checked(shale_load_wait(load_.get())); }
  void cancel() { shale_load_cancel(load_.get()); }
  bool done() const { return shale_load_done(load_.get()); }

  Result<std::vector<shale_failure>> failures() const {
    return all<shale_failure>([this](shale_failure* to, std::size_t max, std::size_t* count) {
      return shale_load_failures(load_.get(), to, max, count);
    });
  }
  Result<std::vector<shale_run>> runs() {
    return all<shale_run>([this](shale_run* to, std::size_t max, std::size_t* count) {
      return shale_load_runs(load_.get(), to, max, count);
    });
  }
  // Keys under which KV computed on top must be saved; the same keys if all loaded blocks are exact.
  Result<std::vector<Key>> lineage_keys(std::vector<Key> keys) const {
    const shale_code code = shale_load_lineage_keys(load_.get(), keys.data(), keys.size(), keys.data(), nullptr);
    return checked(code, std::move(keys));
  }

 private:
  template <class Row, class Call>
  static Result<std::vector<Row>> all(const Call& call) {
    std::size_t count = 0;
    if (auto counted = checked(call(nullptr, 0, &count)); !counted) return std::unexpected(counted.error());
    std::vector<Row> rows(count);
    const shale_code code = call(rows.data(), rows.size(), &count);
    return checked(code, std::move(rows));
  }

  Owned<shale_load> load_;
};

// Must be gone before its store.
class Save {
 public:
  explicit Save(shale_save* save) : save_(save) {}

  bool released() const { return shale_save_released(save_.get()); }
  bool done() const { return shale_save_done(save_.get()); }
  Result<void> wait_released() { return checked(shale_save_wait_released(save_.get())); }
  Result<void> wait() { return checked(shale_save_wait(save_.get())); }
  void cancel() { shale_save_cancel(save_.get()); }
  std::uint32_t shared_blocks() const { return shale_save_shared_blocks(save_.get()); }

 private:
  Owned<shale_save> save_;
};

class Store {
 public:
  static Result<Store> open(const Options& options) {
    shale_store* store = nullptr;
    const shale_code code = shale_store_open(&options, &store);
    return checked(code, Store(store));
  }

  Result<Lookup> lookup(std::span<const Key> keys, const Needs& needs = {}, const char* tenant = nullptr) {
    Lookup found = {};
    const shale_code code = shale_store_lookup(store_.get(), keys.data(), keys.size(), &needs, tenant, &found);
    return checked(code, found);
  }
  Result<Load> load(std::span<const Key> keys, const View& view, const LoadOptions& options = {}) {
    shale_load* load = nullptr;
    const shale_code code = shale_store_load(store_.get(), keys.data(), keys.size(), &view, &options, &load);
    return checked(code, Load(load));
  }
  Result<Save> save(std::span<const Key> keys, const View& view, const SaveHints& hints = {}) {
    shale_save* save = nullptr;
    const shale_code code = shale_store_save(store_.get(), keys.data(), keys.size(), &view, &hints, &save);
    return checked(code, Save(save));
  }

  Result<std::uint32_t> touch(std::span<const Key> keys, const char* tenant = nullptr) {
    return for_prefix(shale_store_touch, keys, tenant);
  }
  Result<std::uint32_t> pin(std::span<const Key> keys, const char* tenant = nullptr) {
    return for_prefix(shale_store_pin, keys, tenant);
  }
  Result<std::uint32_t> unpin(std::span<const Key> keys, const char* tenant = nullptr) {
    return for_prefix(shale_store_unpin, keys, tenant);
  }
  Result<std::uint32_t> remove(std::span<const Key> keys, const char* tenant = nullptr) {
    return for_prefix(shale_store_remove, keys, tenant);
  }

  Result<void> set_quota(const char* tenant, std::uint64_t bytes_max) {
    return checked(shale_store_set_quota(store_.get(), tenant, bytes_max));
  }

  int event_fd() const { return shale_store_event_fd(store_.get()); }
  Result<bool> work(double budget_s) {
    bool worked = false;
    const shale_code code = shale_store_work(store_.get(), budget_s, &worked);
    return checked(code, worked);
  }
  Result<void> flush() { return checked(shale_store_flush(store_.get())); }
  Result<void> check_integrity() { return checked(shale_store_check_integrity(store_.get())); }

  Result<Owned<shale_stats>> stats() const {
    shale_stats* stats = nullptr;
    const shale_code code = shale_store_stats(store_.get(), &stats);
    return checked(code, Owned<shale_stats>(stats));
  }
  Result<Owned<shale_events>> take_events(std::size_t max) {
    shale_events* events = nullptr;
    const shale_code code = shale_store_take_events(store_.get(), max, &events);
    return checked(code, Owned<shale_events>(events));
  }

 private:
  explicit Store(shale_store* store) : store_(store) {}
  template <class Call>
  Result<std::uint32_t> for_prefix(const Call& call, std::span<const Key> keys, const char* tenant) {
    std::uint32_t blocks = 0;
    const shale_code code = call(store_.get(), keys.data(), keys.size(), tenant, &blocks);
    return checked(code, blocks);
  }

  Owned<shale_store> store_;
};

}  // namespace shale::kv
