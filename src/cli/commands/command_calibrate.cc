#include <fmt/format.h>

#include "cli/command.h"
#include "cli/option_types.h"
#include "cli/serving_options.h"
#include "core/interrupt.h"
#include "core/text_file.h"
#include "engine/calibrate.h"
#include "runtime/model_registry.h"
#include "runtime/serving.h"

namespace shale {
namespace {

struct CalibrateOptions {
  ModelChoice model;
  OutputOptions output;
  std::vector<std::string> texts;
  std::string file, tables;
  CachegenWidths bins = kCachegenWidths;
};

constexpr char kCalibrateExamples[] =
    "Any plain text does; some ten thousand tokens are enough. The files are good for this model's weights alone.\n"
    "\n"
    "Examples:\n"
    "  shale calibrate --text LICENSE --output smollm2.calibration --cachegen-tables smollm2.tables\n"
    "  shale generate --calibration smollm2.calibration --method triattention --keep 0.5 --context LICENSE \\\n"
    "    --prompt \"May I sell copies?\"";

Status run_calibrate(const CalibrateOptions& options) {
  if (!options.file.empty() && options.file == options.tables) {
    return fail(ErrorCode::kInvalidArgument, "--output and --cachegen-tables name one file, '{}': give two",
                options.file);
  }
  SHALE_ASSIGN(const auto path, resolve_model(options.model.model));
  SHALE_ASSIGN(const auto tokenizer, Tokenizer::load(path));
  std::vector<Token> tokens;
  for (const std::string& name : options.texts) {
    SHALE_ASSIGN(const std::string text, read_text(name));
    const std::vector<Token> more = tokenizer->tokenize(text, false);
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  SHALE_ASSIGN(const auto model, open_model(options.model));
  const auto watched = [&](std::string_view what, const auto& calibrate) {
    Progress progress(options.output, std::string(what));
    return calibrate([&](std::size_t done, std::size_t total) {
      progress(done, total);
      return check_interrupt().has_value();
    });
  };
  const auto report = [&](const std::string& file, std::span<const std::byte> bytes) -> Status {
    SHALE_TRY(write_file(file, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
    if (options.output.json) {
      print_json({{"file", file},
                  {"model", model->info().name},
                  {"checkpoint", model->info().checkpoint.hex()},
                  {"tokens", tokens.size()},
                  {"bytes", bytes.size()}});
    } else {
      print_note(fmt::format("{} tokens of text, {} bytes of calibration in {}", tokens.size(), bytes.size(), file));
    }
    return {};
  };
  if (!options.file.empty()) {
    SHALE_ASSIGN(const Calibration calibration,
                 watched("calibrating", [&](const auto& progress) { return calibrate(*model, tokens, progress); }));
    SHALE_TRY(report(options.file, calibration.serialize(model->info().checkpoint)));
  }
  if (!options.tables.empty()) {
    SHALE_ASSIGN(const CachegenTables tables, watched("counting codes", [&](const auto& progress) {
                   return calibrate_cachegen(*model, tokens, options.bins, progress);
                 }));
    SHALE_TRY(report(options.tables, tables.serialize(model->info().checkpoint)));
  }
  return {};
}

}  // namespace

void add_calibrate(Command parent, Action& chosen) {
  auto [command, options] = add_command(
      parent, chosen, "calibrate",
      "Learn from text what the scorer triattention and the quantizer cachegen ask of a model", run_calibrate);
  command.footer(kCalibrateExamples);
  command.add_option("--text", options->texts, "UTF-8 text; may be given again")
      .required()
      .type_name("FILE")
      .existing_file();
  Command files = command.add_option_group("Files to write", 1, 2);
  files.add_option("--output", options->file, "Where queries point, for triattention").type_name("FILE");
  files.add_option("--cachegen-tables", options->tables, "How keys and values lie, for cachegen").type_name("FILE");
  command
      .add_option("--cachegen-bins", options->bins,
                  "Width of cachegen's bins in the first, middle and last third of the layers, in standard deviations")
      .range(0.01, 100.0)
      .delimiter(',')
      .type_name("W,W,W")
      .default_str("0.5,1,1.5");
  add_model_options(command, options->model);
  add_output_options(command, options->output);
}

}  // namespace shale
