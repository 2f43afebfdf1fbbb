// Snapshots and logs: what one store writes another reads, whatever ended it, and damage is noticed.
#include "extents/index_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <utility>

#include "store/index_folder_fixture.h"

namespace shale::testing {
namespace {

namespace fs = std::filesystem;
using Type = IndexRecord::Type;

// One of each type but the introduction of realms, with something in every field that it has.
std::vector<IndexRecord> one_of_each() {
  IndexRecord whole = stored(5);
  whole.facts.run = {11, 12};
  whole.facts.label = "a label";
  whole.facts.rankings = "h2o,";
  whole.facts.frequency = 3.5f;
  whole.facts.first_block = 13;
  IndexRecord writing = about(Type::kWriting, 6), removed = about(Type::kRemoved, 7), lease = about(Type::kLease, 8);
  writing.bytes = 14;
  removed.bytes = 15;
  lease.until_s = 16;
  lease.expires_s = 17;
  IndexRecord used = about(Type::kUsed, 9), damaged = about(Type::kDamaged, 10), consumed = about(Type::kConsumed, 0),
              unread = about(Type::kUnread, 11);
  used.frequency = 18.5f;
  damaged.chunk = 19;
  unread.chunk = 24;
  consumed.session = 20;
  consumed.offset = 21;
  for (IndexRecord* untagged : {&lease, &used, &damaged, &unread, &consumed}) untagged->tag = 0;
  consumed.name = {};
  const IndexRecord end{.type = Type::kEnd, .time_s = 22};
  return {whole, writing, removed, about(Type::kSettled, 23), lease, used, damaged, unread, consumed, end};
}

TEST(IndexRecords, EveryFieldOfEveryTypeComesBack) {
  std::vector<IndexRecord> records = one_of_each();
  records.push_back(stored(6));  // of another realm
  records.back().realm_number = 1;
  RecordWriter writer;
  for (const IndexRecord& record : records) writer.add(record);
  const auto bytes = writer.take();
  std::span<const std::byte> rest = bytes;
  RecordReader reader;
  std::vector<IndexRecord> read;
  std::vector<Realm> realms;
  while (!rest.empty()) {
    IndexRecord record;
    ASSERT_TRUE(reader.next(rest, record).value());
    if (record.type == Type::kRealm) {
      EXPECT_EQ(record.realm_number, realms.size());
      realms.push_back(record.realm);
    } else {
      read.push_back(record);
    }
  }
  EXPECT_TRUE(read == records);
  for (std::size_t i = 0; i < std::min(read.size(), records.size()); ++i) {
    EXPECT_TRUE(read[i] == records[i]) << "a record of type " << static_cast<int>(records[i].type);
  }
  EXPECT_TRUE(realms == std::vector({records.front().realm, records.back().realm}));
}

TEST(IndexRecords, EveryFlippedBitIsNoticedAndEveryCutWaitsForMore) {
  RecordWriter writer;
  writer.add(stored(5));
  const auto bytes = writer.take();
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    auto damaged = bytes;
    damaged[bit / 8] ^= std::byte{1} << (bit % 8);
    std::span<const std::byte> rest = damaged;
    RecordReader reader;
    IndexRecord record;
    int whole = 0;
    for (auto read = reader.next(rest, record); read && *read; read = reader.next(rest, record)) ++whole;
    EXPECT_LT(whole, 2) << "bit " << bit;
  }
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    std::span<const std::byte> rest = std::span(bytes).first(length);
    RecordReader reader;
    IndexRecord record;
    Result<bool> read = true;
    while (read && *read) read = reader.next(rest, record);
    EXPECT_TRUE(read.has_value()) << length;
  }
}

// Sound frames around numbers that cannot be.
TEST(IndexRecords, NumbersThatContradictThemselvesAreCorrupt) {
  const auto refused = [](IndexRecord record) {
    RecordWriter writer;
    writer.add(record);
    const auto bytes = writer.take();
    std::span<const std::byte> rest = bytes;
    RecordReader reader;
    IndexRecord into;
    Result<bool> read = true;
    while (read && *read) read = reader.next(rest, into);
    return !read;
  };
  IndexRecord record = stored(5);
  EXPECT_FALSE(refused(record));
  record.facts.chunk_blocks = 0;
  EXPECT_TRUE(refused(record));
  record = stored(5);
  record.facts.tags.push_back(1);
  EXPECT_TRUE(refused(record));
  record = stored(5);
  record.facts.quality = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(refused(record));
  record = stored(5, 1, 17);
  EXPECT_TRUE(refused(record)) << "an extent has 16 chunks at most";
  record = stored(5);
  record.facts.prints.clear();
  EXPECT_TRUE(refused(record));
}

