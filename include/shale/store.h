// Shale's store in plain C (C11): KV of known token prefixes at rest in tiers, for any engine. Blocks are found by key,
// loaded into and saved from the engine's own memory, and nothing waits unless its name says so.
//
//   shale_store* store;
//   shale_store_options options = {.name_space = "my-model v1, rope 10000",
//                                  .geometry = {.layers = 32, .kv_heads = 8, .head_dim = 128, .block_tokens = 16},
//                                  .tiers = "memory:?size=4GiB,file:///var/kv?size=100GiB"};
//   shale_store_open(&options, &store);
//   shale_block_keys("", tokens, count, 16, NULL, 0, keys);                    // one key a block
//   shale_store_lookup(store, keys, blocks, NULL, NULL, &found);               // found.blocks need no computation
//   shale_store_load(store, keys, found.blocks, &view, NULL, &load);           // into the engine's own blocks
//   shale_load_wait_layer(load, 0);                                            // or shale_load_poll() from a loop
//   shale_store_save(store, keys, blocks, &view, NULL, &save);                 // what is there is not stored again
//
// docs/guides/embedding.md shows whole programs; store.hpp is the same in C++.
//
// Versions. SHALE_VERSION is the header's, shale_version() the library's. Until 1.0 they must be the same: no call
// tells, so a program whose library may be another one than it was built with compares them first.
//
// Errors. A function that may fail returns a shale_code. shale_error_message() on the same thread has its message: one
// line that says what was given, what is allowed and what to do. Nothing throws. Handles must be what these calls gave;
// all other arguments are checked.
//
// Zero is the default. Initialise structures by name, as above; a field that is left out has the value that its comment
// gives for 0.
//
// Threads. Several threads may call any functions of one store at the same time. A load or a save belongs to one thread
// at a time. Arguments are copied or not needed after the call, except the memory that a view points to.
//
// Processes. Open a store after fork(): a child of a process that has one open must not touch it, and holds its locks
// on folders for as long as it runs without exec().
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SHALE_VERSION "0.1.0"
const char* shale_version(void);

typedef enum shale_code {
  SHALE_OK = 0,
  SHALE_INVALID_ARGUMENT = 1,  // the caller's input is wrong
  SHALE_NOT_FOUND = 2,         // gone meanwhile
  SHALE_CORRUPT = 3,           // stored bytes fail a checksum: they are not served again
  SHALE_MISMATCH = 4,          // sound bytes of other tokens, another model or another version
  SHALE_UNSUPPORTED = 5,
  SHALE_FULL = 6,  // no tier has room
  SHALE_IO = 7,    // the operating system said no
  SHALE_BUSY = 8,  // a program of another format holds the folder
  SHALE_CANCELLED = 9,
  SHALE_INTERNAL = 10,  // a bug, or no memory
} shale_code;

// The message of this thread's last call that returned a code other than SHALE_OK; "" if none did. Valid until the
// thread's next call of this interface.
const char* shale_error_message(void);

// Keys ------------------------------------------------------------------------------------------------------------

// Names a block and all that comes before it: equal keys mean equal prefixes. Made by the caller, by any hash.
typedef struct shale_key {
  uint8_t bytes[32];
} shale_key;

// Keys of the whole blocks of `tokens`, token_count / block_tokens of them, as vLLM makes them with
// `--prefix-caching-hash-algo sha256_cbor` and `seed` as PYTHONHASHSEED. Every key also covers `extras`: an adapter's
// name, hashes of images. NULL and 0: nothing.
shale_code shale_block_keys(const char* seed, const int32_t* tokens, size_t token_count, uint32_t block_tokens,
                            const char* const* extras, size_t extra_count, shale_key* keys);

// Views -----------------------------------------------------------------------------------------------------------

typedef enum shale_element {
  SHALE_F16 = 0,
  SHALE_BF16 = 1,
  SHALE_F32 = 2,
  SHALE_OPAQUE = 3,  // bytes that only their engine understands: kept exactly, never compressed
} shale_element;

