#include <fmt/format.h>

#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/model_registry.h"
#include "cli/serving.h"
#include "cli/text_file.h"
#include "engine/calibrate.h"

namespace shale {
namespace {

struct CalibrateOptions {
  ModelChoice model;
  OutputOptions output;
  std::vector<std::string> texts;
  std::string file;
};

constexpr char kExamples[] =
    "Any plain text does; some ten thousand tokens are enough. The file is good for this model's weights alone.\n"
    "\n"
    "Examples:\n"
    "  shale calibrate --text LICENSE --output smollm2.calibration\n"
    "  shale generate --calibration smollm2.calibration --method triattention --keep 0.5 --context LICENSE \\\n"
    "    --prompt \"May I sell copies?\"";

Status run(const CalibrateOptions& options) {
  SHALE_ASSIGN(const auto path, resolve_model(options.model.model));
  SHALE_ASSIGN(const auto tokenizer, Tokenizer::load(path));
  std::vector<Token> tokens;
  for (const std::string& name : options.texts) {
    SHALE_ASSIGN(const std::string text, read_text(name));
    const std::vector<Token> more = tokenizer->tokenize(text, false);
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  SHALE_ASSIGN(const auto model, open_model(options.model));
  auto progress = std::make_optional<Progress>(options.output, "calibrating");
  auto calibration = calibrate(*model, tokens, [&](std::size_t done, std::size_t total) {
    (*progress)(done, total);
    return check_interrupt().has_value();
  });
  progress.reset();
  if (!calibration) return std::unexpected(std::move(calibration).error());
  const std::vector<std::byte> bytes = calibration->serialize(model->info().checkpoint);
  SHALE_TRY(write_file(options.file, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
  if (options.output.json) {
    print_json({{"file", options.file},
                {"model", model->info().name},
                {"checkpoint", model->info().checkpoint.hex()},
                {"tokens", tokens.size()},
                {"bytes", bytes.size()}});
  } else {
    print_note(
        fmt::format("{} tokens of text, {} bytes of calibration in {}", tokens.size(), bytes.size(), options.file));
  }
  return {};
}

}  // namespace

void add_calibrate(CLI::App& parent, Action& chosen) {
  auto [command, options] =
      add_command(parent, chosen, "calibrate", "Learn from text what the scorer triattention asks of a model", run);
  command->footer(kExamples);
  command->add_option("--text", options->texts, "UTF-8 text; may be given again")
      ->required()
      ->type_name("FILE")
      ->check(CLI::ExistingFile);
  command->add_option("--output", options->file, "File to write")->required()->type_name("FILE");
  add_model_options(*command, options->model);
  add_output_options(*command, options->output);
}

}  // namespace shale
