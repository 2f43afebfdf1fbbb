#include "cache/catalogue.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "cache/sqlite.h"

namespace shale {
namespace {

constexpr Hash128 kModel{1, 1}, kOtherModel{2, 2};
constexpr Hash128 kFirst{3, 3}, kSecond{4, 4}, kUnknown{5, 5};
constexpr double kHalfLifeS = 600;
const Method kKeydiff{"keydiff", "none"};

double wall_s = 0;
double test_wall_s() { return wall_s; }

class CatalogueTest : public ::testing::Test {
 protected:
  void SetUp() override {
    wall_s = 1e9;
    std::string name = ::testing::TempDir() + "catalogueXXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path path() const { return folder_ / "catalogue.sqlite"; }
  std::unique_ptr<Catalogue> open(const Hash128& model = kModel) const {
    auto opened = Catalogue::open(path(), model, test_wall_s);
    EXPECT_TRUE(opened) << opened.error().message;
    return std::move(*opened);
  }
  void write_file(const std::string& bytes) const { std::ofstream(path(), std::ios::binary) << bytes; }

  std::filesystem::path folder_;
};

std::string read_all(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_F(CatalogueTest, RemembersEntriesAcrossRestart) {
  const EntryRecord record{.key = kFirst,
                           .tokens = 4096,
                           .frequency = 2.5,
                           .accesses = 7,
                           .age_s = 10,
                           .recompute_s = 12.5,
                           .label = "GPL-3, it's \"quoted\"\n"};
  ASSERT_TRUE(open()->record_entry(record, kHalfLifeS));
  wall_s += 3600;
  const auto found = open()->entry(kFirst);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->key, kFirst);
  EXPECT_EQ(found->tokens, 4096u);
  EXPECT_EQ(found->frequency, 2.5);
  EXPECT_EQ(found->accesses, 7u);
  EXPECT_DOUBLE_EQ(found->age_s, 3610);
  EXPECT_EQ(found->recompute_s, 12.5);
  EXPECT_EQ(found->label, record.label);
}

// Three accesses now and two a half-life ago are four; who writes later adds to what the other wrote.
TEST_F(CatalogueTest, AccessesOfSeveralProcessesAddUp) {
  const auto one = open(), other = open();
  ASSERT_TRUE(one->record_entry({.key = kFirst, .frequency = 2, .accesses = 2, .recompute_s = 1}, kHalfLifeS));
  wall_s += kHalfLifeS;
  ASSERT_TRUE(other->record_entry({.key = kFirst, .frequency = 3, .accesses = 3, .recompute_s = 2}, kHalfLifeS));
  const auto found = one->entry(kFirst);
  EXPECT_EQ(found->accesses, 5u);
  EXPECT_DOUBLE_EQ(found->frequency, 4);
  EXPECT_DOUBLE_EQ(found->age_s, 0);
  EXPECT_EQ(found->recompute_s, 2);
  // An access that lies further back than what is known decays on its way.
  ASSERT_TRUE(one->record_entry({.key = kFirst, .frequency = 1, .accesses = 1, .age_s = kHalfLifeS}, kHalfLifeS));
  EXPECT_DOUBLE_EQ(one->entry(kFirst)->frequency, 4.5);
}

TEST_F(CatalogueTest, RecordsTogetherAllOrNothing) {
  const auto catalogue = open();
  EXPECT_FALSE(catalogue->together([&]() -> Status {
    SHALE_TRY(catalogue->record_entry({.key = kFirst}, kHalfLifeS));
    SHALE_TRY(catalogue->record_prefill({100, 0, 1}));
    return fail(ErrorCode::kInternal, "something else went wrong");
  }));
  EXPECT_FALSE(catalogue->entry(kFirst));
  EXPECT_TRUE(catalogue->prefills()->empty());
  EXPECT_TRUE(catalogue->together([&] { return catalogue->record_entry({.key = kFirst}, kHalfLifeS); }));
  EXPECT_TRUE(catalogue->entry(kFirst));
}

TEST_F(CatalogueTest, UnknownIsNotFoundByName) {
  const auto catalogue = open();
  const auto entry = catalogue->entry(kUnknown);
  ASSERT_FALSE(entry);
  EXPECT_EQ(entry.error().code, ErrorCode::kNotFound);
  EXPECT_NE(entry.error().message.find(kUnknown.hex()), std::string::npos);
  EXPECT_EQ(catalogue->delay("disk", "").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(catalogue->decode_bytes_per_s("none").error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(catalogue->quality_for(kUnknown, kKeydiff, 0.5));
  EXPECT_TRUE(catalogue->qualities(kUnknown)->empty());
  EXPECT_TRUE(catalogue->questions(kUnknown)->empty());
  EXPECT_TRUE(catalogue->forget(kUnknown));
}

TEST_F(CatalogueTest, ListsEntriesByLastAccess) {
  const auto catalogue = open();
  ASSERT_TRUE(catalogue->record_entry({.key = kFirst, .age_s = 100}, kHalfLifeS));
  ASSERT_TRUE(catalogue->record_entry({.key = kSecond, .age_s = 1}, kHalfLifeS));
  const auto entries = catalogue->entries();
  ASSERT_EQ(entries->size(), 2u);
  EXPECT_EQ(entries->at(0).key, kSecond);
  EXPECT_EQ(entries->at(1).key, kFirst);
}

TEST_F(CatalogueTest, QualityIsTheEntrysOwnElseAFlaggedMeanElseUnknown) {
  const auto catalogue = open();
  ASSERT_TRUE(catalogue->record_quality({.key = kFirst, .method = kKeydiff, .keep = 0.5, .agreement = 0.8}));
  ASSERT_TRUE(catalogue->record_quality({.key = kSecond, .method = kKeydiff, .keep = 0.5, .agreement = 0.6}));
  const auto own = catalogue->quality_for(kFirst, kKeydiff, 0.5);
  EXPECT_EQ(own->quality, 0.8);
  EXPECT_FALSE(own->prior);
  const auto prior = catalogue->quality_for(kUnknown, kKeydiff, 0.5);
  EXPECT_DOUBLE_EQ(prior->quality, 0.7);
  EXPECT_TRUE(prior->prior);
  EXPECT_EQ(prior->entries, 2u);
  EXPECT_FALSE(catalogue->quality_for(kFirst, kKeydiff, 0.25));
  EXPECT_FALSE(catalogue->quality_for(kFirst, Method{"keydiff", "int8"}, 0.5));
  EXPECT_EQ(catalogue->quality_for(kUnknown, Method::full(), 1)->quality, 1);

  // Measured again: replaced, in the mean too.
  ASSERT_TRUE(catalogue->record_quality({.key = kFirst, .method = kKeydiff, .keep = 0.5, .agreement = 0.4}));
  EXPECT_DOUBLE_EQ(catalogue->quality_for(kUnknown, kKeydiff, 0.5)->quality, 0.5);
  EXPECT_EQ(catalogue->qualities(kFirst)->size(), 1u);
}

// Two questions of 0.9 and four of the others' mean of 0.6 make 0.7; one profile alone is all there is to go by.
TEST_F(CatalogueTest, ExpectedQualityIsDrawnTowardOtherEntriesByFewQuestions) {
  auto catalogue = open();
  ASSERT_TRUE(catalogue->record_quality(
      {.key = kFirst, .method = kKeydiff, .keep = 0.5, .agreement = 0.9, .kl = 0, .questions = 2}));
  EXPECT_EQ(catalogue->quality_for(kFirst, kKeydiff, 0.5)->expected, 0.9);
  ASSERT_TRUE(catalogue->record_quality(
      {.key = kSecond, .method = kKeydiff, .keep = 0.5, .agreement = 0.6, .kl = 0, .questions = 400}));
  for (int opened = 0; opened < 2; ++opened) {
    EXPECT_DOUBLE_EQ(catalogue->quality_for(kFirst, kKeydiff, 0.5)->expected, 0.7);
    EXPECT_EQ(catalogue->quality_for(kFirst, kKeydiff, 0.5)->quality, 0.9);
    EXPECT_NEAR(catalogue->quality_for(kSecond, kKeydiff, 0.5)->expected, 0.6, 0.01) << "many questions stand";
    EXPECT_DOUBLE_EQ(catalogue->quality_for(kUnknown, kKeydiff, 0.5)->expected, 0.75);
    catalogue.reset();
    catalogue = open();
  }
}

TEST_F(CatalogueTest, QualitySurvivesRestartWithEverythingMeasured) {
  ASSERT_TRUE(open()->record_quality(
      {.key = kFirst, .method = kKeydiff, .keep = 0.1, .agreement = 0.75, .kl = 0.3, .questions = 4}));
  wall_s += 5;
  const auto catalogue = open();
  EXPECT_EQ(catalogue->quality_for(kFirst, kKeydiff, 0.1)->quality, 0.75);
  const auto rows = catalogue->qualities(kFirst);
  ASSERT_EQ(rows->size(), 1u);
  EXPECT_EQ(rows->at(0).method, kKeydiff);
  EXPECT_EQ(rows->at(0).keep, 0.1);
  EXPECT_EQ(rows->at(0).kl, 0.3);
  EXPECT_EQ(rows->at(0).questions, 4u);
  EXPECT_DOUBLE_EQ(rows->at(0).age_s, 5);
}

TEST_F(CatalogueTest, ModelsDoNotSeeEachOther) {
  const auto catalogue = open();
  ASSERT_TRUE(catalogue->record_quality({.key = kFirst, .method = kKeydiff, .keep = 0.5, .agreement = 0.8}));
  ASSERT_TRUE(catalogue->record_entry({.key = kFirst}, kHalfLifeS));
  ASSERT_TRUE(catalogue->record_prefill({100, 0, 1}));
  const auto other = open(kOtherModel);
  EXPECT_FALSE(other->quality_for(kUnknown, kKeydiff, 0.5));
  EXPECT_FALSE(other->entry(kFirst));
  EXPECT_TRUE(other->prefills()->empty());
  EXPECT_TRUE(other->forget(kFirst));
  EXPECT_TRUE(catalogue->entry(kFirst));
}

TEST_F(CatalogueTest, ForgetsAllOfAnEntry) {
  const auto catalogue = open();
  for (const Hash128& key : {kFirst, kSecond}) {
    ASSERT_TRUE(catalogue->record_entry({.key = key}, kHalfLifeS));
    ASSERT_TRUE(catalogue->record_quality({.key = key, .method = kKeydiff, .keep = 0.5, .agreement = 0.8}));
    ASSERT_TRUE(catalogue->record_question(key, {"why?", false}));
  }
  ASSERT_TRUE(catalogue->forget(kFirst));
  EXPECT_FALSE(catalogue->entry(kFirst));
  EXPECT_TRUE(catalogue->qualities(kFirst)->empty());
  EXPECT_TRUE(catalogue->questions(kFirst)->empty());
  EXPECT_TRUE(catalogue->quality_for(kFirst, kKeydiff, 0.5)->prior);
  EXPECT_TRUE(catalogue->entry(kSecond));
  EXPECT_EQ(catalogue->questions(kSecond)->size(), 1u);
}

TEST_F(CatalogueTest, KeepsTheNewestQuestions) {
  const auto catalogue = open();
  for (std::size_t i = 0; i < Catalogue::kQuestionsMax + 5; ++i) {
    ASSERT_TRUE(catalogue->record_question(kFirst, {fmt::format("question {}", i), i % 2 == 1}));
  }
  ASSERT_TRUE(catalogue->record_question(kFirst, {"question 6", false}));  // asked again
  const auto questions = catalogue->questions(kFirst);
  ASSERT_EQ(questions->size(), Catalogue::kQuestionsMax);
  EXPECT_EQ(questions->at(0).text, "question 6");
  EXPECT_EQ(questions->at(1).text, "question 36");
  EXPECT_FALSE(questions->at(1).by_model);
  EXPECT_TRUE(questions->at(2).by_model);
  EXPECT_EQ(questions->back().text, "question 5");
}

TEST_F(CatalogueTest, RemembersDelaysAndNeverMixesEmulatedOnes) {
  const auto catalogue = open();
  ASSERT_TRUE(catalogue->record_delay("disk", "", {0.0001, 1.5e9, 2e9, 10}));
  ASSERT_TRUE(catalogue->record_delay("disk", "hdd", {0.01, 1.5e8, 1e8, 3}));
  EXPECT_EQ(catalogue->delay("disk", "")->read_bytes_per_s, 1.5e9);
  EXPECT_EQ(catalogue->delay("disk", "hdd")->latency_s, 0.01);
  EXPECT_EQ(catalogue->delay("disk", "hdd")->samples, 3u);
  ASSERT_TRUE(catalogue->record_decode("int8", 9e9));
  ASSERT_TRUE(catalogue->record_decode("int8", 8e9));
  EXPECT_EQ(*catalogue->decode_bytes_per_s("int8"), 8e9);
}

TEST_F(CatalogueTest, KeepsTheNewestPrefills) {
  const auto catalogue = open();
  for (std::uint32_t i = 0; i < Catalogue::kPrefillSamplesMax + 3; ++i) {
    ASSERT_TRUE(catalogue->record_prefill({i + 1, 2 * i, 0.5 * i}));
  }
  const auto samples = catalogue->prefills();
  ASSERT_EQ(samples->size(), Catalogue::kPrefillSamplesMax);
  EXPECT_EQ(samples->front().tokens, 4u);
  EXPECT_EQ(samples->back().depth, 2 * (Catalogue::kPrefillSamplesMax + 2));
}

TEST_F(CatalogueTest, FilesArePrivate) {
  const auto catalogue = open();
  ASSERT_TRUE(catalogue->record_entry({.key = kFirst}, kHalfLifeS));
  int files = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder_)) {
    struct stat status = {};
    ASSERT_EQ(::stat(file.path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u) << file.path();
    ++files;
  }
  EXPECT_GE(files, 2);  // the log is one
}

TEST_F(CatalogueTest, DamagedFileIsMovedAsideWithAWarning) {
  const std::string junk(8192, 'x');
  write_file(junk);
  const auto catalogue = open();
  ASSERT_TRUE(catalogue->warning());
  EXPECT_EQ(catalogue->warning()->code, ErrorCode::kCorrupt);
  EXPECT_NE(catalogue->warning()->message.find(".corrupt"), std::string::npos);
  EXPECT_EQ(read_all(path().string() + ".corrupt"), junk);
  EXPECT_TRUE(catalogue->record_entry({.key = kFirst}, kHalfLifeS));
  EXPECT_FALSE(open()->warning());
}

// Who finds the damage second must not move aside what the first one made of it.
TEST_F(CatalogueTest, OneOfSeveralProcessesRepairsAndNoneLosesARecord) {
  constexpr int kProcesses = 6;
  const std::string junk(20000, 'j');
  for (int round = 0; round < 15; ++round) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
    write_file(junk);
    std::vector<pid_t> children;
    for (std::uint64_t i = 0; i < kProcesses; ++i) {
      children.push_back(::fork());
      if (children.back() != 0) continue;
      const auto opened = Catalogue::open(path(), kModel, test_wall_s);
      const Status recorded =
          opened ? (*opened)->record_entry({.key = {i, i}}, kHalfLifeS) : Status(std::unexpected(opened.error()));
      if (!recorded) std::fprintf(stderr, "%s\n", recorded.error().message.c_str());
      ::_exit(recorded ? 0 : 1);
    }
    for (const pid_t child : children) {
      int status = -1;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0);
    }
    EXPECT_EQ(open()->entries()->size(), kProcesses);
    EXPECT_EQ(read_all(path().string() + ".corrupt"), junk);
  }
}

TEST_F(CatalogueTest, DamageBehindASoundHeaderIsFoundToo) {
  {
    const auto catalogue = open();
    for (std::uint64_t i = 0; i < 500; ++i)
      ASSERT_TRUE(catalogue->record_entry({.key = {i, i}, .label = "x"}, kHalfLifeS));
  }
  std::string bytes = read_all(path());
  ASSERT_GT(bytes.size(), 20000u);
  for (std::size_t i = 8192; i < bytes.size(); ++i) bytes[i] = 'x';
  write_file(bytes);
  const auto catalogue = open();
  ASSERT_TRUE(catalogue->warning());
  EXPECT_TRUE(catalogue->entries()->empty());
}

// Whatever numbers a foreign or damaged file holds, none that cannot have been measured reaches a plan.
TEST_F(CatalogueTest, RowsThatCannotHaveBeenMeasuredAreNotSeen) {
  const auto put = [&](Catalogue& catalogue) {
    ASSERT_TRUE(catalogue.record_quality({.key = kFirst, .method = kKeydiff, .keep = 0.5, .agreement = 0.9}));
    ASSERT_TRUE(catalogue.record_entry({.key = kFirst, .tokens = 5, .frequency = 1}, kHalfLifeS));
    ASSERT_TRUE(catalogue.record_delay("disk", "", {.latency_s = 1, .read_bytes_per_s = 1, .samples = 1}));
    ASSERT_TRUE(catalogue.record_decode("int8", 1e9));
    ASSERT_TRUE(catalogue.record_prefill({.tokens = 5, .depth = 0, .seconds = 1}));
  };
  const auto seen = [&](const Catalogue& catalogue) {
    return catalogue.qualities(kFirst)->size() + (catalogue.quality_for(kFirst, kKeydiff, 0.5) ? 1 : 0) +
           (catalogue.entry(kFirst) ? 1 : 0) + catalogue.entries()->size() + (catalogue.delay("disk", "") ? 1 : 0) +
           (catalogue.decode_bytes_per_s("int8") ? 1 : 0) + catalogue.prefills()->size();
  };
  put(*open());
  ASSERT_EQ(seen(*open()), 7u);
  struct Damage {
    const char* sql;
    std::size_t seen;
  };
  for (const auto& [sql, left] :
       {Damage{"UPDATE quality SET agreement = 1.5", 5}, Damage{"UPDATE quality SET agreement = 9e999", 5},
        Damage{"UPDATE quality SET keep = -0.5", 5}, Damage{"UPDATE quality SET kl = 'much'", 5},
        Damage{"UPDATE quality SET questions = -1", 5}, Damage{"UPDATE entry SET frequency = 1e300", 5},
        Damage{"UPDATE entry SET tokens = 4294967296", 5}, Damage{"UPDATE entry SET accesses = 'many'", 5},
        Damage{"UPDATE entry SET recompute_s = -1", 5}, Damage{"UPDATE delay SET latency_s = -9e999", 6},
        Damage{"UPDATE delay SET read_bytes_per_s = 1e30", 6}, Damage{"UPDATE decode SET bytes_per_s = -1", 6},
        Damage{"UPDATE prefill SET seconds = x'00'", 6}}) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
    put(*open());
    ASSERT_TRUE(SqlDatabase::open(path(), 100)->execute(sql)) << sql;
    EXPECT_EQ(seen(*open()), left) << sql;
  }
}

TEST_F(CatalogueTest, TruncationToNothingBeginsAnew) {
  open();
  write_file("");
  const auto catalogue = open();
  EXPECT_FALSE(catalogue->warning());
  EXPECT_TRUE(catalogue->record_entry({.key = kFirst}, kHalfLifeS));
}

TEST_F(CatalogueTest, AnotherVersionIsRefusedAndLeftAlone) {
  ASSERT_TRUE(open()->record_entry({.key = kFirst}, kHalfLifeS));
  {
    const auto database = SqlDatabase::open(path(), 100);
    ASSERT_TRUE(database->execute("PRAGMA user_version = 99; PRAGMA wal_checkpoint(TRUNCATE)"));
  }
  const auto refused = Catalogue::open(path(), kModel);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kMismatch);
  EXPECT_NE(refused.error().message.find("version 99"), std::string::npos);
  EXPECT_NE(refused.error().message.find(path().string()), std::string::npos);
  ASSERT_TRUE(SqlDatabase::open(path(), 100)->execute("PRAGMA user_version = 1"));
  EXPECT_TRUE(open()->entry(kFirst));
}

