// What a request accepts of a store, and what it is told of what it found and loaded.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "codec/method.h"
#include "core/error.h"
#include "core/hash.h"

namespace shale {

// What a request accepts, and from where. Exact means bit for bit as it was saved. Of the accepted variants, the one
// with the most (α · quality − seconds to load) is taken.
struct StoreNeeds {
  bool exact = true;
  double quality_min = 0;  // of lossy blocks, in [0, 1], as their saver said
  // This variant is taken wherever it is there, at that keep or a larger one, and read at that keep; elsewhere what the
  // fields above accept.
  std::optional<Method> method = std::nullopt;
  double keep = 1;
  std::uint32_t exact_after = ~std::uint32_t{0};  // chunks that reach beyond so many blocks of the chain must be exact
  std::uint8_t tiers_excluded = 0;                // bit by tier: not asked
};

struct StoreLookup {
  // Part of one extent, fast to read in one go: where loading no longer pays is found by these.
  struct PrefixSpan {
    std::uint32_t first_block = 0, blocks = 0;  // of the chain
    std::uint32_t tier = 0;
    Method method;
    double keep = 1;
    double quality = 1;
    std::uint64_t bytes = 0;  // to be read
    Hash128 run;
    bool exact = true;
    double ready_s = 0;  // until it and all before it are in the view
  };
  std::vector<PrefixSpan> spans = {};  // in order
  std::uint32_t blocks = 0;            // leading ones that load() would bring
  std::uint32_t exact_blocks = 0;      // leading ones of these that are exact
  double quality = 1;                  // the least of them
  std::uint32_t tier = 0;              // the slowest that would be read
  double ready_s = 0;                  // until all are in the view, behind what is being read now
  bool pending = false;                // shared tiers are being asked for more: look again
};

struct StoreLoadOptions {
  StoreNeeds needs = {};
  std::string tenant = {};
  // Loads keys[first_block …) into the view, whose first block is that one: for reading from the back while the front
  // is computed. Keys before it are only names.
  std::uint32_t first_block = 0;
  std::uint32_t end_block = 0;  // loads what is there before keys[end_block]; 0: all
  // The chain's tokens, from its first; compared with those that were saved, where both are known. Differing blocks
  // fail as kMismatch.
  std::span<const std::int32_t> tokens = {};
  bool counts = true;  // as a use of what it reads; false where that was told already (Store::touch)
};

// One extent's part of what was loaded. Rows of lossy ones: `rows[layer][head]` tokens, in order of position, from the
// run's first row on; the run's other rows are as they were.
struct StoreRun {
  std::uint32_t first_block = 0;  // within the view
  std::uint32_t blocks = 0;
  Method method;
  double keep = 1;
  std::vector<std::uint32_t> rows = {};  // [layers][kv_heads]; empty: all tokens
};

struct StoreFailure {
  std::uint32_t first_block = 0,
                blocks = 0;  // within the view: these were not brought, what the view holds is undefined
  Error error;               // kNotFound: gone meanwhile; kCorrupt: damaged, and not served again; kIo
};

}  // namespace shale