// The shape that all views of a store share.
typedef struct shale_geometry {
  shale_element element;
  uint32_t layers;
  uint32_t kv_heads;         // opaque: 0
  uint32_t head_dim;         // opaque: 0
  uint32_t block_tokens;     // 0: 16
  uint32_t opaque_bytes[2];  // of opaque blocks: in a layer's array of keys, and of values (0: one array holds both)
} shale_geometry;

// The keys, or the values, of all layers. Physical block 0, token 0, KV head 0, channel 0 of layer l lies at layers[l],
// or at base + l · layer_stride if `layers` is NULL. Strides are in bytes, none is negative, and no two elements share
// a byte. The stride of a dimension of one is not read. Opaque blocks have layer_stride and block_stride only.
typedef struct shale_array {
  void* base;
  void* const* layers;
  int64_t layer_stride, block_stride, token_stride, head_stride, channel_stride;
} shale_array;

// A run of tokens in the engine's memory, beginning with a block's first token. Its logical block i is physical block
// block_table[i], or i if the table is NULL. A save only reads through it.
typedef struct shale_view {
  shale_array keys, values;
  const uint32_t* block_table;  // one entry a block of the run
  uint32_t physical_blocks;     // that the arrays hold, for checking the table; 0: not known
  uint32_t tokens;              // in the run: whole blocks
} shale_view;

// Two plain arrays [layers][kv_heads][tokens][head_dim], of a geometry that must not be NULL.
shale_view shale_plain_view(const shale_geometry* geometry, void* keys, void* values, uint32_t tokens);

// Store -----------------------------------------------------------------------------------------------------------

typedef struct shale_store shale_store;
typedef struct shale_load shale_load;
typedef struct shale_save shale_save;

// How blocks lie at rest. Copies are fastest where views lie likewise.
typedef enum shale_packing {
  SHALE_PACKING_NHD = 0,         // [block_tokens][kv_heads][head_dim]
  SHALE_PACKING_HND = 1,         // [kv_heads][block_tokens][head_dim]: plain arrays
  SHALE_PACKING_HEAD_PAGES = 2,  // by head, keys transposed: Shale's own pool
} shale_packing;

// How the store decides what lies where, and how compressed, when tiers are full (docs/methods/placement.md). All may
// be zero. Other planners and methods, and an alpha below zero, are SHALE_INVALID_ARGUMENT.
typedef struct shale_placement {
  const char* planner;  // "shale" (as NULL), "lru", "lfu"
  double alpha;         // shale: seconds of waiting that a unit of quality is worth; 0: 1
  // Methods beside full that extents may be compressed by, comma-separated; NULL: none. Their scorers must read keys
  // and values alone.
  const char* methods;
  // The quality, [0, 1], of answers over the run's tokens by that method at that keep. Negative: not known; then no
  // extent of the run is compressed so. `run` has 16 bytes (shale_save_hints). The store's threads, those of tiers too,
  // and its callers' call it, one at a time, while others wait for the store: it must be quick and call no function of
  // the store. `context` must outlive the store. NULL: nothing is known.
  double (*quality)(void* context, const uint8_t* run, const char* method, double keep);
  // Likewise without the run: the quality of an extent that another process stored so and left on a shared tier, where
  // nobody says it. NULL: 0, and no request with a least quality takes it.
  double (*quality_found)(void* context, const char* method, double keep);
  void* context;  // of both
} shale_placement;

typedef struct shale_store_options {
  // Everything beside the geometry that must agree before KV may be used again: model and weights, numerics, RoPE, the
  // hash of keys and its seed. KV of another namespace or geometry is neither returned nor touched.
  const char* name_space;
  shale_geometry geometry;
  // URLs of tiers, fast to slow, comma-separated: memory:?size=4GiB, file:///folder?size=100GiB (of this machine; any
  // number of processes), dir:///mount, redis://host, s3://bucket (shared by machines; nothing is removed there to make
  // room).
  const char* tiers;
  shale_packing packing;
  uint32_t chunk_tokens;          // what partial hits are rounded up to, when read; 0: 256
  uint64_t staging_bytes;         // read and not yet in a view, or encoded and not yet on a tier; 0: 256 MiB
  uint64_t manifest_cache_bytes;  // of what extents hold, kept parsed; 0: 32 MiB
  double frequency_half_life_s;   // of accesses, by which extents are kept; 0: 600
  // That encode and move; 0: one; negative: none, and the owner calls shale_store_work(). Tiers but memory: have others,
  // which wait for storage and never encode.
  int32_t threads;
  uint32_t events_max;  // kept until taken, in 16 MiB at most; 0: 65,536
  // Storage in trouble is no error of opening: such a tier has no room and nothing, and is opened when it can be.
  // shale_tier_stats says what the trouble is. Trouble that no waiting would mend still is an error.
  bool late;
  shale_placement placement;
} shale_store_options;

