// A QualityWatch over an engine, and questions about one context.
#pragma once

#include <gtest/gtest.h>

#include "profile/profile.h"
#include "profile/quality_watch.h"
#include "support/engine_bench.h"

namespace shale::testing {

inline const Stop kNever = [] { return false; };

class QualityWatchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    bench_.open_tiny();
    context_ = bench_.tokenizer->tokenize(sentences(200), false);
    options_.check.answer_tokens = 8;
    options_.prior = false;
    options_.profile_new = false;
    options_.keep_questions = false;
  }

  Request ask(const std::string& question) {
    Request request;
    request.spans = {{context_, true, "doc"}, {bench_.tokenizer->tokenize(question, false), false, {}}};
    return request;
  }
  void ask_several(QualityWatch& watch, const std::string& what, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) watch.on_request(ask(what + std::to_string(i)));
  }
  MetadataStore& metadata_store() { return *bench_.cache->metadata_store(); }
  std::vector<QualityRecord> profiled() { return metadata_store().qualities(bench_.cache->run_of(context_)).value(); }
  // Says of the context that every configuration agreed so far.
  void profile(double agreement) {
    const AskedContext asked{{}, context_, {bench_.tokenizer->tokenize("what?", false)}};
    ASSERT_TRUE(profile_context(*bench_.engine, asked, {.methods = {"knorm", "int8"}, .answer_tokens = 8}));
    for (QualityRecord row : profiled()) {
      row.quality = agreement;
      ASSERT_TRUE(metadata_store().record_quality(row));
    }
  }
  // As an idle engine would.
  static int work_all(QualityWatch& watch) {
    int pieces = 0;
    while (watch.work(kNever)) ++pieces;
    return pieces;
  }
  // While a request and others fill the pool, which they leave in the end.
  void work_beside_full_pool(QualityWatch& watch) {
    Request request = ask("what?");
    request.max_tokens = 100;
    const std::uint64_t id = bench_.engine->submit(std::move(request)).value();
    bench_.engine->run_once();
    ASSERT_EQ(bench_.engine->running(), 1u);
    {
      Sequence others(*bench_.pool);
      while (others.append(bench_.pool->shape().block_size)) continue;
      EXPECT_LT(work_all(watch), 5);
      EXPECT_EQ(watch.stats().interrupted, 1u);
    }
    EXPECT_FALSE(watch.work(kNever)) << "not at once";
    bench_.engine->cancel(id);
    bench_.engine->run_once();
  }

  EngineBench bench_;
  std::vector<Token> context_;
  QualityWatchOptions options_;
};

}  // namespace shale::testing
