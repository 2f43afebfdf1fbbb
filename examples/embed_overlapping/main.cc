// An engine with paged blocks that computes while its cached prefix is still on the way, in C++: layer l of the new
// tokens is computed as soon as layer l of the cached ones is there, and nothing waits for what it saves.
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <shale/store.hpp>

namespace {

namespace kv = shale::kv;

constexpr std::uint32_t kLayers = 8, kHeads = 2, kDim = 64, kBlockTokens = 16, kPoolBlocks = 64;
constexpr kv::Geometry kGeometry = {
    .element = SHALE_F16, .layers = kLayers, .kv_heads = kHeads, .head_dim = kDim, .block_tokens = kBlockTokens};

// What went wrong is for people; here it ends the program.
template <class T>
T must(kv::Result<T> result) {
  if (!result) {
    std::fprintf(stderr, "%s\n", result.error().message.c_str());
    std::exit(1);
  }
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

// Stands for an engine with blocks as vLLM has them: [layers][blocks][block_tokens][kv_heads][head_dim].
class Engine {
 public:
  // A sequence in blocks that are scattered over the pool.
  explicit Engine(std::vector<std::int32_t> prompt) : prompt_(std::move(prompt)) {
    for (std::size_t block = 0; block < prompt_.size() / kBlockTokens; ++block) {
      block_table_.push_back(static_cast<std::uint32_t>((block * 37 + 5) % kPoolBlocks));
    }
  }

  const std::vector<std::int32_t>& prompt() const { return prompt_; }
  kv::View view() {
    const auto array = [](std::vector<std::uint16_t>& pool) {
      return shale_array{.base = pool.data(),
                         .layers = nullptr,
                         .layer_stride = sizeof(std::uint16_t) * kPoolBlocks * kBlockElements,
                         .block_stride = sizeof(std::uint16_t) * kBlockElements,
                         .token_stride = sizeof(std::uint16_t) * kHeads * kDim,
                         .head_stride = sizeof(std::uint16_t) * kDim,
                         .channel_stride = sizeof(std::uint16_t)};
    };
    return {.keys = array(keys_),
            .values = array(values_),
            .block_table = block_table_.data(),
            .physical_blocks = kPoolBlocks,
            .tokens = static_cast<std::uint32_t>(prompt_.size())};
  }

  // Computes tokens from `first` on in one layer, which reads that layer's keys and values of all tokens before them.
  void compute_layer(std::uint32_t layer, std::uint32_t first) {
    for (std::uint32_t token = first; token < prompt_.size(); ++token) {
      for (std::uint32_t i = 0; i < kHeads * kDim; ++i) {
        const std::size_t at = offset(layer, token) + i;
        keys_[at] = static_cast<std::uint16_t>(prompt_[token] * 31 + layer + i);
        values_[at] = static_cast<std::uint16_t>(prompt_[token] * 17 + token + i);
      }
    }
    for (std::uint32_t token = 0; token < prompt_.size(); ++token) {  // attention, of sorts
      for (std::uint32_t i = 0; i < kHeads * kDim; ++i) {
        const std::size_t at = offset(layer, token) + i;
        output_ = output_ * 1099511628211u + keys_[at] * 3u + values_[at];
      }
    }
  }
  std::uint64_t output() const { return output_; }

 private:
  static constexpr std::size_t kBlockElements = kBlockTokens * kHeads * kDim;
  std::size_t offset(std::uint32_t layer, std::uint32_t token) const {
    const std::size_t block = std::size_t{layer} * kPoolBlocks + block_table_[token / kBlockTokens];
    return block * kBlockElements + token % kBlockTokens * kHeads * kDim;
  }

  std::vector<std::int32_t> prompt_;
  std::vector<std::uint32_t> block_table_;
  std::vector<std::uint16_t> keys_ = std::vector<std::uint16_t>(kLayers * kPoolBlocks * kBlockElements);
  std::vector<std::uint16_t> values_ = keys_;
  std::uint64_t output_ = 14695981039346656037u;
};

// Tokens that came from the store; nothing where a part of them was lost on the way, and all must be computed.
std::optional<std::uint32_t> prefill(Engine& engine, kv::Store& store, const std::vector<kv::Key>& keys) {
  kv::Load load = must(store.load(keys, engine.view()));
  const std::uint32_t cached = load.blocks() * kBlockTokens;
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    must(load.wait_layer(layer));  // a loop with other work polls instead, and comes back
    engine.compute_layer(layer, cached);
  }
  while (!must(load.poll())) {
  }
  if (!must(load.failures()).empty()) return std::nullopt;
  return cached;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string tiers = std::string("file:") + (argc > 1 ? argv[1] : "kv-store") + "?size=1GiB";
  kv::Store store = must(kv::Store::open(
      {.name_space = "example weights 2, example tokenizer", .geometry = kGeometry, .tiers = tiers.c_str()}));

  // A document, and a question about it later.
  std::vector<std::int32_t> document(512), chat(640);
  std::iota(document.begin(), document.end(), 1000);
  std::iota(chat.begin(), chat.end(), 1000);

  Engine first(document);
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) first.compute_layer(layer, 0);
  const std::vector<kv::Key> document_keys = must(kv::block_keys(document, kBlockTokens));
  kv::Save save = must(store.save(document_keys, first.view(), {.label = "the document"}));
  // The engine goes on. Before it reuses these blocks, released() must have become true; here it waits at once.
  must(save.wait_released());
  must(save.wait());

  Engine second(chat);
  const auto cached = prefill(second, store, must(kv::block_keys(chat, kBlockTokens)));
  Engine alone(chat);
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) alone.compute_layer(layer, 0);

  const bool identical = cached && *cached >= document.size() && second.output() == alone.output();
  std::printf("%u of %zu tokens loaded while computing, %s\n", cached.value_or(0), chat.size(),
              identical ? "the same output" : "ANOTHER OUTPUT");
  return identical ? 0 : 1;
}
