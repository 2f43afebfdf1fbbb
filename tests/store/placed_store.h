// A store whose extents may become others, and chains of blocks for it.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <optional>
#include <vector>

#include "store/store_fixture.h"

namespace shale::testing {

inline constexpr std::uint32_t kBlocks = 64;               // an extent of 16 chunks, 200 KiB exact and 115 KiB as int8
inline constexpr std::uint64_t kRoomForThree = 640 << 10;  // exact ones
inline const StoreNeeds kAny = {.exact = false};

inline std::vector<BlockKey> chain_number(int number) { return chain_of(1000 * (number + 1), kBlocks); }

// Quality as a measurement might have it: int8 loses little, dropping tokens more.
inline StoreOptions with_methods(std::initializer_list<const char*> methods) {
  StoreOptions options = small_options();
  for (const char* method : methods) options.placement.methods.push_back(Method::parse(method).value());
  options.placement.quality = [](const Hash128&, const Method& method, double keep) -> std::optional<double> {
    return (method.quantizer == "none" ? 1.0 : 0.999) - 0.1 * (1 - keep);
  };
  return options;
}

class StorePlacementTest : public StoreTest {
 protected:
  // One after the other, each where it belongs before the next.
  static void save_chains(Store& store, int end, const StoreHints& hints = {}, int first = 0) {
    for (int c = first; c < end; ++c) {
      const Status saved = save_all(store, chain_number(c), hints);
      ASSERT_TRUE(saved) << "chain " << c << ": " << saved.error().message;
      ASSERT_TRUE(store.flush());
    }
  }
  static std::uint32_t found(Store& store, int count, const StoreNeeds& needs = kAny) {
    std::uint32_t blocks = 0;
    for (int c = 0; c < count; ++c) blocks += store.lookup(chain_number(c), needs).blocks;
    return blocks;
  }
};

}  // namespace shale::testing
