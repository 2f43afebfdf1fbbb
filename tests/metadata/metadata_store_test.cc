#include "metadata/metadata_store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "metadata/metadata_store_fixture.h"
#include "metadata/sqlite.h"

namespace shale {
namespace {

TEST_F(MetadataStoreTest, KeepsPrefixesAcrossRestart) {
  const PrefixRecord record{.key = kFirst,
                            .tokens = 4096,
                            .frequency = 2.5,
                            .accesses = 7,
                            .age_s = 10,
                            .recompute_s = 12.5,
                            .label = "GPL-3, it's \"quoted\"\n"};
  ASSERT_TRUE(open()->record_prefix(record, kHalfLifeS));
  wall_s += 3600;
  const auto found = open()->prefix(kFirst);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->key, kFirst);
  EXPECT_EQ(found->tokens, 4096u);
  EXPECT_EQ(found->frequency, 2.5);
  EXPECT_EQ(found->accesses, 7u);
  EXPECT_DOUBLE_EQ(found->age_s, 3610);
  EXPECT_EQ(found->recompute_s, 12.5);
  EXPECT_EQ(found->label, record.label);
}

TEST_F(MetadataStoreTest, KnowsModelsByName) {
  ASSERT_TRUE(open()->record_model("one"));
  ASSERT_TRUE(open(kOtherModel)->record_model("another"));
  ASSERT_TRUE(open()->record_model("the one"));
  const auto models = open()->models();
  ASSERT_TRUE(models);
  ASSERT_EQ(models->size(), 2u);
  EXPECT_EQ((*models)[0].name, "another");
  EXPECT_EQ((*models)[1].name, "the one");
  EXPECT_EQ((*models)[1].fingerprint, kModel);
}

// Three accesses now and two a half-life ago are four; who writes later adds to what the other wrote.
TEST_F(MetadataStoreTest, AccessesOfSeveralProcessesAddUp) {
  const auto one = open(), other = open();
  ASSERT_TRUE(one->record_prefix({.key = kFirst, .frequency = 2, .accesses = 2, .recompute_s = 1}, kHalfLifeS));
  wall_s += kHalfLifeS;
  ASSERT_TRUE(other->record_prefix({.key = kFirst, .frequency = 3, .accesses = 3, .recompute_s = 2}, kHalfLifeS));
  const auto found = one->prefix(kFirst);
  EXPECT_EQ(found->accesses, 5u);
  EXPECT_DOUBLE_EQ(found->frequency, 4);
  EXPECT_DOUBLE_EQ(found->age_s, 0);
  EXPECT_EQ(found->recompute_s, 2);
  // An access that lies further back than what is known decays on its way.
  ASSERT_TRUE(one->record_prefix({.key = kFirst, .frequency = 1, .accesses = 1, .age_s = kHalfLifeS}, kHalfLifeS));
  EXPECT_DOUBLE_EQ(one->prefix(kFirst)->frequency, 4.5);
}

TEST_F(MetadataStoreTest, RecordsTogetherAllOrNothing) {
  const auto metadata_store = open();
  EXPECT_FALSE(metadata_store->together([&]() -> Status {
    SHALE_TRY(metadata_store->record_prefix({.key = kFirst}, kHalfLifeS));
    SHALE_TRY(metadata_store->record_prefill({100, 0, 1}));
    return fail(ErrorCode::kInternal, "something else went wrong");
  }));
  EXPECT_FALSE(metadata_store->prefix(kFirst));
  EXPECT_TRUE(metadata_store->prefills()->empty());
  EXPECT_TRUE(metadata_store->together([&] { return metadata_store->record_prefix({.key = kFirst}, kHalfLifeS); }));
  EXPECT_TRUE(metadata_store->prefix(kFirst));
}

TEST_F(MetadataStoreTest, UnknownIsNotFoundByName) {
  const auto metadata_store = open();
  const auto prefix = metadata_store->prefix(kUnknown);
  ASSERT_FALSE(prefix);
  EXPECT_EQ(prefix.error().code, ErrorCode::kNotFound);
  EXPECT_NE(prefix.error().message.find(kUnknown.hex()), std::string::npos);
  EXPECT_EQ(metadata_store->delay("disk", "").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(metadata_store->decode_bytes_per_s("none").error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(metadata_store->quality_for(kUnknown, kKeydiff, 0.5));
  EXPECT_TRUE(metadata_store->qualities(kUnknown)->empty());
  EXPECT_TRUE(metadata_store->questions(kUnknown)->empty());
  EXPECT_TRUE(metadata_store->forget(kUnknown));
}

TEST_F(MetadataStoreTest, ListsPrefixesByLastAccess) {
  const auto metadata_store = open();
  ASSERT_TRUE(metadata_store->record_prefix({.key = kFirst, .age_s = 100}, kHalfLifeS));
  ASSERT_TRUE(metadata_store->record_prefix({.key = kSecond, .age_s = 1}, kHalfLifeS));
  const auto prefixes = metadata_store->prefixes();
  ASSERT_EQ(prefixes->size(), 2u);
  EXPECT_EQ(prefixes->at(0).key, kSecond);
  EXPECT_EQ(prefixes->at(1).key, kFirst);
}

TEST_F(MetadataStoreTest, QualityIsThePrefixsOwnElseAFlaggedMeanElseUnknown) {
  const auto metadata_store = open();
  ASSERT_TRUE(metadata_store->record_quality({.key = kFirst, .method = kKeydiff, .keep = 0.5, .quality = 0.8}));
  ASSERT_TRUE(metadata_store->record_quality({.key = kSecond, .method = kKeydiff, .keep = 0.5, .quality = 0.6}));
  EXPECT_FALSE(metadata_store->quality_for(kUnknown, kKeydiff, 0.5)) << "two say nothing about others";
  ASSERT_TRUE(metadata_store->record_quality({.key = kThird, .method = kKeydiff, .keep = 0.5, .quality = 0.7}));
  const auto own = metadata_store->quality_for(kFirst, kKeydiff, 0.5);
  EXPECT_EQ(own->quality, 0.8);
  EXPECT_FALSE(own->prior());
  const auto prior = metadata_store->quality_for(kUnknown, kKeydiff, 0.5);
  EXPECT_NEAR(prior->quality, 0.7, 1e-12);
  EXPECT_TRUE(prior->prior());
  EXPECT_EQ(prior->prefixes, 3u);
  EXPECT_FALSE(metadata_store->quality_for(kFirst, kKeydiff, 0.25));
  EXPECT_FALSE(metadata_store->quality_for(kFirst, Method{"keydiff", "int8"}, 0.5));
  EXPECT_EQ(metadata_store->quality_for(kUnknown, Method::full(), 1)->quality, 1);

  // Measured again: replaced, in the mean too.
  ASSERT_TRUE(metadata_store->record_quality({.key = kFirst, .method = kKeydiff, .keep = 0.5, .quality = 0.4}));
  EXPECT_DOUBLE_EQ(metadata_store->quality_for(kUnknown, kKeydiff, 0.5)->quality, 1.7 / 3);
  EXPECT_EQ(metadata_store->qualities(kFirst)->size(), 1u);
}

TEST_F(MetadataStoreTest, WhatMoreQuestionsSayCountsByTheirNumber) {
  QualityRecord record{.key = kFirst, .method = kKeydiff, .keep = 0.5, .quality = 0.8, .kl = 0.4, .questions = 1};
  ASSERT_TRUE(open()->add_quality(record)) << "the first";
  record = {.key = kFirst, .method = kKeydiff, .keep = 0.5, .quality = 0.4, .kl = 0, .questions = 3};
  ASSERT_TRUE(open()->add_quality(record));
  EXPECT_DOUBLE_EQ(open()->qualities(kFirst)->at(0).quality + open()->qualities(kFirst)->at(0).kl, 0.5 + 0.1);
  EXPECT_EQ(open()->questions_measured(kFirst, kKeydiff), 4u);
}

TEST_F(MetadataStoreTest, MetricsNeverMix) {
  const auto metadata_store = open();
  EXPECT_EQ(metadata_store->metric(), kAgreement);
  for (const Hash128& key : {kFirst, kSecond, kThird}) {
    ASSERT_TRUE(metadata_store->record_quality({.key = key, .method = kKeydiff, .keep = 0.5, .quality = 0.9}));
  }
  metadata_store->bound_error(kFirst, kInt8, 0.01);
  EXPECT_TRUE(metadata_store->quality_for(kFirst, kInt8, 1));
  ASSERT_TRUE(metadata_store->record_question(kFirst, {"why?"}));

  const auto other = open();
  ASSERT_TRUE(other->measure_in("f1"));
  EXPECT_EQ(other->metric(), "f1");
  EXPECT_FALSE(other->quality_for(kFirst, kKeydiff, 0.5));
  EXPECT_FALSE(other->quality_for(kUnknown, kKeydiff, 0.5)) << "nor is there a prior";
  other->bound_error(kFirst, kInt8, 0.01);
  EXPECT_FALSE(other->quality_for(kFirst, kInt8, 1)) << "a bound of the next token is none of whole answers";
  EXPECT_EQ(other->questions(kFirst)->size(), 1u) << "what was asked is the same in all of them";
  ASSERT_TRUE(other->record_quality({.key = kFirst, .method = kKeydiff, .keep = 0.5, .quality = 0.4}));

  ASSERT_TRUE(metadata_store->refresh());
  EXPECT_EQ(metadata_store->quality_for(kFirst, kKeydiff, 0.5)->quality, 0.9);
  EXPECT_EQ(metadata_store->qualities(kFirst)->size(), 1u);
  ASSERT_TRUE(metadata_store->measure_in("f1"));
  EXPECT_EQ(metadata_store->quality_for(kFirst, kKeydiff, 0.5)->quality, 0.4);
  ASSERT_TRUE(metadata_store->measure_in("rouge_l"));
  EXPECT_TRUE(metadata_store->qualities(kFirst)->empty());
  ASSERT_TRUE(metadata_store->forget(kFirst));
  for (const std::string_view metric : {kAgreement, std::string_view("f1")}) {
    ASSERT_TRUE(metadata_store->measure_in(metric));
    EXPECT_TRUE(metadata_store->qualities(kFirst)->empty()) << metric;
  }
  ASSERT_TRUE(metadata_store->measure_in(kAgreement));
  EXPECT_EQ(metadata_store->quality_for(kSecond, kKeydiff, 0.5)->quality, 0.9) << "other prefixes stay";
}

// Two questions of 0.9 and four of the others' mean of 0.6 make 0.7; one profile alone is all there is to go by.
TEST_F(MetadataStoreTest, ExpectedQualityIsDrawnTowardOtherPrefixesByFewQuestions) {
  auto metadata_store = open();
  ASSERT_TRUE(metadata_store->record_quality(
      {.key = kFirst, .method = kKeydiff, .keep = 0.5, .quality = 0.9, .kl = 0, .questions = 2}));
  EXPECT_EQ(metadata_store->quality_for(kFirst, kKeydiff, 0.5)->expected, 0.9);
  ASSERT_TRUE(metadata_store->record_quality(
      {.key = kSecond, .method = kKeydiff, .keep = 0.5, .quality = 0.6, .kl = 0, .questions = 400}));
  for (int opened = 0; opened < 2; ++opened) {
    EXPECT_DOUBLE_EQ(metadata_store->quality_for(kFirst, kKeydiff, 0.5)->expected, 0.7);
    EXPECT_EQ(metadata_store->quality_for(kFirst, kKeydiff, 0.5)->quality, 0.9);
    EXPECT_NEAR(metadata_store->quality_for(kSecond, kKeydiff, 0.5)->expected, 0.6, 0.01) << "many questions stand";
    metadata_store.reset();
    metadata_store = open();
  }
}

TEST_F(MetadataStoreTest, QualitySurvivesRestartWithEverythingMeasured) {
  ASSERT_TRUE(open()->record_quality(
      {.key = kFirst, .method = kKeydiff, .keep = 0.1, .quality = 0.75, .kl = 0.3, .questions = 4}));
  wall_s += 5;
  const auto metadata_store = open();
  EXPECT_EQ(metadata_store->quality_for(kFirst, kKeydiff, 0.1)->quality, 0.75);
  const auto rows = metadata_store->qualities(kFirst);
  ASSERT_EQ(rows->size(), 1u);
  EXPECT_EQ(rows->at(0).method, kKeydiff);
  EXPECT_EQ(rows->at(0).keep, 0.1);
  EXPECT_EQ(rows->at(0).kl, 0.3);
  EXPECT_EQ(rows->at(0).questions, 4u);
  EXPECT_DOUBLE_EQ(rows->at(0).age_s, 5);
}

TEST_F(MetadataStoreTest, KindsOfContextsSurviveRestart) {
  {
    const auto metadata_store = open();
    ASSERT_TRUE(metadata_store->record_kind(kFirst, ContextKind::kCode));
    metadata_store->describe(kSecond, ContextKind::kDialogue, 500);
    EXPECT_EQ(metadata_store->kind(kSecond), ContextKind::kDialogue);
  }
  const auto metadata_store = open();
  EXPECT_EQ(metadata_store->kind(kFirst), ContextKind::kCode);
  EXPECT_FALSE(metadata_store->kind(kSecond)) << "known to that process alone";
  ASSERT_TRUE(metadata_store->forget(kFirst));
  EXPECT_FALSE(metadata_store->kind(kFirst));
  EXPECT_FALSE(open()->kind(kFirst));
}

// What another process records does not lose what this one knows of its contexts.
TEST_F(MetadataStoreTest, RefreshingKeepsWhatContextsAreLike) {
  const auto one = open(), other = open();
  one->describe(kUnknown, ContextKind::kCode, 1000);
  one->bound_error(kUnknown, kInt8, 0.01);
  for (const Hash128& key : {kFirst, kSecond, kThird}) {
    ASSERT_TRUE(other->record_quality({.key = key, .method = kKeydiff, .keep = 0.5, .quality = 0.8}));
  }
  ASSERT_TRUE(one->refresh());
  EXPECT_EQ(one->kind(kUnknown), ContextKind::kCode);
  EXPECT_EQ(one->quality_for(kUnknown, kKeydiff, 0.5)->source, QualitySource::kPrior);
  EXPECT_EQ(one->quality_for(kUnknown, kInt8, 1)->source, QualitySource::kBound);
}

// A row that is changed without a word is seen only where the table is read again.
TEST_F(MetadataStoreTest, WhatOthersAskIsNoReasonToReadQualitiesAgain) {
  const auto one = open(), other = open();
  ASSERT_TRUE(other->record_quality({.key = kFirst, .method = kKeydiff, .keep = 0.5, .quality = 0.8}));
  ASSERT_TRUE(one->record_kind(kFirst, ContextKind::kCode));
  ASSERT_TRUE(one->refresh());
  EXPECT_EQ(one->quality_for(kFirst, kKeydiff, 0.5)->quality, 0.8);
  ASSERT_TRUE(SqlDatabase::open(path(), 1000)->execute("UPDATE quality SET agreement = 0.7"));
  ASSERT_TRUE(one->record_kind(kSecond, ContextKind::kCode));
  ASSERT_TRUE(other->record_question(kFirst, {"Why?", false}));
  ASSERT_TRUE(one->refresh());
  EXPECT_EQ(one->quality_for(kFirst, kKeydiff, 0.5)->quality, 0.8);
  ASSERT_TRUE(other->forget(kSecond));
  ASSERT_TRUE(one->refresh());
  EXPECT_EQ(one->quality_for(kFirst, kKeydiff, 0.5)->quality, 0.7);
  EXPECT_FALSE(one->together([&]() -> Status {
    SHALE_TRY(one->record_kind(kThird, ContextKind::kCode));
    return fail(ErrorCode::kInternal, "taken back");
  }));
  ASSERT_TRUE(other->record_quality({.key = kFirst, .method = kKeydiff, .keep = 0.5, .quality = 0.6}));
  ASSERT_TRUE(one->refresh());
  EXPECT_EQ(one->quality_for(kFirst, kKeydiff, 0.5)->quality, 0.6) << "whatever was counted and taken back";
}

TEST(MetadataStoreInMemory, KnowsTheSameUntilItEnds) {
  {
    const auto metadata_store = MetadataStore::open_in_memory(kModel).value();
    ASSERT_TRUE(metadata_store->record_quality({.key = kFirst, .method = kKeydiff, .keep = 0.5, .quality = 0.8}));
    ASSERT_TRUE(metadata_store->record_prefix({.key = kFirst, .tokens = 7}, kHalfLifeS));
    ASSERT_TRUE(metadata_store->refresh());
    EXPECT_EQ(metadata_store->quality_for(kFirst, kKeydiff, 0.5)->quality, 0.8);
    EXPECT_EQ(metadata_store->prefix(kFirst)->tokens, 7u);
  }
  const auto next = MetadataStore::open_in_memory(kModel).value();
  EXPECT_FALSE(next->quality_for(kFirst, kKeydiff, 0.5));
}

TEST_F(MetadataStoreTest, ModelsDoNotSeeEachOther) {
  const auto metadata_store = open();
  ASSERT_TRUE(metadata_store->record_quality({.key = kFirst, .method = kKeydiff, .keep = 0.5, .quality = 0.8}));
  ASSERT_TRUE(metadata_store->record_prefix({.key = kFirst}, kHalfLifeS));
  ASSERT_TRUE(metadata_store->record_prefill({100, 0, 1}));
  const auto other = open(kOtherModel);
  EXPECT_FALSE(other->quality_for(kUnknown, kKeydiff, 0.5));
  EXPECT_FALSE(other->prefix(kFirst));
  EXPECT_TRUE(other->prefills()->empty());
  EXPECT_TRUE(other->forget(kFirst));
  EXPECT_TRUE(metadata_store->prefix(kFirst));
}

TEST_F(MetadataStoreTest, ForgetsAllOfAPrefix) {
  const auto metadata_store = open();
  for (const Hash128& key : {kFirst, kSecond}) {
    ASSERT_TRUE(metadata_store->record_prefix({.key = key}, kHalfLifeS));
    ASSERT_TRUE(metadata_store->record_quality({.key = key, .method = kKeydiff, .keep = 0.5, .quality = 0.8}));
    ASSERT_TRUE(metadata_store->record_question(key, {"why?", false}));
  }
  ASSERT_TRUE(metadata_store->forget(kFirst));
  EXPECT_FALSE(metadata_store->prefix(kFirst));
  EXPECT_TRUE(metadata_store->qualities(kFirst)->empty());
  EXPECT_TRUE(metadata_store->questions(kFirst)->empty());
  EXPECT_FALSE(metadata_store->quality_for(kFirst, kKeydiff, 0.5));
  EXPECT_TRUE(metadata_store->prefix(kSecond));
  EXPECT_EQ(metadata_store->questions(kSecond)->size(), 1u);
}

TEST_F(MetadataStoreTest, KeepsTheNewestQuestions) {
  const auto metadata_store = open();
  for (std::size_t i = 0; i < MetadataStore::kQuestionsMax + 5; ++i) {
    ASSERT_TRUE(metadata_store->record_question(kFirst, {fmt::format("question {}", i), i % 2 == 1}));
  }
  ASSERT_TRUE(metadata_store->record_question(kFirst, {"question 6", false}));  // asked again
  const auto questions = metadata_store->questions(kFirst);
  ASSERT_EQ(questions->size(), MetadataStore::kQuestionsMax);
  EXPECT_EQ(questions->at(0).text, "question 6");
  EXPECT_EQ(questions->at(1).text, "question 36");
  EXPECT_FALSE(questions->at(1).by_model);
  EXPECT_TRUE(questions->at(2).by_model);
  EXPECT_EQ(questions->back().text, "question 5");
}

TEST_F(MetadataStoreTest, KeepsDelaysAndNeverMixesEmulatedOnes) {
  const auto metadata_store = open();
  ASSERT_TRUE(metadata_store->record_delay("disk", "", {0.0001, 1.5e9, 2e9, 10}));
  ASSERT_TRUE(metadata_store->record_delay("disk", "hdd", {0.01, 1.5e8, 1e8, 3}));
  EXPECT_EQ(metadata_store->delay("disk", "")->read_bytes_per_s, 1.5e9);
  EXPECT_EQ(metadata_store->delay("disk", "hdd")->latency_s, 0.01);
  EXPECT_EQ(metadata_store->delay("disk", "hdd")->samples, 3u);
  ASSERT_TRUE(metadata_store->record_decode("int8", 9e9));
  ASSERT_TRUE(metadata_store->record_decode("int8", 8e9));
  EXPECT_EQ(*metadata_store->decode_bytes_per_s("int8"), 8e9);
}

TEST_F(MetadataStoreTest, KeepsTheNewestPrefills) {
  const auto metadata_store = open();
  for (std::uint32_t i = 0; i < MetadataStore::kPrefillSamplesMax + 3; ++i) {
    ASSERT_TRUE(metadata_store->record_prefill({i + 1, 2 * i, 0.5 * i}));
  }
  const auto samples = metadata_store->prefills();
  ASSERT_EQ(samples->size(), MetadataStore::kPrefillSamplesMax);
  EXPECT_EQ(samples->front().tokens, 4u);
  EXPECT_EQ(samples->back().depth, 2 * (MetadataStore::kPrefillSamplesMax + 2));
}

TEST_F(MetadataStoreTest, FilesArePrivate) {
  const auto metadata_store = open();
  ASSERT_TRUE(metadata_store->record_prefix({.key = kFirst}, kHalfLifeS));
  int files = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder_)) {
    struct stat status = {};
    ASSERT_EQ(::stat(file.path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u) << file.path();
    ++files;
  }
  EXPECT_GE(files, 2);  // the log is one
}

TEST_F(MetadataStoreTest, MissingFolderIsAnError) {
  const auto missing = MetadataStore::open(folder_ / "none" / "catalogue.sqlite", kModel);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kIo);
}

TEST_F(MetadataStoreTest, AnotherProcessReadsAndWritesMeanwhile) {
  const auto metadata_store = open();
  ASSERT_TRUE(metadata_store->record_prefix({.key = kFirst, .tokens = 11}, kHalfLifeS));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {  // a fresh connection: one must not cross a fork
    const auto other = MetadataStore::open(path(), kModel, test_wall_s);
    const bool fine = other && (*other)->prefix(kFirst) && (*other)->prefix(kFirst)->tokens == 11 &&
                      (*other)->record_quality({.key = kFirst, .method = kKeydiff, .keep = 0.5, .quality = 0.9});
    ::_exit(fine ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(metadata_store->quality_for(kFirst, kKeydiff, 0.5));
  ASSERT_TRUE(metadata_store->refresh());
  EXPECT_EQ(metadata_store->quality_for(kFirst, kKeydiff, 0.5)->quality, 0.9);
}

TEST_F(MetadataStoreTest, ReadersGoOnWhileAnotherWrites) {
  const auto metadata_store = open();
  ASSERT_TRUE(metadata_store->record_prefix({.key = kFirst, .tokens = 1}, kHalfLifeS));
  const auto writer = SqlDatabase::open(path(), 100);
  ASSERT_TRUE(writer->execute("BEGIN IMMEDIATE; UPDATE entry SET tokens = 2"));
  EXPECT_EQ(metadata_store->prefix(kFirst)->tokens, 1u);
  const auto second_writer = SqlDatabase::open(path(), 1);
  const Status refused = second_writer->execute("UPDATE entry SET tokens = 3");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kBusy);
  ASSERT_TRUE(writer->execute("COMMIT"));
  EXPECT_EQ(metadata_store->prefix(kFirst)->tokens, 2u);
}

TEST_F(MetadataStoreTest, ManyOpenAtOnceOnAFreshFolder) {
  std::vector<std::thread> threads;
  std::atomic<int> opened = 0;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] { opened += MetadataStore::open(path(), kModel, test_wall_s).has_value(); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(opened, 8);
}

}  // namespace
}  // namespace shale
