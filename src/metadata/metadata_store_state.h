// A metadata store's insides, shared by the files that implement it: metadata_store.cc, metadata_store_quality.cc.
#pragma once

#include <mutex>
#include <unordered_set>
#include <utility>

#include "io/file_calls.h"
#include "metadata/metadata_store.h"
#include "metadata/metadata_store_schema.h"

namespace shale {

struct MetadataStore::State {
  State(SqlDatabase opened, std::string place, const Hash128& fingerprint, WallClock wall_clock)
      : database(std::move(opened)), path(std::move(place)), model(fingerprint.hex()), wall_s(std::move(wall_clock)) {}

  SqlDatabase database;
  std::optional<Error> warning;
  std::string path;
  std::string model;
  std::string metric{kAgreement};
  std::string quality_model = model;  // whose rows of `quality` are seen
  WallClock wall_s;
  std::mutex table_mutex;  // guards the table
  QualityTable table;
  bool in_transaction = false;
  int wait_ms = kMetadataStoreWaitMs;
  // The file that it is kept in, as long as that can be done.
  struct Home {
    std::filesystem::path file;
    std::function<bool()> reachable;
    double looked_at_s;
    std::optional<FileId> id = {};  // of the file that `database` is; nothing: it is in memory
  };
  std::optional<Home> home = {};
  std::int64_t version_seen = -1;              // of the file's data: changes when another connection has written
  std::int64_t learned_seen = -1;              // how often qualities and kinds in it had changed, when they were read
  std::unordered_set<Hash128> inherited_read;  // since then: of which cached prefixes the file was asked for that

  // Adds to an error's message which metadata store it is of.
  template <class T>
  Result<T> named(Result<T> result) const {
    if (!result) return fail_in(path, std::move(result).error());
    return result;
  }

  // A call within another one is part of it.
  Status atomically(const std::function<Status()>& body) {
    if (std::exchange(in_transaction, true)) return body();
    Status status = named(database.atomically(body));
    in_transaction = false;
    if (!status) learned_seen = -1;  // it may have been counted within
    return status;
  }

  template <class... Values>
  Status run(SqlStatement& statement, const Values&... values) const {
    return named(statement.run(values...));
  }

  // The last row's value; kNotFound without rows.
  template <class T, class Read, class... Values>
  Result<T> one(SqlStatement& statement, std::string_view what, const Read& read, const Values&... values) const {
    std::optional<T> found;
    SHALE_TRY(named(statement.each([&](const SqlRow& row) { found = read(row); }, values...)));
    if (!found) return fail(ErrorCode::kNotFound, "{}: nothing known of {}", path, what);
    return std::move(*found);
  }

  template <class T, class Read, class... Values>
  Result<std::vector<T>> all(SqlStatement& statement, const Read& read, const Values&... values) const {
    std::vector<T> rows;
    SHALE_TRY(named(statement.each([&](const SqlRow& row) { rows.push_back(read(row)); }, values...)));
    return rows;
  }

  Status load_table();
  Status read_inherited(const Hash128& key);
  Status note_learned();
  // metadata_store_late.cc
  void look_after_file();
  Status move_to_file();

  // Prepared once, in `prepare_all`.
  std::optional<SqlStatement> put_model, all_models, put_quality, get_qualities, all_qualities, put_inherited,
      get_inherited, put_kind, all_kinds, put_prefix, get_prefix, all_prefixes, forget_prefix, forget_kind,
      forget_qualities, forget_inherited, forget_questions, put_question, trim_questions, get_questions, put_delay,
      get_delay, put_decode, get_decode, put_prefill, trim_prefills, get_prefills, data_version, count_learned,
      get_learned;
  Status prepare_all();
  Status prepare_forgetting();
  Status prepare(std::optional<SqlStatement>& statement, std::string_view sql);
};

}  // namespace shale
