#include "metadata/metadata_store.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "metadata/metadata_store_state.h"

namespace shale {
namespace {

// Which rows are seen: a damaged or foreign file may hold any number, and one that cannot have been measured would
// mislead every plan.
constexpr std::string_view kSoundQuality =
    "keep BETWEEN 0 AND 1 AND agreement BETWEEN 0 AND 1 AND kl BETWEEN -1 AND 1e6 AND "
    "questions BETWEEN 0 AND 4294967295 AND measured_at BETWEEN -1e12 AND 1e12";
constexpr std::string_view kSoundPrefix =
    "tokens BETWEEN 0 AND 4294967295 AND frequency BETWEEN 0 AND 1e15 AND accesses BETWEEN 0 AND 9e15 AND "
    "accessed_at BETWEEN -1e12 AND 1e12 AND recompute_s BETWEEN 0 AND 1e9";
constexpr std::string_view kSoundDelay =
    "latency_s BETWEEN 0 AND 1e9 AND read_bytes_per_s BETWEEN 0 AND 1e15 AND write_bytes_per_s BETWEEN 0 AND 1e15 AND "
    "samples BETWEEN 0 AND 9e15";
constexpr std::string_view kSoundDecode = "bytes_per_s BETWEEN 0 AND 1e15";
constexpr std::string_view kSoundPrefill =
    "tokens BETWEEN 0 AND 4294967295 AND depth BETWEEN 0 AND 4294967295 AND seconds BETWEEN 0 AND 1e9";
constexpr std::string_view kCountLearned =
    "INSERT INTO learned VALUES (0, 1) ON CONFLICT (id) DO UPDATE SET times = times + 1 RETURNING times";

}  // namespace

Status MetadataStore::State::prepare(std::optional<SqlStatement>& statement, std::string_view sql) {
  SHALE_ASSIGN(SqlStatement prepared, named(database.prepare(sql)));
  statement.emplace(std::move(prepared));
  return {};
}

Status MetadataStore::State::prepare_forgetting() {
  SHALE_TRY(prepare(forget_prefix, "DELETE FROM entry WHERE model = ?1 AND key = ?2"));
  SHALE_TRY(prepare(forget_kind, "DELETE FROM kind WHERE model = ?1 AND key = ?2"));
  SHALE_TRY(prepare(forget_qualities, "DELETE FROM quality WHERE (model = ?1 OR model LIKE ?1 || ':%') AND key = ?2"));
  SHALE_TRY(
      prepare(forget_inherited, "DELETE FROM inherited WHERE (model = ?1 OR model LIKE ?1 || ':%') AND key = ?2"));
  return prepare(forget_questions, "DELETE FROM question WHERE model = ?1 AND key = ?2");
}

Status MetadataStore::State::prepare_all() {
  SHALE_TRY(prepare_forgetting());
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
  SHALE_TRY(prepare(put_inherited, "INSERT OR REPLACE INTO inherited VALUES (?1, ?2, ?3)"));
  SHALE_TRY(prepare(get_inherited,
                    "SELECT quality FROM inherited WHERE model = ?1 AND key = ?2 AND quality BETWEEN 0 AND 1"));
  SHALE_TRY(prepare(put_kind, "INSERT OR REPLACE INTO kind VALUES (?1, ?2, ?3)"));
  SHALE_TRY(prepare(all_kinds,
                    fmt::format("SELECT kind.key, kind, ifnull(tokens, 0) FROM kind LEFT JOIN entry ON entry.model = "
                                "kind.model AND entry.key = kind.key AND {} WHERE kind.model = ?1 "
                                "ORDER BY accessed_at IS NOT NULL, accessed_at DESC LIMIT {}",
                                kSoundPrefix, QualityTable::kPrefixesMax)));
  SHALE_TRY(prepare(put_prefix, "INSERT OR REPLACE INTO entry VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"));
  SHALE_TRY(prepare(get_prefix,
                    fmt::format("SELECT key, tokens, frequency, accesses, accessed_at, recompute_s, label FROM entry "
                                "WHERE model = ?1 AND key = ?2 AND {}",
                                kSoundPrefix)));
  SHALE_TRY(prepare(all_prefixes,
                    fmt::format("SELECT key, tokens, frequency, accesses, accessed_at, recompute_s, label FROM entry "
                                "WHERE model = ?1 AND {} ORDER BY accessed_at DESC, key",
                                kSoundPrefix)));
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
  SHALE_TRY(prepare(count_learned, kCountLearned));
  SHALE_TRY(prepare(get_learned, "SELECT ifnull(max(times), 0) FROM learned"));
  return {};
}

MetadataStore::MetadataStore(std::unique_ptr<State> state) : state_(std::move(state)) {}
MetadataStore::~MetadataStore() = default;

Result<std::unique_ptr<MetadataStore>> MetadataStore::open(const std::filesystem::path& path, const Hash128& model,
                                                           WallClock wall_clock) {
  SHALE_ASSIGN(OpenedMetadataStore opened, open_metadata_store(path));
  auto state = std::make_unique<State>(std::move(opened.database), fmt::format("metadata store {}", path.string()),
                                       model, std::move(wall_clock));
  state->warning = std::move(opened.warning);
  return begin(std::move(state));
}

Result<std::unique_ptr<MetadataStore>> MetadataStore::open_in_memory(const Hash128& model, WallClock wall_clock) {
  SHALE_ASSIGN(SqlDatabase database, open_metadata_store_in_memory());
  return begin(std::make_unique<State>(std::move(database), "metadata store in memory", model, std::move(wall_clock)));
}

Result<std::unique_ptr<MetadataStore>> MetadataStore::begin(std::unique_ptr<State> state) {
  SHALE_TRY(state->prepare_all());
  std::unique_ptr<MetadataStore> metadata_store(new MetadataStore(std::move(state)));
  SHALE_TRY(metadata_store->refresh());
  return metadata_store;
}

int MetadataStore::wait_at_most(int milliseconds) {
  state_->database.wait_at_most(milliseconds);
  return std::exchange(state_->wait_ms, milliseconds);
}

const std::optional<Error>& MetadataStore::warning() const { return state_->warning; }

Status MetadataStore::record_model(std::string_view name) {
  State& s = *state_;
  return s.run(*s.put_model, s.model, name);
}

Result<std::vector<ModelRecord>> MetadataStore::models() const {
  State& s = *state_;
  const auto read = [](const SqlRow& row) {
    return ModelRecord{Hash128::parse(row.text(0)).value_or(Hash128{}), row.text(1)};
  };
  return s.all<ModelRecord>(*s.all_models, read);
}

// ---------------------------------------------------------------------------------------------------------------------
// Cached prefixes

namespace {

PrefixRecord read_prefix(const SqlRow& row, double now_s) {
  return {.key = Hash128::parse(row.text(0)).value_or(Hash128{}),
          .tokens = static_cast<std::uint32_t>(row.integer(1)),
          .frequency = row.real(2),
          .accesses = static_cast<std::uint64_t>(row.integer(3)),
          .age_s = std::max(0.0, now_s - row.real(4)),
          .recompute_s = row.real(5),
          .label = row.text(6)};
}

}  // namespace

Status MetadataStore::record_prefix(const PrefixRecord& record, double half_life_s) {
  State& s = *state_;
  return s.atomically([&]() -> Status {
    const auto known = prefix(record.key);
    if (!known && known.error().code != ErrorCode::kNotFound) return std::unexpected(known.error());
    const PrefixRecord before = known.value_or(PrefixRecord{.key = record.key, .age_s = record.age_s});
    const double age_s = std::min(record.age_s, before.age_s);
    const auto decayed = [&](const PrefixRecord& of) {
      return of.frequency * std::exp2((age_s - of.age_s) / half_life_s);
    };
    return s.run(*s.put_prefix, s.model, record.key.hex(), record.tokens, decayed(before) + decayed(record),
                 before.accesses + record.accesses, s.wall_s() - age_s, record.recompute_s, record.label);
  });
}

Result<PrefixRecord> MetadataStore::prefix(const Hash128& key) const {
  State& s = *state_;
  const auto read = [now_s = s.wall_s()](const SqlRow& row) { return read_prefix(row, now_s); };
  return s.one<PrefixRecord>(*s.get_prefix, key.hex(), read, s.model, key.hex());
}

Result<std::vector<PrefixRecord>> MetadataStore::prefixes() const {
  State& s = *state_;
  const auto read = [now_s = s.wall_s()](const SqlRow& row) { return read_prefix(row, now_s); };
  return s.all<PrefixRecord>(*s.all_prefixes, read, s.model);
}

Status MetadataStore::record_question(const Hash128& key, const QuestionRecord& question) {
  State& s = *state_;
  return s.atomically([&]() -> Status {
    SHALE_TRY(s.put_question->run(s.model, key.hex(), question.text, question.by_model));
    return s.trim_questions->run(s.model, key.hex(), kQuestionsMax);
  });
}

Result<std::vector<QuestionRecord>> MetadataStore::questions(const Hash128& key) const {
  State& s = *state_;
  const auto read = [](const SqlRow& row) { return QuestionRecord{row.text(0), row.integer(1) != 0}; };
  return s.all<QuestionRecord>(*s.get_questions, read, s.model, key.hex());
}

// ---------------------------------------------------------------------------------------------------------------------
// Delays

Status MetadataStore::record_delay(std::string_view tier, std::string_view emulated, const DelayRecord& record) {
  State& s = *state_;
  return s.run(*s.put_delay, tier, emulated, record.latency_s, record.read_bytes_per_s, record.write_bytes_per_s,
               record.samples);
}

Result<DelayRecord> MetadataStore::delay(std::string_view tier, std::string_view emulated) const {
  State& s = *state_;
  const auto read = [](const SqlRow& row) {
    return DelayRecord{row.real(0), row.real(1), row.real(2), static_cast<std::uint64_t>(row.integer(3))};
  };
  return s.one<DelayRecord>(*s.get_delay, tier, read, tier, emulated);
}

Status MetadataStore::record_decode(std::string_view quantizer, double bytes_per_s) {
  State& s = *state_;
  return s.run(*s.put_decode, quantizer, bytes_per_s);
}

Result<double> MetadataStore::decode_bytes_per_s(std::string_view quantizer) const {
  State& s = *state_;
  return s.one<double>(*s.get_decode, quantizer, [](const SqlRow& row) { return row.real(0); }, quantizer);
}

Status MetadataStore::record_prefill(const PrefillRecord& record) {
  State& s = *state_;
  return s.atomically([&]() -> Status {
    SHALE_TRY(s.put_prefill->run(s.model, record.tokens, record.depth, record.seconds));
    return s.trim_prefills->run(s.model, kPrefillSamplesMax);
  });
}

Result<std::vector<PrefillRecord>> MetadataStore::prefills() const {
  State& s = *state_;
  const auto read = [](const SqlRow& row) {
    return PrefillRecord{static_cast<std::uint32_t>(row.integer(0)), static_cast<std::uint32_t>(row.integer(1)),
                         row.real(2)};
  };
  return s.all<PrefillRecord>(*s.get_prefills, read, s.model);
}

Status MetadataStore::together(const std::function<Status()>& body) { return state_->atomically(body); }

}  // namespace shale
