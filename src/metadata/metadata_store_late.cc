// A metadata store whose file cannot be opened yet, or was removed: it goes on in memory, or in what was removed, and
// moves to the file when there is one.
#include <utility>

#include "metadata/metadata_store_state.h"

namespace shale {
namespace {

// Whether storage is at fault, without which one can do, and not who named it.
bool is_of_storage(const Error& error) {
  return error.code == ErrorCode::kIo || error.code == ErrorCode::kFull || error.code == ErrorCode::kBusy ||
         error.code == ErrorCode::kCorrupt;
}

}  // namespace

Result<std::unique_ptr<MetadataStore>> MetadataStore::open_late(const std::filesystem::path& path,
                                                                const ModelRecord& model,
                                                                std::function<bool()> reachable, WallClock wall_clock) {
  const auto in_file = [&]() -> Result<std::unique_ptr<MetadataStore>> {
    if (!reachable()) return fail(ErrorCode::kBusy, "metadata store {}: its folder does not answer", path.string());
    SHALE_ASSIGN(auto opened, open(path, model.fingerprint, wall_clock));
    SHALE_TRY(opened->record_model(model.name));
    return opened;
  };
  auto metadata_store = in_file();
  const bool opened = metadata_store.has_value();
  if (!opened) {
    Error why = std::move(metadata_store).error();
    if (!is_of_storage(why)) return std::unexpected(std::move(why));
    why.message += "; what is measured is kept in memory until it can be written";
    metadata_store = open_in_memory(model.fingerprint, wall_clock);
    if (!metadata_store) return metadata_store;
    SHALE_TRY((*metadata_store)->record_model(model.name));
    (*metadata_store)->state_->warning = std::move(why);
  }
  State& state = *(*metadata_store)->state_;
  state.home = {.file = path, .reachable = std::move(reachable), .looked_at_s = state.wall_s()};
  if (opened) state.home->id = file_at(path);
  return metadata_store;
}

void MetadataStore::State::look_after_file() {
  const double now_s = wall_s();
  if (!home || (now_s >= home->looked_at_s && now_s < home->looked_at_s + kLookEveryS)) return;
  home->looked_at_s = now_s;
  if (!home->reachable() || (home->id && home->id == file_at(home->file))) return;
  static_cast<void>(move_to_file());  // tried again
}

Status MetadataStore::State::move_to_file() {
  SHALE_ASSIGN(OpenedMetadataStore opened, open_metadata_store(home->file));
  SHALE_TRY(copy_metadata_store(database, home->file));
  database = std::move(opened.database);
  database.wait_at_most(wait_ms);
  path = fmt::format("metadata store {}", home->file.string());
  warning = std::move(opened.warning);
  version_seen = learned_seen = -1;
  home->id = file_at(home->file);
  return prepare_all();
}

}  // namespace shale