shale_code shale_store_open(const shale_store_options* options, shale_store** store);
// Free every load and save before. Blocks not yet encoded are dropped; writes in flight end. NULL is ignored.
void shale_store_close(shale_store* store);

// The blocks that a request accepts. Zero, or NULL in place of one: exact blocks alone, bit for bit as saved.
typedef struct shale_needs {
  bool lossy;
  double quality_min;  // of lossy blocks, in [0, 1], as their saver said
} shale_needs;

typedef struct shale_lookup {
  uint32_t blocks;        // leading ones that a load would bring
  uint32_t exact_blocks;  // leading ones of these that are exact
  uint32_t tier;          // the slowest that would be read
  bool pending;           // shared tiers are being asked for more: look again
  double quality;         // the least of them
  double ready_s;         // until all are in the view, behind what is being read now
} shale_lookup;

// `tenant` here and below: NULL or "" is a tenant, too. Tenants never see one another's blocks.
shale_code shale_store_lookup(shale_store* store, const shale_key* keys, size_t key_count, const shale_needs* needs,
                              const char* tenant, shale_lookup* found);

// These act on the extents that hold the stored leading blocks of `keys`; `blocks` (or NULL) says how many blocks.
shale_code shale_store_touch(shale_store* store, const shale_key* keys, size_t key_count, const char* tenant,
                             uint32_t* blocks);  // counts as a use
// Pinned extents are neither dropped nor expired until they are unpinned as often, or until this process ends.
shale_code shale_store_pin(shale_store* store, const shale_key* keys, size_t key_count, const char* tenant,
                           uint32_t* blocks);
shale_code shale_store_unpin(shale_store* store, const shale_key* keys, size_t key_count, const char* tenant,
                             uint32_t* blocks);
// Extents whose blocks are all among `keys` are forgotten at once and deleted behind that; pinned ones stay.
shale_code shale_store_remove(shale_store* store, const shale_key* keys, size_t key_count, const char* tenant,
                              uint32_t* blocks);

// Bounds the bytes of a tenant's extents from now on, in all forms and copies, on all tiers but shared ones; 0: no
// bound, as for tenants that were never named. Bounds are not kept: say them again after shale_store_open(). The
// tenant's own extents, never another's, are dropped for what is saved beyond the bound: first those with the least
// uses × computing time per byte, and the last of what was saved together, so that its front can still be used. An
// extent that is worth less than these, or finds them pinned, is not saved: SHALE_FULL. Extents that earlier processes
// left count; those beyond a new bound go at once. Of several processes in one folder, each goes by its own bounds for
// what it removes there.
shale_code shale_store_set_quota(shale_store* store, const char* tenant, uint64_t bytes_max);

// An eventfd. It is readable after anything has arrived or ended for any load or save, and while an event waits. Read
// it (8 bytes; that never blocks), then poll what is in flight. It belongs to the store: do not close it. -1: none.
int shale_store_event_fd(const shale_store* store);
// Encodes, writes, moves and asks on this thread for about `budget_s`, for stores without threads; one caller at a
// time. `worked` (or NULL): false when there was nothing to do.
shale_code shale_store_work(shale_store* store, double budget_s, bool* worked);
// Blocks until everything that was saved lies where it belongs.
shale_code shale_store_flush(shale_store* store);
// Blocks until index, tiers and folders have been compared; SHALE_INTERNAL if they differ. For tests, when idle.
shale_code shale_store_check_integrity(shale_store* store);

// Loading ---------------------------------------------------------------------------------------------------------