TEST_F(IndexFolderTest, WhatOneWritesAnotherFollows) {
  const auto one = open();
  Known known;
  EXPECT_FALSE(one->load(known.visit())) << "there is no snapshot yet";
  const auto other = open();
  Known seen;
  other->load(seen.visit());
  one->append(stored(1));
  ASSERT_TRUE(one->flush());
  other->follow(seen.visit());
  EXPECT_THAT(seen.names(), ::testing::ElementsAre(1));
  one->append(about(Type::kRemoved, 1));
  one->append(stored(2));
  ASSERT_TRUE(one->flush());
  other->follow(seen.visit());
  EXPECT_THAT(seen.names(), ::testing::ElementsAre(2));
}

TEST_F(IndexFolderTest, LogsMergeByTimeAndOutliveTheirWriters) {
  {
    const auto one = open();
    const auto other = open();
    one->append(stored(1, 1));
    other->append(about(Type::kRemoved, 1, 2));
    one->append(stored(2, 3));
    ASSERT_TRUE(one->flush());
    ASSERT_TRUE(other->flush());
  }
  EXPECT_THAT(loaded(), ::testing::ElementsAre(2));
}

TEST_F(IndexFolderTest, WhatIsDoneAfterOthersComesAfterItWhateverClocksSay) {
  {
    const auto ahead = open();
    ahead->append(stored(1, 1e6));
    ahead->append(stored(2, 1e6));
    ahead->append(about(Type::kRemoved, 3, 1e6));
    ahead->append(about(Type::kRemoved, 1, 4));
    ASSERT_TRUE(ahead->flush());
    const auto behind = open();
    behind->load([](const IndexRecord&) {});
    behind->append(about(Type::kRemoved, 2, 5));
    behind->append(stored(3, 6));
    ASSERT_TRUE(behind->flush());
  }
  EXPECT_THAT(loaded(), ::testing::ElementsAre(3));
}

TEST_F(IndexFolderTest, WhatIsBeingWrittenIsToldUntilItsWriterOrTheLeaderEndsIt) {
  const auto unfinished = [&] {
    const auto reader = open();
    reader->load([](const IndexRecord&) {});
    std::set<std::uint64_t> names;
    for (const auto& found : reader->unfinished()) {
      names.insert(found.name.high);
      EXPECT_EQ(found.bytes, 4096 * found.name.high);
    }
    return names;
  };
  const auto writing = [](std::uint64_t name) {
    IndexRecord record = about(Type::kWriting, name);
    record.bytes = 4096 * name;
    return record;
  };
  auto one = open();
  for (const std::uint64_t name : {7, 8, 9}) one->append(writing(name));
  ASSERT_TRUE(one->flush());
  EXPECT_THAT(unfinished(), ::testing::ElementsAre(7, 8, 9));
  one->append(about(Type::kSettled, 7, 3));
  ASSERT_TRUE(one->flush());
  EXPECT_THAT(unfinished(), ::testing::ElementsAre(8, 9));
  one = nullptr;
  EXPECT_THAT(unfinished(), ::testing::ElementsAre(8, 9)) << "it may lie there";
  const auto leader = open();
  leader->append(about(Type::kSettled, 8, 4));
  ASSERT_TRUE(leader->flush());
  EXPECT_THAT(unfinished(), ::testing::ElementsAre(9));
}

TEST_F(IndexFolderTest, OneLeadsUntilItGoes) {
  auto one = open();
  const auto other = open();
  EXPECT_TRUE(one->lead());
  EXPECT_TRUE(one->lead());
  EXPECT_FALSE(other->lead());
  one = nullptr;
  EXPECT_TRUE(other->lead());
}

