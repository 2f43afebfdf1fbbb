#include "runtime/model_registry.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <system_error>

#include "core/child_process.h"
#include "core/units.h"
#include "core/user_folder.h"
#include "runtime/models_table.h"

namespace shale {
namespace {

std::vector<NamedModel> read_table() {
  std::vector<NamedModel> models;
  const auto table = nlohmann::ordered_json::parse(kModelsTable);
  for (const auto& [name, row] : table.items()) {
    models.push_back({.name = name,
                      .about = row.at("about"),
                      .architecture = row.at("architecture"),
                      .licence = row.at("licence"),
                      .bytes = row.at("bytes"),
                      .sha256 = row.at("sha256"),
                      .is_default = models.empty()});
  }
  return models;
}

Result<const NamedModel*> find(std::string_view name) {
  const auto& models = named_models();
  const auto found = std::ranges::find(models, name, &NamedModel::name);
  if (found != models.end()) return &*found;
  std::vector<std::string_view> names;
  for (const NamedModel& model : models) names.push_back(model.name);
  return fail(ErrorCode::kNotFound, "'{}' is neither a file nor one of the named models: {}", name,
              fmt::join(names, ", "));
}

// Beside an installed program, or where this one was built from.
std::filesystem::path fetch_tool() {
  std::error_code unknown;
  const auto program = own_program();
  if (!program) return SHALE_TOOLS_DIR "/fetch_model.py";
  const auto installed = program->parent_path().parent_path() / "share/shale/fetch_model.py";
  return std::filesystem::exists(installed, unknown) ? installed : SHALE_TOOLS_DIR "/fetch_model.py";
}

}  // namespace

const std::vector<NamedModel>& named_models() {
  static const std::vector<NamedModel> models = read_table();
  return models;
}

std::filesystem::path model_folder() {
  if (const char* folder = std::getenv("SHALE_MODEL_DIR"); folder && *folder) return folder;
  return user_folder("XDG_CACHE_HOME", ".cache") / "models";
}

Result<std::filesystem::path> resolve_model(std::string_view name_or_path) {
  std::error_code error;
  if (std::filesystem::path path = name_or_path; std::filesystem::is_regular_file(path, error)) return path;
  if (name_or_path.find('/') != std::string_view::npos || name_or_path.ends_with(".gguf")) {
    return fail(ErrorCode::kNotFound, "there is no model file '{}'", name_or_path);
  }
  SHALE_ASSIGN(const NamedModel* model, find(name_or_path));
  std::filesystem::path path = model_folder() / (model->name + ".gguf");
  if (std::filesystem::is_regular_file(path, error)) return path;
  return fail(ErrorCode::kNotFound, "model '{}' is not here yet: `shale model fetch {}` fetches it ({})", model->name,
              model->name, format_bytes(model->bytes));
}

Result<std::vector<std::string>> fetch_command(std::string_view name) {
  SHALE_ASSIGN(const NamedModel* model, find(name));
  return std::vector<std::string>{"python3", fetch_tool().string(), model->name, "--to", model_folder().string()};
}

std::string served_name(std::string_view name_or_path) {
  const auto file = std::filesystem::path(name_or_path).filename();
  return file.extension() == ".gguf" ? file.stem() : file;
}

}  // namespace shale