typedef struct shale_load_options {
  shale_needs needs;
  const char* tenant;
  uint32_t first_block;   // the view's first block is keys[first_block]; keys before it are only names
  const int32_t* tokens;  // the chain's, from its first, or NULL; compared with those that were saved, where known
  size_t token_count;
} shale_load_options;

// Begins to load the stored blocks of keys[first_block …) into `view`. The view must have room for all of these keys'
// blocks and stay until the load is done, cancelled or freed. It is written only inside poll and wait. If nothing is
// found, the load has no blocks. Chunks are brought whole: the view's blocks of one that begins before it fail as
// SHALE_NOT_FOUND; shale_load_skipped() has them at once, and a second load may bring them into a view of that chunk.
shale_code shale_store_load(shale_store* store, const shale_key* keys, size_t key_count, const shale_view* view,
                            const shale_load_options* options, shale_load** load);
void shale_load_free(shale_load* load);  // cancels; NULL is ignored

uint32_t shale_load_blocks(const shale_load* load);  // that were found when it was asked for
// Of these, leading ones whose chunk begins before the view: they fail, and their memory stays untouched.
uint32_t shale_load_skipped(const shale_load* load);
// Decodes what has arrived. `done` (or NULL): nothing more will come.
shale_code shale_load_poll(shale_load* load, bool* done);
// Whether layers [0, layer] of all blocks that did not fail are in the view.
bool shale_load_layer_ready(const shale_load* load, uint32_t layer);
// Block until then, or until nothing more will come. The second fails only if no block came at all.
shale_code shale_load_wait_layer(shale_load* load, uint32_t layer);
shale_code shale_load_wait(shale_load* load);
// The view is the caller's again at once.
void shale_load_cancel(shale_load* load);
bool shale_load_done(const shale_load* load);

// Blocks of the view that did not come: SHALE_NOT_FOUND, SHALE_CORRUPT, SHALE_MISMATCH or SHALE_IO. The view's contents
// there are undefined.
typedef struct shale_failure {
  uint32_t first_block, blocks;
  shale_code code;
  const char* message;
} shale_failure;
// Blocks of the view that were stored together. If tokens were dropped, each head has rows[layer · kv_heads + head] of
// them, in order of position, from the run's first row; the run's other rows are unchanged. NULL: all tokens.
typedef struct shale_run {
  uint32_t first_block, blocks;
  const char* method;  // "full", "int8", "keydiff+kivi4"
  double keep;
  const uint32_t* rows;
} shale_run;
// Once done. Both fill at most `max` of the array, and `count` says how many there are; pointers live as long as the
// load.
shale_code shale_load_failures(const shale_load* load, shale_failure* failures, size_t max, size_t* count);
shale_code shale_load_runs(shale_load* load, shale_run* runs, size_t max, size_t* count);

// Keys under which KV that was computed on top of loaded blocks must be saved. They are `keys` if all loaded blocks are
// exact, else keys of its lineage, which nobody who computed on exact blocks ever finds. `lossy` (or NULL) says which.
// `keys` and `to` may be the same array.
shale_code shale_load_lineage_keys(const shale_load* load, const shale_key* keys, size_t key_count, shale_key* to,
                                   bool* lossy);

// Saving ----------------------------------------------------------------------------------------------------------

// What scorers read beside keys and values, gathered while the view's tokens were computed; each part NULL if it was
// not. Floats; copied.
typedef struct shale_attention_statistics {
  uint32_t query_heads;
  uint32_t window;                // of the last tokens, whose queries are given
  const float* queries;           // [layers][query_heads][window][head_dim], after RoPE
  const float* attention_sums;    // [layers][kv_heads][tokens]
  const float* query_mean;        // [layers][query_heads][head_dim], before RoPE
  const float* query_covariance;  // [layers][query_heads][head_dim][head_dim]
} shale_attention_statistics;

