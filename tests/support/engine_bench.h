// An engine over a memory tier and a metadata store.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "support/byte_tokenizer.h"
#include "support/gguf_writer.h"
#include "support/run_types.h"
#include "support/temporary_folder.h"
#include "tiers/tiers.h"

namespace shale::testing {

struct EngineBench {
  TemporaryFolder folder;
  RealClock clock;
  std::unique_ptr<Model> model;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<PagePool> pool;
  std::unique_ptr<Cache> cache;
  std::unique_ptr<Engine> engine;

  void open(const std::filesystem::path& path, std::unique_ptr<Tokenizer> words, std::uint32_t threads,
            std::size_t pool_bytes, CacheOptions options = {}) {
    open({.weights = WeightChoice::kFile, .threads = threads}, path, std::move(words), pool_bytes, std::move(options));
  }
  void open(const ModelOptions& how, const std::filesystem::path& path, std::unique_ptr<Tokenizer> words,
            std::size_t pool_bytes, CacheOptions options = {}) {
    model = Model::load(path, how).value();
    tokenizer = std::move(words);
    pool = PagePool::create(model->page_shape(), pool_bytes).value();
    const Fingerprint fingerprint{model->fingerprint(), model->info().name};
    options.model = model->info().traits();
    std::vector<StoreTier> tiers;
    tiers.push_back({make_memory_tier(std::uint64_t{256} << 20, clock)});
    auto metadata_store = MetadataStore::open(folder.path() / "catalogue.sqlite", fingerprint.hash).value();
    cache =
        Cache::open(std::move(options), fingerprint, *pool, std::move(tiers), std::move(metadata_store), clock).value();
    engine = std::make_unique<Engine>(EngineOptions{}, *model, *tokenizer, *cache, clock);
  }

  // A real model in eight bits, which are quick, on one thread.
  void open_real(const std::filesystem::path& path) {
    const auto how = running_in(RunType::kQ8, RunType::kQ8, 0, path, folder.path() / "choices", 1);
    open(how, path, Tokenizer::load(path).value(), std::size_t{256} << 20);
  }

  // A tiny model of random weights, on one thread, that reads bytes.
  void open_tiny(std::size_t pool_bytes = std::size_t{64} << 20, CacheOptions options = {},
                 const TinyModel& tiny = {.tied_head = false}) {
    const auto path = folder.path() / "tiny.gguf";
    write_tiny_model(tiny, path);
    open(path, std::make_unique<ByteTokenizer>(), 1, pool_bytes, std::move(options));
  }
};

// Text of that many bytes or a few more.
inline std::string sentences(std::size_t bytes) {
  std::string text;
  for (int i = 0; text.size() < bytes; ++i) text += "Sentence number " + std::to_string(i) + " says little. ";
  return text;
}

}  // namespace shale::testing
