#include "store/store_in_c.h"

#include <shale/store.h>
#include <stdio.h>
#include <string.h>

enum { kLayers = 2, kHeads = 2, kDim = 8, kBlockTokens = 4, kTokens = 24, kBlocks = kTokens / kBlockTokens };
enum { kElements = kLayers * kHeads * kTokens * kDim };

static const shale_geometry kGeometry = {
    .layers = kLayers, .kv_heads = kHeads, .head_dim = kDim, .block_tokens = kBlockTokens};

static uint16_t saved[2][kElements], loaded[2][kElements];

static const char* problem(const char* where) {
  static char text[512];
  snprintf(text, sizeof text, "%s: %s", where, shale_error_message());
  return text;
}

static shale_store* open_store(const char* folder) {
  char tiers[512];
  snprintf(tiers, sizeof tiers, "memory:?size=1MiB,file://%s?size=16MiB", folder);
  const shale_store_options options = {
      .name_space = "store_in_c", .geometry = kGeometry, .tiers = tiers, .chunk_tokens = 8};
  shale_store* store = NULL;
  return shale_store_open(&options, &store) == SHALE_OK ? store : NULL;
}

static const char* save_chain(shale_store* store, const shale_key* keys, const int32_t* tokens) {
  const shale_view view = shale_plain_view(&kGeometry, saved[0], saved[1], kTokens);
  const shale_save_hints hints = {.label = "a chain", .tokens = tokens, .token_count = kTokens};
  shale_save* save = NULL;
  if (shale_store_save(store, keys, kBlocks, &view, &hints, &save) != SHALE_OK) return problem("save");
  const shale_code code = shale_save_wait(save);
  shale_save_free(save);
  return code == SHALE_OK ? NULL : problem("wait for a save");
}

static const char* load_chain(shale_store* store, const shale_key* keys, const int32_t* tokens) {
  shale_lookup found;
  if (shale_store_lookup(store, keys, kBlocks, NULL, NULL, &found) != SHALE_OK) return problem("lookup");
  if (found.blocks != kBlocks || found.exact_blocks != kBlocks) return "lookup: not all blocks are there";
  const shale_view view = shale_plain_view(&kGeometry, loaded[0], loaded[1], kTokens);
  const shale_load_options options = {.tokens = tokens, .token_count = kTokens};
  shale_load* load = NULL;
  if (shale_store_load(store, keys, found.blocks, &view, &options, &load) != SHALE_OK) return problem("load");
  const char* wrong = NULL;
  for (uint32_t layer = 0; layer < kLayers && !wrong; ++layer) {
    if (shale_load_wait_layer(load, layer) != SHALE_OK) wrong = problem("wait for a layer");
    if (!shale_load_layer_ready(load, layer)) wrong = "a layer that was waited for is not ready";
    const size_t first = kElements / kLayers * layer, bytes = sizeof saved[0] / kLayers;
    for (int part = 0; part < 2; ++part) {
      if (memcmp(saved[part] + first, loaded[part] + first, bytes) != 0) wrong = "a layer came back different";
    }
  }
  if (!wrong && shale_load_wait(load) != SHALE_OK) wrong = problem("wait for a load");
  shale_load_free(load);
  return wrong;
}

static const char* refuse_what_is_wrong(shale_store* store, const shale_key* keys) {
  shale_view view = shale_plain_view(&kGeometry, loaded[0], loaded[1], kTokens);
  view.keys.token_stride = -2;
  shale_load* load = NULL;
  if (shale_store_load(store, keys, kBlocks, &view, NULL, &load) != SHALE_INVALID_ARGUMENT) return "a bad view passed";
  if (shale_error_message()[0] == 0) return "a bad view was refused without a word";
  shale_lookup found;
  if (shale_store_lookup(store, NULL, 1, NULL, NULL, &found) != SHALE_INVALID_ARGUMENT) return "no keys passed";
  return load ? "a refused load is there" : NULL;
}

// What is not there may be given back, too.
static void free_nothing(void) {
  shale_store_close(NULL);
  shale_load_free(NULL);
  shale_save_free(NULL);
  shale_stats_free(NULL);
  shale_events_free(NULL);
}

const char* store_in_c(const char* folder) {
  free_nothing();
  int32_t tokens[kTokens];
  for (int t = 0; t < kTokens; ++t) tokens[t] = 100 + t;
  for (int i = 0; i < kElements; ++i) {
    saved[0][i] = (uint16_t)i;
    saved[1][i] = (uint16_t)(20000 + i);
  }
  shale_key keys[kBlocks];
  if (shale_block_keys("seed", tokens, kTokens, kBlockTokens, NULL, 0, keys) != SHALE_OK) return problem("block_keys");

  shale_store* store = open_store(folder);
  if (!store) return problem("open");
  const char* wrong = save_chain(store, keys, tokens);
  shale_store_close(store);
  if (wrong) return wrong;

  store = open_store(folder);
  if (!store) return problem("open anew");
  wrong = load_chain(store, keys, tokens);
  if (!wrong) wrong = refuse_what_is_wrong(store, keys);
  shale_store_close(store);
  return wrong;
}
