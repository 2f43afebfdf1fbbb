// Stores the KV of a prompt, forgets it, and fetches it back through a longer prompt: what an engine does with Shale.
#include <shale/cache.h>

#include <cstdio>
#include <cstdlib>
#include <numeric>

namespace {

// What went wrong is for people; here it ends the program.
template <class T>
T must(std::expected<T, shale::KvError> result) {
  if (!result) {
    std::fprintf(stderr, "%s\n", result.error().message.c_str());
    std::exit(1);
  }
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

}  // namespace

int main(int argc, char** argv) {
  const char* folder = argc > 1 ? argv[1] : "kv-cache";
  const shale::KvGeometry geometry{.layers = 4, .kv_heads = 2, .head_dim = 64};
  const std::size_t token_elements = 4 * 2 * 64;
  const shale::KvCacheOptions options{
      .model = "example weights, example tokenizer", .geometry = geometry, .memory_bytes = 0, .folder = folder};

  // A prompt of 100 tokens and what the engine computed for it, [layers][kv_heads][tokens][head_dim].
  std::vector<std::int32_t> prompt(100);
  std::iota(prompt.begin(), prompt.end(), 1000);
  std::vector<std::uint16_t> keys(prompt.size() * token_elements), values(keys.size());
  std::iota(keys.begin(), keys.end(), std::uint16_t{0});
  std::iota(values.begin(), values.end(), std::uint16_t{30000});
  must(must(shale::KvCache::open(options))->store(prompt, keys, values));

  // Later, in another process: the next prompt starts alike. Only what follows the hit has to be computed.
  const auto cache = must(shale::KvCache::open(options));
  prompt.resize(130, 7);
  std::vector<std::uint16_t> found_keys(prompt.size() * token_elements), found_values(found_keys.size());
  const shale::KvFetched hit = must(cache->fetch(prompt, found_keys, found_values));

  bool identical = hit.tokens == 100 && !hit.lossy;
  for (std::size_t head = 0; identical && head < 4 * 2; ++head) {
    for (std::size_t i = 0; i < 100 * 64; ++i) {
      const std::size_t stored = head * 100 * 64 + i, found = head * prompt.size() * 64 + i;
      identical = identical && keys[stored] == found_keys[found] && values[stored] == found_values[found];
    }
  }
  std::printf("%u of %zu tokens fetched, %s\n", hit.tokens, prompt.size(), identical ? "bit-identical" : "DIFFERENT");
  return identical ? 0 : 1;
}
