// The least that an engine does with Shale's store, in C: look up what is known of a prompt, load it, compute the rest,
// save that. Everything here waits; embed_overlapping does not.
#include <shale/store.h>
#include <stdio.h>
#include <stdlib.h>

enum { kLayers = 4, kHeads = 2, kDim = 64, kBlockTokens = 16 };

static const shale_geometry kGeometry = {
    .element = SHALE_F16, .layers = kLayers, .kv_heads = kHeads, .head_dim = kDim, .block_tokens = kBlockTokens};

// What went wrong is for people; here it ends the program.
static void must(shale_code code) {
  if (code == SHALE_OK) return;
  fprintf(stderr, "%s\n", shale_error_message());
  exit(1);
}

// The engine's memory for one prompt: plain arrays [layers][kv_heads][tokens][head_dim].
typedef struct {
  uint32_t tokens;
  uint16_t *keys, *values;
} Kv;

static size_t element(const Kv* kv, size_t head, size_t token, size_t channel) {
  return (head * kv->tokens + token) * kDim + channel;
}

static Kv new_kv(uint32_t tokens) {
  const size_t elements = (size_t)kLayers * kHeads * tokens * kDim;
  const Kv kv = {tokens, calloc(elements, sizeof(uint16_t)), calloc(elements, sizeof(uint16_t))};
  if (!kv.keys || !kv.values) exit(1);
  return kv;
}

static void free_kv(Kv kv) {
  free(kv.keys);
  free(kv.values);
}

// Stands for a model: what it "computes" of a token follows from the token and its place.
static void compute(Kv* kv, const int32_t* prompt, uint32_t first_token) {
  for (size_t head = 0; head < kLayers * kHeads; ++head) {
    for (uint32_t token = first_token; token < kv->tokens; ++token) {
      for (size_t channel = 0; channel < kDim; ++channel) {
        const size_t at = element(kv, head, token, channel);
        kv->keys[at] = (uint16_t)(prompt[token] * 31 + (int32_t)(head + channel));
        kv->values[at] = (uint16_t)(prompt[token] * 17 + (int32_t)(token + channel));
      }
    }
  }
}

// Returns how many of the prompt's tokens did not have to be computed. `tokens`: whole blocks.
static uint32_t prefill(shale_store* store, const int32_t* prompt, uint32_t tokens, Kv* kv) {
  const uint32_t blocks = tokens / kBlockTokens;
  shale_key* keys = malloc(blocks * sizeof(shale_key));
  if (!keys) exit(1);
  must(shale_block_keys("", prompt, tokens, kBlockTokens, NULL, 0, keys));
  const shale_view view = shale_plain_view(&kGeometry, kv->keys, kv->values, tokens);

  // 1. Load what is there. Every block says whether it came; those behind a gap are of no use.
  const shale_load_options load_options = {.tokens = prompt, .token_count = tokens};
  shale_load* load;
  must(shale_store_load(store, keys, blocks, &view, &load_options, &load));
  uint32_t loaded = shale_load_blocks(load);
  (void)shale_load_wait(load);  // an error says that no block came at all: that is one of the failures
  shale_failure first;          // in the order of blocks
  size_t failures;
  must(shale_load_failures(load, &first, 1, &failures));
  if (failures > 0) loaded = first.first_block;
  shale_load_free(load);

  // 2. Compute the rest.
  compute(kv, prompt, loaded * kBlockTokens);

  // 3. Save it. What is there already is not stored again.
  const shale_save_hints hints = {.label = "a prompt", .tokens = prompt, .token_count = tokens};
  shale_save* save;
  must(shale_store_save(store, keys, blocks, &view, &hints, &save));
  must(shale_save_wait(save));
  shale_save_free(save);
  free(keys);
  return loaded * kBlockTokens;
}

int main(int argc, char** argv) {
  char tiers[4096];
  snprintf(tiers, sizeof tiers, "memory:?size=64MiB,file:%s?size=1GiB", argc > 1 ? argv[1] : "kv-store");
  const shale_store_options options = {
      .name_space = "example weights, example tokenizer", .geometry = kGeometry, .tiers = tiers};

  int32_t prompt[128];
  for (int t = 0; t < 128; ++t) prompt[t] = 1000 + t;
  shale_store* store;
  must(shale_store_open(&options, &store));
  Kv first = new_kv(96);
  prefill(store, prompt, 96, &first);
  shale_store_close(store);
  free_kv(first);

  // Later, in another process: the next prompt begins alike. Only what follows has to be computed.
  must(shale_store_open(&options, &store));
  Kv found = new_kv(128), computed = new_kv(128);
  const uint32_t loaded = prefill(store, prompt, 128, &found);
  compute(&computed, prompt, 0);
  int identical = loaded >= 96;
  for (size_t i = 0; i < (size_t)kLayers * kHeads * 128 * kDim; ++i) {
    identical = identical && found.keys[i] == computed.keys[i] && found.values[i] == computed.values[i];
  }
  shale_store_close(store);
  free_kv(found);
  free_kv(computed);
  printf("%u of 128 tokens loaded, %s\n", loaded, identical ? "bit-identical" : "DIFFERENT");
  return identical ? 0 : 1;
}
