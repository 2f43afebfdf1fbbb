// A thin, owning cover of SQLite's C interface: errors as values, statements prepared once and bound by position.
// Not thread-safe.
#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "core/error.h"

struct sqlite3;
struct sqlite3_stmt;

namespace shale {

// The row that a statement stands on. Columns count from 0; NULL reads as 0 or empty.
class SqlRow {
 public:
  explicit SqlRow(sqlite3_stmt* statement) : statement_(statement) {}
  std::int64_t integer(int column) const;
  double real(int column) const;
  std::string text(int column) const;

 private:
  sqlite3_stmt* statement_;
};

class SqlStatement {
 public:
  // Binds `values` to ?1, ?2, … and runs to the end, calling `on_row(SqlRow)` for every row.
  template <class OnRow, class... Values>
  Status each(const OnRow& on_row, const Values&... values) {
    int position = 0;
    (bind(++position, values), ...);
    Result<bool> stepped = step();
    for (; stepped && *stepped; stepped = step()) on_row(SqlRow(statement_.get()));
    reset();
    if (!stepped) return std::unexpected(stepped.error());
    return {};
  }
  template <class... Values>
  Status run(const Values&... values) {
    return each([](const SqlRow&) {}, values...);
  }

 private:
  friend class SqlDatabase;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  explicit SqlStatement(sqlite3_stmt* statement) : statement_(statement) {}

  void bind(int position, std::string_view text);  // must stay alive until the statement has run
  void bind(int position, std::int64_t value);
  void bind(int position, double value);
  void bind(int position, std::unsigned_integral auto value) { bind(position, static_cast<std::int64_t>(value)); }
  void bind(int position, bool value) { bind(position, std::int64_t{value}); }
  Result<bool> step();  // true: on a row
  void reset();

  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

class SqlDatabase {
 public:
  // Reads and writes; creates the file, private to its owner (0600), when it is absent. Waits up to `busy_timeout_ms`
  // for another process's write, then kBusy. kCorrupt when the file is no database or damaged.
  static Result<SqlDatabase> open(const std::filesystem::path& path, int busy_timeout_ms);
  // As long from now on.
  void wait_at_most(int busy_timeout_ms) const;
  // One that no file holds and nobody else sees.
  static Result<SqlDatabase> open_in_memory();

  Result<SqlStatement> prepare(std::string_view sql) const;
  Status execute(const std::string& sql) const;  // one or more statements without parameters
  // All of `body` (() -> Status) or nothing of it, under the write lock.
  template <class Body>
  Status atomically(const Body& body) const {
    SHALE_TRY(execute("BEGIN IMMEDIATE"));
    Status status = body();
    if (status) status = execute("COMMIT");
    if (!status) static_cast<void>(execute("ROLLBACK"));  // its own failure means that SQLite has rolled back already
    return status;
  }
  Result<std::int64_t> integer(std::string_view sql) const;  // the first column of the first row; 0 without rows

 private:
  struct Close {
    void operator()(sqlite3* database) const;
  };
  static Result<SqlDatabase> connect(const char* name, int flags);
  std::unique_ptr<sqlite3, Close> database_;
};

}  // namespace shale
