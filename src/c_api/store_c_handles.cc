// Loads and saves in plain C.
#include <algorithm>
#include <utility>

#include "c_api/store_c_values.h"
#include "shale/store.h"

using namespace shale;

shale_code shale_store_load(shale_store* store, const shale_key* keys, size_t key_count, const shale_view* view,
                            const shale_load_options* options, shale_load** load) {
  return guarded([&]() -> Status {
    SHALE_TRY(check_given(store, "store"));
    SHALE_TRY(check_given(load, "load"));
    SHALE_ASSIGN(const auto names, keys_of(keys, key_count));
    SHALE_ASSIGN(const MutableKvView to, mutable_view_of(*store, view));
    StoreLoadOptions given;
    if (options) {
      given.needs = needs_of(&options->needs);
      given.tenant = text_of(options->tenant);
      given.first_block = options->first_block;
      SHALE_ASSIGN(given.tokens, span_of(options->tokens, options->token_count, "tokens"));
    }
    auto begun = std::make_unique<shale_load>();
    SHALE_ASSIGN(begun->load, store->store->load(names, to, given));
    *load = begun.release();
    return {};
  });
}

void shale_load_free(shale_load* load) { delete load; }
uint32_t shale_load_blocks(const shale_load* load) { return load->load->blocks(); }
uint32_t shale_load_skipped(const shale_load* load) { return load->load->skipped(); }

shale_code shale_load_poll(shale_load* load, bool* done) {
  return guarded([&]() -> Status {
    SHALE_TRY(check_given(load, "load"));
    const bool over = load->load->poll();
    if (done) *done = over;
    return {};
  });
}

bool shale_load_layer_ready(const shale_load* load, uint32_t layer) { return load->load->layer_ready(layer); }

shale_code shale_load_wait_layer(shale_load* load, uint32_t layer) {
  return guarded([&]() -> Status {
    SHALE_TRY(check_given(load, "load"));
    return load->load->wait_layer(layer);
  });
}

shale_code shale_load_wait(shale_load* load) {
  return guarded([&]() -> Status {
    SHALE_TRY(check_given(load, "load"));
    return load->load->wait();
  });
}

void shale_load_cancel(shale_load* load) { load->load->cancel(); }
bool shale_load_done(const shale_load* load) { return load->load->done(); }

shale_code shale_load_failures(const shale_load* load, shale_failure* failures, size_t max, size_t* count) {
  return guarded([&]() -> Status {
    SHALE_TRY(check_given(load, "load"));
    SHALE_TRY(check_given(count, "count"));
    const std::vector<StoreFailure>& of = load->load->failures();
    *count = of.size();
    if (max > 0) SHALE_TRY(check_given(failures, "failures"));
    for (std::size_t i = 0; i < std::min(max, of.size()); ++i) {
      failures[i] = {of[i].first_block, of[i].blocks, code_of(of[i].error.code), of[i].error.message.c_str()};
    }
    return {};
  });
}

shale_code shale_load_runs(shale_load* load, shale_run* runs, size_t max, size_t* count) {
  return guarded([&]() -> Status {
    SHALE_TRY(check_given(load, "load"));
    SHALE_TRY(check_given(count, "count"));
    const std::vector<StoreRun>& of = load->load->runs();
    *count = of.size();
    if (max > 0) SHALE_TRY(check_given(runs, "runs"));
    if (load->methods.size() != of.size()) {
      std::vector<std::string> methods;
      for (const StoreRun& run : of) methods.push_back(run.method.text());
      load->methods = std::move(methods);
    }
    for (std::size_t i = 0; i < std::min(max, of.size()); ++i) {
      runs[i] = {of[i].first_block, of[i].blocks, load->methods[i].c_str(), of[i].keep,
                 of[i].rows.empty() ? nullptr : of[i].rows.data()};
    }
    return {};
  });
}

shale_code shale_load_lineage_keys(const shale_load* load, const shale_key* keys, size_t key_count, shale_key* to,
                                   bool* lossy) {
  return guarded([&]() -> Status {
    SHALE_TRY(check_given(load, "load"));
    SHALE_ASSIGN(const auto names, keys_of(keys, key_count));
    if (key_count > 0) SHALE_TRY(check_given(to, "to"));
    const Hash128 lineage = load->load->lineage();
    if (lossy) *lossy = lineage != Hash128();
    if (lineage == Hash128()) {
      std::copy_n(keys, key_count, to);
    } else {
      const std::vector<BlockKey> made = lineage_keys(names, lineage);
      std::copy_n(keys_to(made), made.size(), to);
    }
    return {};
  });
}

shale_code shale_store_save(shale_store* store, const shale_key* keys, size_t key_count, const shale_view* view,
                            const shale_save_hints* hints, shale_save** save) {
  return guarded([&]() -> Status {
    SHALE_TRY(check_given(store, "store"));
    SHALE_TRY(check_given(save, "save"));
    SHALE_ASSIGN(const auto names, keys_of(keys, key_count));
    SHALE_ASSIGN(const KvView from, view_of(*store, view));
    StoreHints given;
    if (hints) {
      SHALE_ASSIGN(given, hints_of(*store, *hints, from.tokens));
    }
    auto begun = std::make_unique<shale_save>();
    SHALE_ASSIGN(begun->save, store->store->save(names, from, std::move(given)));
    *save = begun.release();
    return {};
  });
}

void shale_save_free(shale_save* save) { delete save; }
bool shale_save_released(const shale_save* save) { return save->save->released(); }
bool shale_save_done(const shale_save* save) { return save->save->done(); }

shale_code shale_save_wait_released(shale_save* save) {
  return guarded([&]() -> Status {
    SHALE_TRY(check_given(save, "save"));
    return save->save->wait_released();
  });
}

shale_code shale_save_wait(shale_save* save) {
  return guarded([&]() -> Status {
    SHALE_TRY(check_given(save, "save"));
    return save->save->wait();
  });
}

void shale_save_cancel(shale_save* save) { save->save->cancel(); }
uint32_t shale_save_shared_blocks(const shale_save* save) { return save->save->shared_blocks(); }