TEST_F(CatalogueTest, AnotherProgramsDatabaseIsRefused) {
  ASSERT_TRUE(SqlDatabase::open(path(), 100)->execute("CREATE TABLE recipes (name TEXT)"));
  const auto refused = Catalogue::open(path(), kModel);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kMismatch);
}

TEST_F(CatalogueTest, MissingFolderIsAnError) {
  const auto missing = Catalogue::open(folder_ / "none" / "catalogue.sqlite", kModel);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kIo);
}

TEST_F(CatalogueTest, AnotherProcessReadsAndWritesMeanwhile) {
  const auto catalogue = open();
  ASSERT_TRUE(catalogue->record_entry({.key = kFirst, .tokens = 11}, kHalfLifeS));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {  // a fresh connection: one must not cross a fork
    const auto other = Catalogue::open(path(), kModel, test_wall_s);
    const bool fine = other && (*other)->entry(kFirst) && (*other)->entry(kFirst)->tokens == 11 &&
                      (*other)->record_quality({.key = kFirst, .method = kKeydiff, .keep = 0.5, .agreement = 0.9});
    ::_exit(fine ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(catalogue->quality_for(kFirst, kKeydiff, 0.5));
  ASSERT_TRUE(catalogue->refresh());
  EXPECT_EQ(catalogue->quality_for(kFirst, kKeydiff, 0.5)->quality, 0.9);
}

TEST_F(CatalogueTest, ReadersGoOnWhileAnotherWrites) {
  const auto catalogue = open();
  ASSERT_TRUE(catalogue->record_entry({.key = kFirst, .tokens = 1}, kHalfLifeS));
  const auto writer = SqlDatabase::open(path(), 100);
  ASSERT_TRUE(writer->execute("BEGIN IMMEDIATE; UPDATE entry SET tokens = 2"));
  EXPECT_EQ(catalogue->entry(kFirst)->tokens, 1u);
  const auto second_writer = SqlDatabase::open(path(), 1);
  const Status refused = second_writer->execute("UPDATE entry SET tokens = 3");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kBusy);
  ASSERT_TRUE(writer->execute("COMMIT"));
  EXPECT_EQ(catalogue->entry(kFirst)->tokens, 2u);
}

TEST_F(CatalogueTest, ManyOpenAtOnceOnAFreshFolder) {
  std::vector<std::thread> threads;
  std::atomic<int> opened = 0;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] { opened += Catalogue::open(path(), kModel, test_wall_s).has_value(); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(opened, 8);
}

}  // namespace
}  // namespace shale
