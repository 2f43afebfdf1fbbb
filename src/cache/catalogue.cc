#include "cache/catalogue.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>
#include <utility>

#include "cache/catalogue_schema.h"

namespace shale {
namespace {

// Which rows are seen: a damaged or foreign file may hold any number, and one that cannot have been measured would
// mislead every plan.
constexpr std::string_view kSoundQuality =
    "keep BETWEEN 0 AND 1 AND agreement BETWEEN 0 AND 1 AND kl BETWEEN -1 AND 1e6 AND "
    "questions BETWEEN 0 AND 4294967295 AND measured_at BETWEEN -1e12 AND 1e12";
constexpr std::string_view kSoundEntry =
    "tokens BETWEEN 0 AND 4294967295 AND frequency BETWEEN 0 AND 1e15 AND accesses BETWEEN 0 AND 9e15 AND "
    "accessed_at BETWEEN -1e12 AND 1e12 AND recompute_s BETWEEN 0 AND 1e9";
constexpr std::string_view kSoundDelay =
    "latency_s BETWEEN 0 AND 1e9 AND read_bytes_per_s BETWEEN 0 AND 1e15 AND write_bytes_per_s BETWEEN 0 AND 1e15 AND "
    "samples BETWEEN 0 AND 9e15";
constexpr std::string_view kSoundDecode = "bytes_per_s BETWEEN 0 AND 1e15";
constexpr std::string_view kSoundPrefill =
    "tokens BETWEEN 0 AND 4294967295 AND depth BETWEEN 0 AND 4294967295 AND seconds BETWEEN 0 AND 1e9";

}  // namespace

struct Catalogue::State {
  State(SqlDatabase opened, std::string place, const Hash128& fingerprint, WallClock wall_clock)
      : database(std::move(opened)), path(std::move(place)), model(fingerprint.hex()), wall_s(wall_clock) {}

  SqlDatabase database;
  std::optional<Error> warning;
  std::string path;
  std::string model;
  WallClock wall_s;
  std::mutex table_mutex;  // guards the table
  QualityTable table;
  bool in_transaction = false;
  std::int64_t version_seen = -1;  // of the file's data: changes when another connection has written

  // In error messages, where: which catalogue.
  template <class T>
  Result<T> named(Result<T> result) const {
    if (!result) return fail_in(path, std::move(result).error());
    return result;
  }

