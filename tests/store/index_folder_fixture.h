// A tier's folder with an index, and records to tell there.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <vector>

#include "extents/index_folder.h"
#include "support/temporary_folder.h"

namespace shale::testing {

inline IndexRecord stored(std::uint64_t name, double time_s = 1, std::uint32_t chunks = 2) {
  IndexRecord record;
  record.type = IndexRecord::Type::kStored;
  record.time_s = time_s;
  record.realm = {{7, name % 3}, name % 3 == 0 ? "" : "tenant"};
  record.facts.name = {name, ~name};
  record.facts.method = "int8";
  record.facts.exact = false;
  record.facts.keep = 0.5f;
  record.facts.quality = 0.25f;
  record.facts.bytes = 4096 * name;
  record.facts.recompute_s = 1.5f;
  record.facts.accessed_s = 99;
  record.facts.expires_s = 1e9;
  record.facts.chunk_blocks = 2;
  for (std::uint32_t c = 0; c < chunks; ++c) record.facts.tags.push_back(name * 10 + c);
  for (std::uint32_t b = 0; b < 2 * chunks - 1; ++b) record.facts.prints.push_back(b);
  return record;
}

inline IndexRecord about(IndexRecord::Type type, std::uint64_t name, double time_s = 2) {
  IndexRecord record;
  record.type = type;
  record.time_s = time_s;
  record.name = {name, ~name};
  record.tag = name * 10;
  return record;
}

// What remains stored after all records.
class Known {
 public:
  IndexFolder::Visit visit() {
    return [this](const IndexRecord& record) {
      if (record.type == IndexRecord::Type::kStored) names_.insert(record.facts.name.high);
      if (record.type == IndexRecord::Type::kRemoved) names_.erase(record.name.high);
    };
  }
  const std::set<std::uint64_t>& names() const { return names_; }

 private:
  std::set<std::uint64_t> names_;
};

class IndexFolderTest : public ::testing::Test {
 protected:
  std::unique_ptr<IndexFolder> open() const { return IndexFolder::open(folder_.path()).value(); }
  std::set<std::uint64_t> loaded() const {
    Known known;
    open()->load(known.visit());
    return known.names();
  }
  std::vector<std::filesystem::path> files(std::string_view prefix) const {
    std::vector<std::filesystem::path> found;
    for (const auto& file : std::filesystem::directory_iterator(folder_.path() / "store")) {
      if (file.path().filename().string().starts_with(prefix)) found.push_back(file.path());
    }
    return found;
  }

  TemporaryFolder folder_;
};

}  // namespace shale::testing
