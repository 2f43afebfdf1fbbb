// Models by name: the table of tools/models.json, which is part of the program, and the folder of fetched models,
// ${SHALE_MODEL_DIR:-${XDG_CACHE_HOME:-~/.cache}/shale/models}/NAME.gguf. Any other GGUF file goes by its path.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace shale {

// The model whose sentence embeddings `cosine` compares.
inline constexpr char kEncoderModel[] = "all-minilm-l6-v2";

struct NamedModel {
  std::string name;
  std::string about;
  std::string architecture;  // as the file's metadata spells it
  std::string licence;
  std::uint64_t bytes = 0;
  std::string sha256;
  bool is_default = false;
};

// Models in the table's order, the default first.
const std::vector<NamedModel>& named_models();

std::filesystem::path model_folder();

// The file of a model given by name or path. kNotFound says which command fetches a named model that is not here, or
// what the names are. Does not look inside the file.
Result<std::filesystem::path> resolve_model(std::string_view name_or_path);

// What clients call it: the registered name, or the file's without its `.gguf`.
std::string served_name(std::string_view name_or_path);

// The command that fetches a named model into model_folder(): complete and with the right checksum, or not at all. It
// explains failures on its stderr, shows its progress there on a terminal, and prints the file's path. kNotFound for
// an unknown name.
Result<std::vector<std::string>> fetch_command(std::string_view name);

}  // namespace shale
