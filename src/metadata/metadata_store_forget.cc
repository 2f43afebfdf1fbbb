// How a metadata store loses what is known of a cached prefix: when it is told to, and when others are newer.
#include <mutex>
#include <ranges>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "metadata/metadata_store_state.h"

namespace shale {
namespace {

// So many at once, and the others the next time.
constexpr std::size_t kForgottenAtOnce = 32768;

constexpr std::string_view kOldPrefixes =
    "SELECT key FROM entry WHERE model = ?1 ORDER BY accessed_at DESC, key LIMIT ?3 OFFSET ?2";
// Neither shipped texts (?2) nor in `entry`: lost from there, or used by processes that say so when they end.
constexpr std::string_view kUnused =
    "key NOT IN (SELECT value FROM json_each(?2)) AND key NOT IN (SELECT key FROM entry WHERE model = ?1)";
constexpr std::string_view kOldQualities =
    "DELETE FROM quality WHERE (model = ?1 OR model LIKE ?1 || ':%') AND measured_at < ?3 AND {}";
constexpr std::string_view kOldInherited = "DELETE FROM inherited WHERE (model = ?1 OR model LIKE ?1 || ':%') AND {}";
constexpr std::string_view kOldKinds =
    "DELETE FROM kind WHERE model = ?1 AND {} AND key NOT IN (SELECT key FROM quality WHERE model = ?1 OR "
    "model LIKE ?1 || ':%')";
constexpr std::string_view kOldQuestions =
    "DELETE FROM question WHERE model = ?1 AND {} AND id NOT IN (SELECT id FROM question WHERE model = ?1 "
    "ORDER BY id DESC LIMIT ?3)";

std::string json_of(const std::unordered_set<Hash128>& keys) {
  const auto quoted = std::views::transform(keys, [](const Hash128& key) { return '"' + key.hex() + '"'; });
  return fmt::format("[{}]", fmt::join(quoted, ","));
}

}  // namespace

Status MetadataStore::forget(const Hash128& key) {
  State& s = *state_;
  const Status forgotten = s.atomically([&]() -> Status {
    for (auto* statement :
         {&s.forget_prefix, &s.forget_kind, &s.forget_qualities, &s.forget_inherited, &s.forget_questions}) {
      SHALE_TRY((*statement)->run(s.model, key.hex()));
    }
    return s.note_learned();
  });
  if (forgotten) {
    const std::lock_guard lock(s.table_mutex);
    s.table.forget(key);
  }
  return forgotten;
}

Status MetadataStore::forget_old() {
  State& s = *state_;
  const auto run = [&](std::string_view sql, const auto&... values) -> Status {
    SHALE_ASSIGN(SqlStatement statement, s.named(s.database.prepare(fmt::format(fmt::runtime(sql), kUnused))));
    return s.run(statement, s.model, values...);
  };
  const std::string shipped = [&] {
    const std::lock_guard lock(s.table_mutex);
    return json_of(s.table.shipped());
  }();
  return s.atomically([&]() -> Status {
    SHALE_ASSIGN(SqlStatement old_prefixes, s.named(s.database.prepare(kOldPrefixes)));
    const auto text = [](const SqlRow& row) { return row.text(0); };
    SHALE_ASSIGN(const auto old, s.all<std::string>(old_prefixes, text, s.model, kPrefixesMax, kForgottenAtOnce));
    for (const std::string& key : old) {
      SHALE_TRY(s.forget_prefix->run(s.model, key));
      SHALE_TRY(s.forget_questions->run(s.model, key));
    }
    SHALE_TRY(run(kOldQuestions, shipped, kUnusedQuestionsMax));
    SHALE_TRY(run(kOldInherited, shipped));
    // Who does not know the shipped texts takes none of their rows for another's.
    if (shipped == "[]") return {};
    SHALE_TRY(run(kOldQualities, shipped, s.wall_s() - kUnusedQualityS));
    return run(kOldKinds, shipped);
  });
}

}  // namespace shale
