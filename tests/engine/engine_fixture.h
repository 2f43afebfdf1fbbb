// An engine over a tiny model, a memory tier and a disk.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "engine/engine.h"
#include "support/byte_tokenizer.h"
#include "support/gguf_writer.h"
#include "support/model_runner.h"
#include "support/temporary_folder.h"
#include "tier/faults.h"
#include "tiers/tiers.h"

namespace shale::testing {

// A tiny model computes sooner than any disk reads: to the engine its seconds are a thousand times as long, so that
// loading pays as it does for real models.
class SlowComputer final : public Clock {
 public:
  double now_s() const override { return 1000 * real_.now_s(); }
  void sleep_until_s(double) const override {}

 private:
  RealClock real_;
};

// Takes about a millisecond for a token, so that what is running can be interrupted; it repeats a token, and so ends no
// turn before.
inline TinyModel slow_model() { return {.layers = 6, .embedding = 256, .feed_forward = 768, .tied_head = true}; }

class EngineTest : public ::testing::Test {
 protected:
  // With a head of its own: one that is tied to such embeddings repeats the last token whatever came before it.
  explicit EngineTest(const TinyModel& tiny = {.tied_head = false}) {
    path_ = folder_.path() / "tiny.gguf";
    write_tiny_model(tiny, path_);
    hold(PageElement::kHalf);
  }

  // As a new process whose pages hold something else would.
  void hold(PageElement element) {
    engine_.reset();
    cache_.reset();
    pool_.reset();
    model_ =
        Model::load(path_, {.weights = WeightChoice::kFile, .threads = 1, .page_element = element, .float32 = true})
            .value();
    open();
  }

  // As a new process would: nothing of the pool or the memory tier is left.
  void open(std::uint32_t pool_blocks = 256) {
    engine_.reset();
    cache_.reset();
    pool_ = PagePool::create(model_->page_shape(), pool_blocks * model_->page_shape().block_bytes()).value();
    std::vector<StoreTier> tiers(2);
    tiers[0].tier = make_memory_tier(tier_bytes_, clock_);
    DiskTierOptions disk{.folder = folder_.path() / "disk", .capacity_bytes = 16 * tier_bytes_};
    disk.several_writers = true;
    tiers[1].tier = make_disk_tier(disk, clock_).value();
    if (faults_) tiers[1].tier = make_faulty_tier(std::move(tiers[1].tier), faults_, clock_);
    tiers[1].folder = disk.folder;
    const Fingerprint fingerprint{model_->fingerprint(), "tiny"};
    auto metadata_store = MetadataStore::open(folder_.path() / "catalogue.sqlite", fingerprint.hash).value();
    CacheOptions options = cache_options_;
    options.model = model_->info().traits();
    options.quick_answers = model_->has_quick();
    cache_ = Cache::open(std::move(options), fingerprint, *pool_, std::move(tiers), std::move(metadata_store), clock_)
                 .value();
    engine_ = std::make_unique<Engine>(EngineOptions{.sequences_max = 4, .chunk_tokens = 128, .query_window = 64},
                                       *model_, tokenizer_, *cache_, slow_);
  }

  // Ends engine and cache, and flips a bit of every large blob on the disk, at the byte that `place` says for its size.
  void damage_disk(const std::function<std::uintmax_t(std::uintmax_t size)>& place) {
    engine_.reset();
    cache_.reset();
    for (const auto& file : std::filesystem::recursive_directory_iterator(folder_.path() / "disk")) {
      if (!file.is_regular_file() || file.file_size() < 4096) continue;
      std::fstream bytes(file.path(), std::ios::in | std::ios::out | std::ios::binary);
      const auto at = static_cast<std::streamoff>(place(file.file_size()));
      bytes.seekg(at);
      const char byte = static_cast<char>(bytes.get() ^ 4);
      bytes.seekp(at);
      bytes.put(byte);
    }
  }

  // A context of its own, then a question.
  static Request ask(std::uint32_t document, std::size_t context_tokens, std::uint32_t question) {
    Request request;
    request.spans.push_back(
        {.tokens = random_tokens(context_tokens, 256, document), .store = true, .label = "document"});
    request.spans.push_back({.tokens = random_tokens(9, 256, 1000 + question), .store = false, .label = ""});
    request.max_tokens = 12;
    return request;
  }

  // A prompt without a context, of which nothing is kept, unless the pool keeps prefixes as a server's does. Its answer
  // is as long as it may be.
  static Request generate(std::uint32_t seed, std::size_t prompt, std::uint32_t tokens, bool insert_prefix = false) {
    Request request;
    request.spans.push_back({.tokens = random_tokens(prompt, 256, seed), .store = false, .label = ""});
    request.max_tokens = tokens;
    request.ignore_end = true;
    request.insert_prefix = insert_prefix;
    return request;
  }

  // Each of some methods, named: the answer is lossy now and after restart, and the same. Where the lossy form is not
  // kept, it is made again of the exact one, or of a new computation where its scorer reads queries.
  void expect_named_methods_restart(bool kept = true) {
    for (const char* text : {"knorm", "snapkv+int8", "kivi4"}) {
      Request request = ask(3, 200, 1);
      request.policy.method = Method::parse(text).value();
      request.policy.keep = request.policy.method->scorer.empty() ? 1 : 0.5;
      const Response first = engine_->run(request);
      ASSERT_FALSE(first.error) << text << ": " << first.error->message;
      EXPECT_TRUE(first.lossy) << text;
      drain();
      open();
      const Response loaded = engine_->run(request);
      EXPECT_TRUE(loaded.lossy) << text;
      const bool computed = !kept && request.policy.method->scorer == "snapkv";
      EXPECT_EQ(loaded.cached.from("disk"), computed ? 0u : 192u) << text;
      EXPECT_EQ(loaded.tokens, first.tokens) << text;
      drain();
    }
  }

  void drain() {
    while (engine_->stores_any() && engine_->run_once()) continue;
    cache_->drain(model_->executor());
    const Status status = cache_->check_integrity();
    ASSERT_TRUE(status) << status.error().message;
  }

  std::uint64_t tier_bytes_ = std::uint64_t{64} << 20;  // of memory; sixteen times as much of disk
  CacheOptions cache_options_;
  TemporaryFolder folder_;
  std::filesystem::path path_;
  RealClock clock_;
  SlowComputer slow_;
  std::shared_ptr<const FaultFile> faults_ = {};  // of the disk
  VirtualClock time_;                             // for those who hand it to the cache
  ByteTokenizer tokenizer_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<PagePool> pool_;
  std::unique_ptr<Cache> cache_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace shale::testing