typedef struct shale_save_hints {
  const char* tenant;
  uint32_t first_block;        // the view's first block is keys[first_block]
  const uint32_t* boundaries;  // blocks after which an extent ends (a system prompt, a document, a turn); ascending
  size_t boundary_count;
  const char* method;     // `[budget:]scorer[+quantizer]`, `quantizer` or, as NULL, `full`
  double keep;            // share of tokens kept: 0.1, 0.25, 0.5, 0.75 or 1; 0: 1. Where less lies there, it stays so
  double quality;         // of that method at that keep, as measured or believed, for shale_needs; 0: 1
  double recompute_s;     // seconds that these blocks took to compute; cheap ones are given up first; 0: not known
  const char* label;      // for people
  bool pin;               // as by shale_store_pin() with these keys, but for what another save is storing just now
  double time_to_live_s;  // from now; 0: none. On a shared tier this process removes them, and others know of no end
  const int32_t* tokens;  // the chain's, from its first, or NULL; compared when loading
  size_t token_count;
  const shale_attention_statistics* statistics;
  const uint8_t* run;  // 16 bytes, by which qualities are known of these tokens; NULL: made from their keys
} shale_save_hints;

// Begins to store the view's blocks that are not stored yet. The view must stay until the save is released.
shale_code shale_store_save(shale_store* store, const shale_key* keys, size_t key_count, const shale_view* view,
                            const shale_save_hints* hints, shale_save** save);
void shale_save_free(shale_save* save);  // cancels what has not been encoded; NULL is ignored

bool shale_save_released(const shale_save* save);  // the view is not read any more, for whatever reason
bool shale_save_done(const shale_save* save);      // all blocks can be found, or an error is known
// Block until then; without threads of the store's own, by doing the work. The second returns the first error.
shale_code shale_save_wait_released(shale_save* save);
shale_code shale_save_wait(shale_save* save);
// Blocks until the view is not being read, a millisecond.
void shale_save_cancel(shale_save* save);
uint32_t shale_save_shared_blocks(const shale_save* save);  // of the view, that were there already

// Metrics and events ----------------------------------------------------------------------------------------------

typedef struct shale_tenant_stats {
  const char* tenant;
  uint64_t bytes;      // at rest, on all tiers but shared ones
  uint64_t bytes_max;  // of shale_store_set_quota(); 0: no bound
  // Extents that were dropped for others of the tenant, and that were not stored, so as to stay within it.
  uint64_t dropped_for_room, refused;
  uint64_t lookups, blocks_asked, blocks_found, blocks_loaded, blocks_saved;
} shale_tenant_stats;

typedef struct shale_tier_stats {
  const char* name;
  uint64_t extents, chunks, bytes, capacity_bytes;
  uint64_t blocks_loaded, bytes_read, bytes_written, demoted, removed;
  const char* trouble;  // why it is not open yet, or last failed; NULL: all is well
} shale_tier_stats;

typedef struct shale_stats {
  const shale_tenant_stats* tenants;
  size_t tenant_count;
  const shale_tier_stats* tiers;  // fast to slow
  size_t tier_count;
  uint64_t extents, chunks, index_bytes;  // index_bytes: memory that the index takes
  uint64_t saves, blocks_shared;
  uint64_t extents_failed;  // to be stored
  uint64_t damaged_chunks, stale_extents, expired_extents, discovered_extents;
  uint64_t events_lost, staged_bytes;
} shale_stats;

// A snapshot, which the caller frees.
shale_code shale_store_stats(const shale_store* store, shale_stats** stats);
void shale_stats_free(shale_stats* stats);

typedef enum shale_event_kind {
  SHALE_STORED = 0,
  SHALE_REMOVED = 1,
  SHALE_LOST = 2,  // events were dropped, because nobody took them: ask anew
} shale_event_kind;

typedef struct shale_event {
  shale_event_kind kind;
  uint32_t tier;
  const char* tenant;
  shale_key parent;       // of the first block; zero for a chain's first
  const shale_key* keys;  // consecutive blocks of one chain
  size_t key_count;
  uint32_t block_tokens;
} shale_event;

typedef struct shale_events {
  const shale_event* events;
  size_t count;
} shale_events;

// Takes at most `max` events of this store's own doing, oldest first; the caller frees them.
shale_code shale_store_take_events(shale_store* store, size_t max, shale_events** events);
void shale_events_free(shale_events* events);

#ifdef __cplusplus
}
#endif
