// The metadata store's tables. `model` and `key` are 32 hexadecimal digits, times are seconds since 1970.
#pragma once

#include <filesystem>
#include <optional>

#include "metadata/sqlite.h"

namespace shale {

struct OpenedMetadataStore {
  SqlDatabase database;
  std::optional<Error> warning;  // the file was damaged and has been moved aside
};

// Opens it with tables of kMetadataStoreVersion. See MetadataStore::open.
Result<OpenedMetadataStore> open_metadata_store(const std::filesystem::path& path);
// Adds all rows to the metadata store at `path`, which exists: those of its own that say the same are given up, but for
// cached prefixes and questions. All or nothing.
Status copy_metadata_store(const SqlDatabase& from, const std::filesystem::path& path);
// The same tables, empty, that end with the database.
Result<SqlDatabase> open_metadata_store_in_memory();

}  // namespace shale
