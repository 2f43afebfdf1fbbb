#include "metadata/sqlite.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace shale {
namespace {

ErrorCode code_of(int result) {
  switch (result & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return ErrorCode::kBusy;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return ErrorCode::kCorrupt;
    case SQLITE_FULL:
      return ErrorCode::kFull;
    case SQLITE_CONSTRAINT:
      return ErrorCode::kInvalidArgument;
    case SQLITE_ERROR:
    case SQLITE_MISUSE:
      return ErrorCode::kInternal;
    default:
      return ErrorCode::kIo;
  }
}

std::unexpected<Error> failed(sqlite3* database) {
  return fail(code_of(sqlite3_extended_errcode(database)), "{}", sqlite3_errmsg(database));
}

// SQLite gives its log the mode of the database file, so this covers them all.
Status make_private(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return fail(ErrorCode::kIo, "cannot be opened: {}", std::strerror(errno));
  const bool changed = ::fchmod(file, 0600) == 0;
  const int error = errno;
  ::close(file);
  if (!changed) return fail(ErrorCode::kIo, "cannot be made private: {}", std::strerror(error));
  return {};
}

}  // namespace

std::int64_t SqlRow::integer(int column) const { return sqlite3_column_int64(statement_, column); }
double SqlRow::real(int column) const { return sqlite3_column_double(statement_, column); }
std::string SqlRow::text(int column) const {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  return text ? std::string(text, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))) : std::string();
}

void SqlStatement::Finalize::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
void SqlStatement::bind(int position, std::string_view text) {
  // An empty view's data may be null, which would bind NULL.
  sqlite3_bind_text64(statement_.get(), position, text.empty() ? "" : text.data(), text.size(), SQLITE_STATIC,
                      SQLITE_UTF8);
}
void SqlStatement::bind(int position, std::int64_t value) { sqlite3_bind_int64(statement_.get(), position, value); }
void SqlStatement::bind(int position, double value) { sqlite3_bind_double(statement_.get(), position, value); }
void SqlStatement::reset() {
  sqlite3_reset(statement_.get());
  sqlite3_clear_bindings(statement_.get());
}

Result<bool> SqlStatement::step() {
  switch (sqlite3_step(statement_.get())) {
    case SQLITE_ROW:
      return true;
    case SQLITE_DONE:
      return false;
    default:
      return failed(sqlite3_db_handle(statement_.get()));
  }
}

namespace {
constexpr int kRetryMs = 10;
}

void SqlDatabase::Close::operator()(sqlite3* database) const { sqlite3_close_v2(database); }

Result<SqlDatabase> SqlDatabase::connect(const char* name, int flags) {
  sqlite3* opened = nullptr;
  const int result = sqlite3_open_v2(name, &opened, flags, nullptr);
  SqlDatabase database;
  database.database_.reset(opened);
  if (!opened) return fail(ErrorCode::kIo, "SQLite is out of memory");
  if (result != SQLITE_OK) return failed(opened);
  sqlite3_extended_result_codes(opened, 1);
  return database;
}

void SqlDatabase::wait_at_most(int busy_timeout_ms) const { sqlite3_busy_timeout(database_.get(), busy_timeout_ms); }

Result<SqlDatabase> SqlDatabase::open(const std::filesystem::path& path, int busy_timeout_ms) {
  SHALE_TRY(make_private(path));
  SHALE_ASSIGN(SqlDatabase database, connect(path.c_str(), SQLITE_OPEN_READWRITE));
  sqlite3* const opened = database.database_.get();
  sqlite3_busy_timeout(opened, busy_timeout_ms);
  // Changing the journal's mode does not wait for other processes by itself.
  for (int waited_ms = 0;; waited_ms += kRetryMs) {
    const Status set = database.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL");
    if (set) break;
    if ((sqlite3_errcode(opened) & 0xff) != SQLITE_BUSY || waited_ms >= busy_timeout_ms)
      return std::unexpected(set.error());
    sqlite3_sleep(kRetryMs);
  }
  return database;
}

Result<SqlDatabase> SqlDatabase::open_in_memory() {
  return connect(":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
}

Result<SqlStatement> SqlDatabase::prepare(std::string_view sql) const {
  sqlite3_stmt* statement = nullptr;
  const int result = sqlite3_prepare_v3(database_.get(), sql.data(), static_cast<int>(sql.size()),
                                        SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  if (result != SQLITE_OK) return failed(database_.get());
  return SqlStatement(statement);
}

Status SqlDatabase::execute(const std::string& sql) const {
  if (sqlite3_exec(database_.get(), sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK)
    return failed(database_.get());
  return {};
}

Result<std::int64_t> SqlDatabase::integer(std::string_view sql) const {
  SHALE_ASSIGN(SqlStatement statement, prepare(sql));
  std::int64_t value = 0;
  SHALE_TRY(statement.each([&](const SqlRow& row) { value = row.integer(0); }));
  return value;
}

}  // namespace shale