TEST_F(IndexFolderTest, TheLeaderFoldsDeadLogsAndNobodyAlivesAreLost) {
  auto dead = open();
  dead->append(stored(1));
  dead->append(about(Type::kWriting, 8));
  dead->append(about(Type::kWriting, 9));
  ASSERT_TRUE(dead->flush());
  const auto alive = open();
  alive->append(stored(2));
  alive->append(about(Type::kWriting, 9));
  ASSERT_TRUE(alive->flush());
  dead = nullptr;
  const auto leader = open();
  Known known;
  leader->load(known.visit());
  ASSERT_TRUE(leader->lead());
  leader->follow(known.visit());
  const auto unfinished = leader->unfinished_of_the_dead();
  ASSERT_EQ(unfinished.size(), 1u) << "somebody is at 9";
  EXPECT_EQ(unfinished[0].name.high, 8u);
  EXPECT_EQ(unfinished[0].tag, 80u);
  EXPECT_TRUE(unfinished[0].writing);
  EXPECT_EQ(leader->unfinished_of_the_dead().size(), 1u) << "told until it is settled";
  EXPECT_FALSE(leader->all_settled());
  leader->settled({8, ~std::uint64_t{8}});
  EXPECT_TRUE(leader->unfinished_of_the_dead().empty());
  EXPECT_EQ(files("log-").size(), 3u);
  ASSERT_TRUE(leader->write_snapshot([&](const IndexFolder::Visit& add) {
    for (const std::uint64_t name : known.names()) add(stored(name));
  }));
  EXPECT_EQ(files("log-").size(), 2u);
  alive->append(about(Type::kRemoved, 1, 5));
  ASSERT_TRUE(alive->flush());
  EXPECT_THAT(loaded(), ::testing::ElementsAre(2)) << "its log goes on behind the snapshot";
}

TEST_F(IndexFolderTest, ADamagedSnapshotOrLogIsNoIndex) {
  {
    const auto one = open();
    ASSERT_TRUE(one->write_snapshot([&](const IndexFolder::Visit& add) { add(stored(1)); }));
    one->append(stored(2));
    ASSERT_TRUE(one->flush());
  }
  const fs::path snapshot = folder_.path() / "store" / "snapshot";
  const auto whole = [&] { return open()->load([](const IndexRecord&) {}); };
  ASSERT_TRUE(whole());
  std::string bytes(fs::file_size(snapshot), '\0');
  std::ifstream(snapshot, std::ios::binary).read(bytes.data(), std::ssize(bytes));
  const auto store = [](const fs::path& file, const std::string& content) {
    std::ofstream(file, std::ios::binary | std::ios::trunc).write(content.data(), std::ssize(content));
  };
  for (std::size_t at = 0; at < bytes.size(); at += 5) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x20);
    store(snapshot, damaged);
    EXPECT_FALSE(whole()) << "byte " << at;
  }
  for (const std::size_t length : {std::size_t{0}, std::size_t{7}, bytes.size() - 1}) {
    store(snapshot, bytes.substr(0, length));
    EXPECT_FALSE(whole()) << length << " bytes left";
  }
  store(snapshot, bytes + "x");
  EXPECT_FALSE(whole());
  store(snapshot, bytes);
  ASSERT_TRUE(whole());
  for (const fs::path& log : files("log-")) {
    if (fs::file_size(log) < 50) continue;
    std::fstream file(log, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(40);
    file.put('\x55');
  }
  EXPECT_FALSE(whole());
}

// What a kill leaves: a log that ends inside a record.
TEST_F(IndexFolderTest, ATornLogTellsWhatCameBefore) {
  {
    const auto one = open();
    ASSERT_TRUE(one->write_snapshot([](const IndexFolder::Visit&) {}));
    one->append(stored(1));
    ASSERT_TRUE(one->flush());
    one->append(stored(2));
    ASSERT_TRUE(one->flush());
  }
  for (const fs::path& log : files("log-")) fs::resize_file(log, fs::file_size(log) - 3);
  Known known;
  EXPECT_TRUE(open()->load(known.visit()));
  EXPECT_THAT(known.names(), ::testing::ElementsAre(1));
}

TEST_F(IndexFolderTest, AFolderThatSomebodyRemovedIsMadeAgain) {
  const auto one = open();
  one->append(stored(1));
  ASSERT_TRUE(one->flush());
  ASSERT_TRUE(one->lead());
  fs::remove_all(folder_.path() / "store");
  one->append(stored(2));
  EXPECT_TRUE(one->flush()) << "of what is gone with the folder";
  one->append(stored(3));
  ASSERT_TRUE(one->flush());
  EXPECT_THAT(loaded(), ::testing::ElementsAre(3));
  EXPECT_TRUE(one->lead());
}

TEST_F(IndexFolderTest, WhatCouldNotBeWrittenIsTriedAgain) {
  const auto one = open();
  one->append(stored(1));
  ASSERT_TRUE(one->flush());
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit limit = {fs::file_size(files("log-")[0]) + 20, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &limit);
  one->append(stored(2));
  const Status failed = one->flush();
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(failed.error().code, ErrorCode::kFull);
  EXPECT_THAT(loaded(), ::testing::ElementsAre(1)) << "no half of a record";
  one->append(stored(3));
  ASSERT_TRUE(one->flush());
  EXPECT_THAT(loaded(), ::testing::ElementsAre(1, 2, 3));
}

}  // namespace
}  // namespace shale::testing
