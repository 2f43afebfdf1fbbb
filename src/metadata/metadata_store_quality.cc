// What a metadata store knows of answers' quality: rows in the file, and the table that every plan asks.
#include <algorithm>
#include <ranges>
#include <utility>
#include <vector>

#include "metadata/metadata_store_state.h"

namespace shale {
namespace {

std::int64_t first_integer(const SqlRow& row) { return row.integer(0); }

}  // namespace

Status MetadataStore::State::load_table() {
  struct Row {
    Hash128 key;
    Method method;
    double keep, quality;
    std::uint32_t questions;
  };
  std::vector<Row> rows;
  SHALE_TRY(named(all_qualities->each(
      [&](const SqlRow& row) {
        const auto key = Hash128::parse(row.text(0));
        const auto method = Method::parse(row.text(1));
        if (!key || !method) return;
        rows.push_back({*key, *method, row.real(2), row.real(3), static_cast<std::uint32_t>(row.integer(4))});
      },
      quality_model)));
  struct Described {
    Hash128 key;
    ContextKind kind;
    std::uint32_t tokens;
  };
  std::vector<Described> kinds;
  SHALE_TRY(named(all_kinds->each(
      [&](const SqlRow& row) {
        const auto key = Hash128::parse(row.text(0));
        const auto kind = kind_named(row.text(1));
        if (key && kind) kinds.push_back({*key, *kind, static_cast<std::uint32_t>(row.integer(2))});
      },
      model)));
  const std::lock_guard lock(table_mutex);
  table.forget_measured();
  // The newest come first, and are to be forgotten last.
  for (const auto& [key, kind, tokens] : kinds | std::views::reverse) table.describe(key, kind, tokens);
  for (const Row& row : rows) table.record(row.key, row.method, row.keep, row.quality, row.questions);
  return {};
}

// Servers record these all the time, and need few of each other's: those alone are read, once for each version of the
// file. What is known here may not be recorded yet.
Status MetadataStore::State::read_inherited(const Hash128& key) {
  if (inherited_read.contains(key)) return {};
  const auto quality = [](const SqlRow& row) { return row.real(0); };
  const auto recorded = one<double>(*get_inherited, "what it inherited", quality, quality_model, key.hex());
  if (!recorded && recorded.error().code != ErrorCode::kNotFound) return std::unexpected(recorded.error());
  if (inherited_read.size() >= QualityTable::kPrefixesMax) inherited_read.clear();
  inherited_read.insert(key);
  if (!recorded) return {};
  const std::lock_guard lock(table_mutex);
  table.inherit(key, std::min(*recorded, table.inherited(key).value_or(*recorded)));
  return {};
}

// Others read qualities and kinds again. What this process learns it knows, unless others learned before it.
Status MetadataStore::State::note_learned() {
  SHALE_ASSIGN(const std::int64_t times, one<std::int64_t>(*count_learned, "what was learned", first_integer));
  if (times == learned_seen + 1) learned_seen = times;
  return {};
}

Status MetadataStore::measure_in(std::string_view metric) {
  State& s = *state_;
  s.metric = metric;
  s.quality_model = metric == kAgreement ? s.model : fmt::format("{}:{}", s.model, metric);
  {
    const std::lock_guard lock(s.table_mutex);
    s.table.forget_inherited();
  }
  s.inherited_read.clear();
  return s.load_table();
}

const std::string& MetadataStore::metric() const { return state_->metric; }

Result<bool> MetadataStore::refresh() {
  State& s = *state_;
  s.look_after_file();
  SHALE_ASSIGN(const std::int64_t version, s.one<std::int64_t>(*s.data_version, "its version", first_integer));
  if (version == s.version_seen) return false;
  s.inherited_read.clear();
  SHALE_ASSIGN(const std::int64_t learned, s.one<std::int64_t>(*s.get_learned, "what was learned", first_integer));
  const bool news = learned != s.learned_seen;
  if (news) SHALE_TRY(s.load_table());
  s.version_seen = version;
  s.learned_seen = learned;
  return news;
}

Status MetadataStore::record_quality(const QualityRecord& record) {
  State& s = *state_;
  const Status recorded = s.atomically([&]() -> Status {
    SHALE_TRY(s.run(*s.put_quality, s.quality_model, record.key.hex(), record.method.text(), record.keep,
                    record.quality, record.kl, record.questions, s.wall_s()));
    return s.note_learned();
  });
  if (!recorded) return recorded;
  const std::lock_guard lock(s.table_mutex);
  s.table.record(record.key, record.method, record.keep, record.quality, record.questions);
  return {};
}

Status MetadataStore::add_quality(QualityRecord record) {
  return state_->atomically([&]() -> Status {
    SHALE_ASSIGN(const auto known, qualities(record.key));
    const auto before = std::ranges::find_if(known, [&](const QualityRecord& each) {
      return each.method == record.method && each.keep == record.keep && each.questions > 0;
    });
    if (before != known.end()) {
      const double added = record.questions, all = added + before->questions;
      record.quality = (added * record.quality + before->questions * before->quality) / all;
      record.kl = (added * record.kl + before->questions * before->kl) / all;
      record.questions += before->questions;
    }
    return record_quality(record);
  });
}

Result<std::vector<QualityRecord>> MetadataStore::qualities(const Hash128& key) const {
  State& s = *state_;
  const double now_s = s.wall_s();
  const auto read = [&](const SqlRow& row) {
    return QualityRecord{.key = key,
                         .method = Method::parse(row.text(0)).value_or(Method::full()),
                         .keep = row.real(1),
                         .quality = row.real(2),
                         .kl = row.real(3),
                         .questions = static_cast<std::uint32_t>(row.integer(4)),
                         .age_s = now_s - row.real(5)};
  };
  return s.all<QualityRecord>(*s.get_qualities, read, s.quality_model, key.hex());
}

std::optional<Quality> MetadataStore::quality_for(const Hash128& key, const Method& method, double keep) const {
  const std::lock_guard lock(state_->table_mutex);
  return state_->table.quality_for(key, method, keep);
}

std::uint32_t MetadataStore::questions_measured(const Hash128& key, const Method& method) const {
  const std::lock_guard lock(state_->table_mutex);
  return state_->table.questions(key, method);
}

void MetadataStore::describe(const Hash128& key, ContextKind kind, std::uint32_t tokens) {
  const std::lock_guard lock(state_->table_mutex);
  state_->table.describe(key, kind, tokens);
}

Status MetadataStore::record_kind(const Hash128& key, ContextKind kind) {
  describe(key, kind, 0);
  State& s = *state_;
  return s.atomically([&]() -> Status {
    SHALE_TRY(s.run(*s.put_kind, s.model, key.hex(), name_of(kind)));
    return s.note_learned();
  });
}

std::optional<ContextKind> MetadataStore::kind(const Hash128& key) const {
  const std::lock_guard lock(state_->table_mutex);
  return state_->table.kind(key);
}

void MetadataStore::inherit(const Hash128& key, double quality) {
  const std::lock_guard lock(state_->table_mutex);
  state_->table.inherit(key, quality);
}

Status MetadataStore::record_inherited(const Hash128& key, double quality) {
  inherit(key, quality);
  State& s = *state_;
  return s.run(*s.put_inherited, s.quality_model, key.hex(), quality);
}

Result<double> MetadataStore::inherited(const Hash128& key) const {
  const Status read = state_->read_inherited(key);
  {
    const std::lock_guard lock(state_->table_mutex);
    if (const auto known = state_->table.inherited(key)) return *known;
  }
  if (!read) return std::unexpected(read.error());
  return fail(ErrorCode::kNotFound, "nobody recorded what cached prefix {} inherited", key.hex());
}

void MetadataStore::note_shipped(const Hash128& key) {
  const std::lock_guard lock(state_->table_mutex);
  state_->table.note_shipped(key);
}

void MetadataStore::bound_error(const Hash128& key, const Method& method, double error) {
  if (state_->metric != kAgreement) return;
  const std::lock_guard lock(state_->table_mutex);
  state_->table.bound_error(key, method, error);
}

}  // namespace shale