  // Within another one: part of it.
  Status atomically(const std::function<Status()>& body) {
    if (std::exchange(in_transaction, true)) return body();
    Status status = named(database.atomically(body));
    in_transaction = false;
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

  // Prepared once, in `prepare_all`.
  std::optional<SqlStatement> put_model, all_models, put_quality, get_qualities, all_qualities, put_entry, get_entry,
      all_entries, forget_entry, forget_qualities, forget_questions, put_question, trim_questions, get_questions,
      put_delay, get_delay, put_decode, get_decode, put_prefill, trim_prefills, get_prefills, data_version;
  Status prepare_all();
};

Status Catalogue::State::prepare_all() {
  const auto prepare = [&](std::optional<SqlStatement>& statement, std::string_view sql) -> Status {
    SHALE_ASSIGN(SqlStatement prepared, named(database.prepare(sql)));
    statement.emplace(std::move(prepared));
    return {};
  };
  SHALE_TRY(prepare(put_model, "INSERT OR REPLACE INTO model VALUES (?1, ?2)"));
  SHALE_TRY(prepare(all_models, "SELECT model, name FROM model ORDER BY name, model"));
  SHALE_TRY(prepare(put_quality, "INSERT OR REPLACE INTO quality VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"));
  SHALE_TRY(
      prepare(get_qualities, fmt::format("SELECT method, keep, agreement, kl, questions, measured_at FROM quality "
                                         "WHERE model = ?1 AND key = ?2 AND {} ORDER BY method, keep",
                                         kSoundQuality)));
  SHALE_TRY(prepare(all_qualities, fmt::format("SELECT key, method, keep, agreement, questions FROM quality "
                                               "WHERE model = ?1 AND {}",
                                               kSoundQuality)));
  SHALE_TRY(prepare(put_entry, "INSERT OR REPLACE INTO entry VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"));
  SHALE_TRY(prepare(get_entry,
                    fmt::format("SELECT key, tokens, frequency, accesses, accessed_at, recompute_s, label FROM entry "
                                "WHERE model = ?1 AND key = ?2 AND {}",
                                kSoundEntry)));
  SHALE_TRY(prepare(all_entries,
                    fmt::format("SELECT key, tokens, frequency, accesses, accessed_at, recompute_s, label FROM entry "
                                "WHERE model = ?1 AND {} ORDER BY accessed_at DESC, key",
                                kSoundEntry)));
  SHALE_TRY(prepare(forget_entry, "DELETE FROM entry WHERE model = ?1 AND key = ?2"));
  SHALE_TRY(prepare(forget_qualities, "DELETE FROM quality WHERE model = ?1 AND key = ?2"));
  SHALE_TRY(prepare(forget_questions, "DELETE FROM question WHERE model = ?1 AND key = ?2"));
  SHALE_TRY(
      prepare(put_question, "INSERT OR REPLACE INTO question (model, key, text, by_model) VALUES (?1, ?2, ?3, ?4)"));
  SHALE_TRY(prepare(trim_questions,
                    "DELETE FROM question WHERE model = ?1 AND key = ?2 AND id NOT IN (SELECT id FROM question "
                    "WHERE model = ?1 AND key = ?2 ORDER BY id DESC LIMIT ?3)"));
  SHALE_TRY(
      prepare(get_questions, "SELECT text, by_model FROM question WHERE model = ?1 AND key = ?2 ORDER BY id DESC"));
  SHALE_TRY(prepare(put_delay, "INSERT OR REPLACE INTO delay VALUES (?1, ?2, ?3, ?4, ?5, ?6)"));
  SHALE_TRY(prepare(get_delay, fmt::format("SELECT latency_s, read_bytes_per_s, write_bytes_per_s, samples FROM delay "
                                           "WHERE tier = ?1 AND emulated = ?2 AND {}",
                                           kSoundDelay)));
  SHALE_TRY(prepare(put_decode, "INSERT OR REPLACE INTO decode VALUES (?1, ?2)"));
  SHALE_TRY(prepare(get_decode, fmt::format("SELECT bytes_per_s FROM decode WHERE method = ?1 AND {}", kSoundDecode)));
  SHALE_TRY(prepare(put_prefill, "INSERT INTO prefill (model, tokens, depth, seconds) VALUES (?1, ?2, ?3, ?4)"));
  SHALE_TRY(prepare(trim_prefills,
                    "DELETE FROM prefill WHERE model = ?1 AND id NOT IN (SELECT id FROM prefill WHERE model = ?1 "
                    "ORDER BY id DESC LIMIT ?2)"));
  SHALE_TRY(prepare(
      get_prefills,
      fmt::format("SELECT tokens, depth, seconds FROM prefill WHERE model = ?1 AND {} ORDER BY id", kSoundPrefill)));
  SHALE_TRY(prepare(data_version, "PRAGMA data_version"));
  return {};
}

Status Catalogue::State::load_table() {
  QualityTable fresh;
  SHALE_TRY(named(all_qualities->each(
      [&](const SqlRow& row) {
        const auto key = Hash128::parse(row.text(0));
        const auto method = Method::parse(row.text(1));
        if (key && method) {
          fresh.record(*key, *method, row.real(2), row.real(3), static_cast<std::uint32_t>(row.integer(4)));
        }
      },
      model)));
  const std::lock_guard lock(table_mutex);
  table = std::move(fresh);
  return {};
}

double Catalogue::system_wall_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Catalogue::Catalogue(std::unique_ptr<State> state) : state_(std::move(state)) {}
Catalogue::~Catalogue() = default;

Result<std::unique_ptr<Catalogue>> Catalogue::open(const std::filesystem::path& path, const Hash128& model,
                                                   WallClock wall_clock) {
  SHALE_ASSIGN(OpenedCatalogue opened, open_catalogue(path));
  auto state = std::make_unique<State>(std::move(opened.database), fmt::format("catalogue {}", path.string()), model,
                                       wall_clock);
  state->warning = std::move(opened.warning);
  SHALE_TRY(state->prepare_all());
  std::unique_ptr<Catalogue> catalogue(new Catalogue(std::move(state)));
  SHALE_TRY(catalogue->refresh());
  return catalogue;
}

const std::optional<Error>& Catalogue::warning() const { return state_->warning; }

Status Catalogue::refresh() {
  State& s = *state_;
  const auto version =
      s.one<std::int64_t>(*s.data_version, "its version", [](const SqlRow& row) { return row.integer(0); });
  if (!version) return std::unexpected(version.error());
  if (*version == s.version_seen) return {};
  SHALE_TRY(s.load_table());
  s.version_seen = *version;
  return {};
}

Status Catalogue::record_model(std::string_view name) {
  State& s = *state_;
  return s.run(*s.put_model, s.model, name);
}

Result<std::vector<ModelRecord>> Catalogue::models() const {
  State& s = *state_;
  const auto read = [](const SqlRow& row) {
    return ModelRecord{Hash128::parse(row.text(0)).value_or(Hash128{}), row.text(1)};
  };
  return s.all<ModelRecord>(*s.all_models, read);
}

// ---------------------------------------------------------------------------------------------------------------------
// Quality

Status Catalogue::record_quality(const QualityRecord& record) {
  State& s = *state_;
  SHALE_TRY(s.run(*s.put_quality, s.model, record.key.hex(), record.method.text(), record.keep, record.agreement,
                  record.kl, record.questions, s.wall_s()));
  const std::lock_guard lock(s.table_mutex);
  s.table.record(record.key, record.method, record.keep, record.agreement, record.questions);
  return {};
}

Result<std::vector<QualityRecord>> Catalogue::qualities(const Hash128& key) const {
  State& s = *state_;
  const double now_s = s.wall_s();
  const auto read = [&](const SqlRow& row) {
    return QualityRecord{.key = key,
                         .method = Method::parse(row.text(0)).value_or(Method::full()),
                         .keep = row.real(1),
                         .agreement = row.real(2),
                         .kl = row.real(3),
                         .questions = static_cast<std::uint32_t>(row.integer(4)),
                         .age_s = now_s - row.real(5)};
  };
  return s.all<QualityRecord>(*s.get_qualities, read, s.model, key.hex());
}

std::optional<Quality> Catalogue::quality_for(const Hash128& key, const Method& method, double keep) const {
  const std::lock_guard lock(state_->table_mutex);
  return state_->table.quality_for(key, method, keep);
}

// ---------------------------------------------------------------------------------------------------------------------
// Entries

namespace {

EntryRecord read_entry(const SqlRow& row, double now_s) {
  return {.key = Hash128::parse(row.text(0)).value_or(Hash128{}),
          .tokens = static_cast<std::uint32_t>(row.integer(1)),
          .frequency = row.real(2),
          .accesses = static_cast<std::uint64_t>(row.integer(3)),
          .age_s = std::max(0.0, now_s - row.real(4)),
          .recompute_s = row.real(5),
          .label = row.text(6)};
}

}  // namespace

Status Catalogue::record_entry(const EntryRecord& record, double half_life_s) {
  State& s = *state_;
  return s.atomically([&]() -> Status {
    const auto known = entry(record.key);
    if (!known && known.error().code != ErrorCode::kNotFound) return std::unexpected(known.error());
    const EntryRecord before = known.value_or(EntryRecord{.key = record.key, .age_s = record.age_s});
    const double age_s = std::min(record.age_s, before.age_s);
    const auto decayed = [&](const EntryRecord& of) {
      return of.frequency * std::exp2((age_s - of.age_s) / half_life_s);
    };
    return s.run(*s.put_entry, s.model, record.key.hex(), record.tokens, decayed(before) + decayed(record),
                 before.accesses + record.accesses, s.wall_s() - age_s, record.recompute_s, record.label);
  });
}

Result<EntryRecord> Catalogue::entry(const Hash128& key) const {
  State& s = *state_;
  const auto read = [now_s = s.wall_s()](const SqlRow& row) { return read_entry(row, now_s); };
  return s.one<EntryRecord>(*s.get_entry, key.hex(), read, s.model, key.hex());
}

Result<std::vector<EntryRecord>> Catalogue::entries() const {
  State& s = *state_;
  const auto read = [now_s = s.wall_s()](const SqlRow& row) { return read_entry(row, now_s); };
  return s.all<EntryRecord>(*s.all_entries, read, s.model);
}

Status Catalogue::forget(const Hash128& key) {
  State& s = *state_;
  const Status forgotten = s.atomically([&]() -> Status {
    for (auto* statement : {&s.forget_entry, &s.forget_qualities, &s.forget_questions}) {
      SHALE_TRY((*statement)->run(s.model, key.hex()));
    }
    return {};
  });
  if (forgotten) {
    const std::lock_guard lock(s.table_mutex);
    s.table.forget(key);
  }
  return forgotten;
}

Status Catalogue::record_question(const Hash128& key, const QuestionRecord& question) {
  State& s = *state_;
  return s.atomically([&]() -> Status {
    SHALE_TRY(s.put_question->run(s.model, key.hex(), question.text, question.by_model));
    return s.trim_questions->run(s.model, key.hex(), kQuestionsMax);
  });
}

Result<std::vector<QuestionRecord>> Catalogue::questions(const Hash128& key) const {
  State& s = *state_;
  const auto read = [](const SqlRow& row) { return QuestionRecord{row.text(0), row.integer(1) != 0}; };
  return s.all<QuestionRecord>(*s.get_questions, read, s.model, key.hex());
}

// ---------------------------------------------------------------------------------------------------------------------
// Delays

Status Catalogue::record_delay(std::string_view tier, std::string_view emulated, const DelayRecord& record) {
  State& s = *state_;
  return s.run(*s.put_delay, tier, emulated, record.latency_s, record.read_bytes_per_s, record.write_bytes_per_s,
               record.samples);
}

Result<DelayRecord> Catalogue::delay(std::string_view tier, std::string_view emulated) const {
  State& s = *state_;
  const auto read = [](const SqlRow& row) {
    return DelayRecord{row.real(0), row.real(1), row.real(2), static_cast<std::uint64_t>(row.integer(3))};
  };
  return s.one<DelayRecord>(*s.get_delay, tier, read, tier, emulated);
}

Status Catalogue::record_decode(std::string_view quantizer, double bytes_per_s) {
  State& s = *state_;
  return s.run(*s.put_decode, quantizer, bytes_per_s);
}

Result<double> Catalogue::decode_bytes_per_s(std::string_view quantizer) const {
  State& s = *state_;
  return s.one<double>(*s.get_decode, quantizer, [](const SqlRow& row) { return row.real(0); }, quantizer);
}

Status Catalogue::record_prefill(const PrefillRecord& record) {
  State& s = *state_;
  return s.atomically([&]() -> Status {
    SHALE_TRY(s.put_prefill->run(s.model, record.tokens, record.depth, record.seconds));
    return s.trim_prefills->run(s.model, kPrefillSamplesMax);
  });
}

Result<std::vector<PrefillRecord>> Catalogue::prefills() const {
  State& s = *state_;
  const auto read = [](const SqlRow& row) {
    return PrefillRecord{static_cast<std::uint32_t>(row.integer(0)), static_cast<std::uint32_t>(row.integer(1)),
                         row.real(2)};
  };
  return s.all<PrefillRecord>(*s.get_prefills, read, s.model);
}

Status Catalogue::together(const std::function<Status()>& body) { return state_->atomically(body); }

}  // namespace shale
