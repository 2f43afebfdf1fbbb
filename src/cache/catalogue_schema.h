// The catalogue's tables. `model` and `key` are 32 hexadecimal digits, times are seconds since 1970.
#pragma once

#include <filesystem>
#include <optional>

#include "cache/sqlite.h"

namespace shale {

struct OpenedCatalogue {
  SqlDatabase database;
  std::optional<Error> warning;  // the file was damaged and has been moved aside
};

// With tables of kCatalogueVersion. See Catalogue::open.
Result<OpenedCatalogue> open_catalogue(const std::filesystem::path& path);
// Adds all rows to the catalogue at `path`, which exists: those of its own that say the same give way, but for entries
// and questions. All or nothing.
Status copy_catalogue(const SqlDatabase& from, const std::filesystem::path& path);
// The same tables, empty, that end with the database.
Result<SqlDatabase> open_catalogue_in_memory();

}  // namespace shale
