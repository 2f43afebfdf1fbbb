#include "metadata/metadata_store_schema.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <system_error>

#include "io/file_calls.h"
#include "metadata/metadata_store.h"

namespace shale {
namespace {

constexpr std::int64_t kApplicationId = 0x5368'616c;  // "Shal", at a fixed place of the file's header

constexpr std::string_view kTables = R"(
  CREATE TABLE quality (model TEXT NOT NULL, key TEXT NOT NULL, method TEXT NOT NULL, keep REAL NOT NULL,
                        agreement REAL NOT NULL, kl REAL NOT NULL, questions INTEGER NOT NULL, measured_at REAL NOT NULL,
                        PRIMARY KEY (model, key, method, keep)) WITHOUT ROWID;
  CREATE TABLE entry (model TEXT NOT NULL, key TEXT NOT NULL, tokens INTEGER NOT NULL, frequency REAL NOT NULL,
                      accesses INTEGER NOT NULL, accessed_at REAL NOT NULL, recompute_s REAL NOT NULL,
                      label TEXT NOT NULL, PRIMARY KEY (model, key)) WITHOUT ROWID;
  CREATE TABLE question (id INTEGER PRIMARY KEY AUTOINCREMENT, model TEXT NOT NULL, key TEXT NOT NULL,
                         text TEXT NOT NULL, by_model INTEGER NOT NULL, UNIQUE (model, key, text));
  CREATE TABLE delay (tier TEXT NOT NULL, emulated TEXT NOT NULL, latency_s REAL NOT NULL,
                      read_bytes_per_s REAL NOT NULL, write_bytes_per_s REAL NOT NULL, samples INTEGER NOT NULL,
                      PRIMARY KEY (tier, emulated)) WITHOUT ROWID;
  CREATE TABLE decode (method TEXT PRIMARY KEY, bytes_per_s REAL NOT NULL) WITHOUT ROWID;
  CREATE TABLE prefill (id INTEGER PRIMARY KEY AUTOINCREMENT, model TEXT NOT NULL, tokens INTEGER NOT NULL,
                        depth INTEGER NOT NULL, seconds REAL NOT NULL);
  CREATE INDEX prefill_of_model ON prefill (model, id);
)";

// Files from before these tables have all else.
constexpr std::string_view kLaterTables =
    "CREATE TABLE IF NOT EXISTS model (model TEXT PRIMARY KEY, name TEXT NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS kind (model TEXT NOT NULL, key TEXT NOT NULL, kind TEXT NOT NULL, "
    "PRIMARY KEY (model, key)) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS inherited (model TEXT NOT NULL, key TEXT NOT NULL, quality REAL NOT NULL, "
    "PRIMARY KEY (model, key)) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS learned (id INTEGER PRIMARY KEY CHECK (id = 0), times INTEGER NOT NULL);";

constexpr std::string_view kCopy =
    "INSERT OR REPLACE INTO copy.model SELECT * FROM main.model;"
    "INSERT OR REPLACE INTO copy.quality SELECT * FROM main.quality;"
    "INSERT OR REPLACE INTO copy.kind SELECT * FROM main.kind;"
    "INSERT OR REPLACE INTO copy.inherited SELECT * FROM main.inherited;"
    "INSERT OR REPLACE INTO copy.delay SELECT * FROM main.delay;"
    "INSERT OR REPLACE INTO copy.decode SELECT * FROM main.decode;"
    "INSERT OR IGNORE INTO copy.entry SELECT * FROM main.entry;"
    "INSERT OR IGNORE INTO copy.question (model, key, text, by_model) "
    "SELECT model, key, text, by_model FROM main.question ORDER BY id;"
    "INSERT INTO copy.prefill (model, tokens, depth, seconds) "
    "SELECT model, tokens, depth, seconds FROM main.prefill ORDER BY id;"
    "INSERT INTO copy.learned VALUES (0, 1) ON CONFLICT (id) DO UPDATE SET times = times + 1;";

Status check_version(const SqlDatabase& database) {
  SHALE_ASSIGN(const std::int64_t application, database.integer("PRAGMA application_id"));
  if (application != kApplicationId) {
    return fail(ErrorCode::kMismatch, "is a database of another program; move it away");
  }
  SHALE_ASSIGN(const std::int64_t version, database.integer("PRAGMA user_version"));
  if (version != kMetadataStoreVersion) {
    return fail(ErrorCode::kMismatch,
                "has version {}, but this program reads version {}; run the program that wrote it, or delete the file: "
                "only measurements are lost",
                version, kMetadataStoreVersion);
  }
  return {};
}

Result<bool> is_empty(const SqlDatabase& database) {
  SHALE_ASSIGN(const std::int64_t tables, database.integer("SELECT count(*) FROM sqlite_schema"));
  return tables == 0;
}

// Creates what is missing. Takes the write lock first: of two processes that begin together, one creates and the other
// finds.
Status prepare_tables(const SqlDatabase& database) {
  SHALE_ASSIGN(const bool empty, is_empty(database));
  if (empty) {
    SHALE_TRY(database.atomically([&]() -> Status {
      SHALE_ASSIGN(const bool still_empty, is_empty(database));
      if (!still_empty) return {};
      return database.execute(fmt::format("{} PRAGMA application_id = {}; PRAGMA user_version = {};", kTables,
                                          kApplicationId, kMetadataStoreVersion));
    }));
  }
  SHALE_TRY(check_version(database));
  return database.execute(std::string(kLaterTables));
}

Result<SqlDatabase> try_open(const std::filesystem::path& path) {
  SHALE_ASSIGN(SqlDatabase database, SqlDatabase::open(path, kMetadataStoreWaitMs));
  SHALE_TRY(prepare_tables(database));
  SHALE_ASSIGN(SqlStatement check, database.prepare("PRAGMA quick_check(1)"));
  std::string verdict;
  SHALE_TRY(check.each([&](const SqlRow& row) { verdict = row.text(0); }));
  if (verdict != "ok") return fail(ErrorCode::kCorrupt, "{}", verdict);
  return database;
}

// Shared by those who open a metadata store in the folder, alone (LOCK_EX) with whoever repairs one: SQLite finds a
// file's log by its name, and would take one that belongs to what another process makes anew under that name meanwhile.
Result<FileDescriptor> lock_folder(const std::filesystem::path& folder, int how) {
  FileDescriptor lock(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  while (lock && flock(lock.get(), how) != 0) {
    if (errno != EINTR) return system_failure(errno, "lock", folder);
  }
  if (!lock) return system_failure(errno, "open", folder);
  return lock;
}

// Logs go first: once the name is free, another process may begin anew under it.
Status move_aside(const std::filesystem::path& path, const std::filesystem::path& aside) {
  std::error_code error;
  for (const char* suffix : {"-wal", "-shm"}) std::filesystem::remove(path.string() + suffix, error);
  std::filesystem::rename(path, aside, error);
  if (error) return fail(ErrorCode::kIo, "is damaged and cannot be moved aside: {}", error.message());
  return {};
}

}  // namespace

Result<OpenedMetadataStore> open_metadata_store(const std::filesystem::path& path) {
  const std::string where = fmt::format("metadata store {}", path.string());
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  {
    const auto shared = lock_folder(folder, LOCK_SH);  // where the file system has no such locks, without
    if (Result<SqlDatabase> database = try_open(path)) return OpenedMetadataStore{std::move(*database), std::nullopt};
  }
  // One of several processes that find damage repairs it; the others then find what it made.
  SHALE_ASSIGN(const FileDescriptor alone, lock_folder(folder, LOCK_EX));
  Result<SqlDatabase> database = try_open(path);
  if (database) return OpenedMetadataStore{std::move(*database), std::nullopt};
  if (database.error().code != ErrorCode::kCorrupt) return fail_in(where, database.error());

  const std::filesystem::path aside = path.string() + ".corrupt";
  if (const Status moved = move_aside(path, aside); !moved) return fail_in(where, moved.error());
  Result<SqlDatabase> fresh = try_open(path);
  if (!fresh) return fail_in(where, fresh.error());
  return OpenedMetadataStore{
      std::move(*fresh),
      Error{ErrorCode::kCorrupt, fmt::format("{}: {}; it was moved to {} and measurements begin anew", where,
                                             database.error().message, aside.string())}};
}

Status copy_metadata_store(const SqlDatabase& from, const std::filesystem::path& path) {
  SHALE_ASSIGN(SqlStatement attach, from.prepare("ATTACH DATABASE ?1 AS copy"));
  SHALE_TRY(attach.run(path.string()));
  const Status copied = from.atomically([&] { return from.execute(std::string(kCopy)); });
  const Status detached = from.execute("DETACH DATABASE copy");
  return copied ? detached : copied;
}

Result<SqlDatabase> open_metadata_store_in_memory() {
  SHALE_ASSIGN(SqlDatabase database, SqlDatabase::open_in_memory());
  SHALE_TRY(prepare_tables(database));
  return database;
}

}  // namespace shale
