#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "cli/command.h"
#include "cli/option_types.h"
#include "codec/method.h"
#include "core/units.h"
#include "report/output.h"
#include "runtime/score_file.h"
#include "scoring/budgets/budget.h"
#include "scoring/calibration.h"
#include "scoring/row_layer.h"

namespace shale {
namespace {

struct ScoreOptions {
  std::string method, input, output_file;
  std::optional<std::string> keep;
  ScorerOptions scorer;
  double rope_base = 10000;
  std::string rope_pairing = "halves";
  OutputOptions output;
};

Calibration calibrate_on(const KvFile& file, const Rope& rope) {
  Calibrator calibrator(file.layers(), file.query_heads(), rope);
  const std::size_t size = std::size_t{file.tokens()} * file.head_dim();
  for (std::uint32_t layer = 0; layer < file.layers(); ++layer) {
    for (std::uint32_t head = 0; head < file.query_heads(); ++head) {
      calibrator.add(layer, head, unturned(file.queries(layer).subspan(head * size, size), rope, file.head_dim()),
                     file.head_dim());
    }
  }
  return calibrator.finish();
}

Result<double> parse_share(const std::string& text) {
  if (const auto keep = parse_number(text); keep && *keep > 0 && *keep <= 1) return *keep;
  return fail(ErrorCode::kInvalidArgument, "--keep {}: give a share above 0, at most 1, such as 0.5", text);
}

// [layers][KV heads][tokens]
Result<std::vector<float>> score_file(const KvFile& file, const Scorer& scorer, const ScoreOptions& options) {
  const ScorerNeeds needs = scorer.needs();
  if (needs.repeat_attention) {
    return fail(ErrorCode::kInvalidArgument,
                "{} reads the attention of a model that repeats the context, which no file holds: measure it with the "
                "model, as in `shale profile --profile-methods {}`",
                scorer.name(), scorer.name());
  }
  const Rope rope{
      .base = options.rope_base,
      .dimensions = file.head_dim(),
      .pairing = options.rope_pairing == "halves" ? Rope::Pairing::kHalves : Rope::Pairing::kNeighbours,
  };
  const Calibration calibration = needs.calibration ? calibrate_on(file, rope) : Calibration();
  const std::size_t size = std::size_t{file.kv_heads()} * file.tokens();
  const RowShape shape{.tokens = file.tokens(),
                       .kv_heads = file.kv_heads(),
                       .query_heads = file.query_heads(),
                       .query_tokens = file.tokens(),
                       .head_dim = file.head_dim()};
  std::vector<float> scores(file.layers() * size);
  Progress progress(options.output, "scoring");
  for (std::uint32_t layer = 0; layer < file.layers(); ++layer) {
    progress(layer, file.layers());
    RowLayer rows(shape, file.keys(layer), file.values(layer), file.queries(layer), needs, rope);
    rows.layer().layer = layer;
    rows.layer().calibration = &calibration;
    scorer.score(rows.layer(), std::span(scores).subspan(layer * size, size));
  }
  return scores;
}

Status run_score(const ScoreOptions& options) {
  SHALE_ASSIGN(const Method method, Method::parse(options.method));
  if (method.scorer.empty() || method.quantizer != "none") {
    return fail(ErrorCode::kInvalidArgument, "--method {}: give [budget:]scorer, such as snapkv or adakv:snapkv",
                options.method);
  }
  SHALE_ASSIGN(const auto scorer, make_scorer(method.scorer, options.scorer));
  SHALE_ASSIGN(const auto budget, make_budget(method.budget.empty() ? "uniform" : method.budget));
  double keep = 1;
  if (options.keep) {
    SHALE_ASSIGN(keep, parse_share(*options.keep));
  }
  SHALE_ASSIGN(const KvFile file, KvFile::open(options.input));
  SHALE_ASSIGN(const std::vector<float> scores, score_file(file, *scorer, options));

  std::vector<NamedMatrix> results;
  const std::size_t size = scores.size() / file.layers();
  const auto add = [&](const std::string& what, auto values) {
    for (std::uint32_t layer = 0; layer < file.layers(); ++layer) {
      const auto of_layer = std::span(values).subspan(layer * size, size);
      results.push_back({fmt::format("l{}.{}", layer, what), {of_layer.begin(), of_layer.end()}});
    }
  };
  add("score." + options.method, scores);
  std::size_t kept_count = 0;
  if (options.keep) {
    const Kept kept =
        budget->select({file.layers(), file.kv_heads(), file.tokens(), scores}, keep, options.scorer.window);
    kept_count = static_cast<std::size_t>(std::ranges::count(kept, 1));
    add(fmt::format("kept.{}.{}", options.method, *options.keep), kept);
  }
  SHALE_TRY(write_matrices(options.output_file, file.tokens(), results));
  if (options.output.json) {
    Json report = {{"method", options.method},
                   {"layers", file.layers()},
                   {"kv_heads", file.kv_heads()},
                   {"tokens", file.tokens()},
                   {"output", options.output_file}};
    if (options.keep) report["kept"] = kept_count;
    print_json(report);
  } else {
    print_note(fmt::format("{} layers, {} KV heads, {} tokens", file.layers(), file.kv_heads(), file.tokens()));
  }
  return {};
}

}  // namespace

void add_score(Command parent, Action& chosen) {
  auto [command, o] = add_command<ScoreOptions>(
      parent, chosen, "score", "Score the tokens of a file of queries, keys and values, as other libraries do",
      run_score);
  command.footer(
      "Reads the F32 tensors l{L}.q (query heads x tokens x head dimension, after RoPE), l{L}.k and l{L}.v (KV heads "
      "x\n"
      "tokens x head dimension) of a GGUF file, layers numbered from 0, token i at position i. Writes "
      "l{L}.score.METHOD\n"
      "(KV heads x tokens, higher = keep) and with --keep l{L}.kept.METHOD.KEEP (1 for a token that is kept, else 0).\n"
      "triattention is calibrated with the file's own queries.\n\n"
      "Examples:\n"
      "  shale score --method snapkv --input kv.gguf --output scores.gguf --window 32\n"
      "  shale score --method adakv:snapkv --keep 0.5 --input kv.gguf --output scores.gguf");
  command.add_option("--method", o->method, "[budget:]scorer: what ranks tokens, and how many each head keeps")
      .type_name("METHOD")
      .required();
  command.add_option("--input", o->input, "GGUF file to read").type_name("FILE").required();
  command.add_option("--output", o->output_file, "GGUF file to write").type_name("FILE").required();
  command.add_option("--keep", o->keep, "Also write which tokens are kept of this share").type_name("SHARE");
  const auto add = [&](const char* name, auto& value, const char* description, const char* type, const char* group) {
    return command.add_option(name, value, description).type_name(type).capture_default_str().group(group);
  };
  add("--window", o->scorer.window, "snapkv: queries observed; pyramid: tokens that every layer has room for", "N",
      "Scorer");
  add("--kernel", o->scorer.kernel, "snapkv, rkv: width of the average pooling, odd", "N", "Scorer");
  add("--sinks", o->scorer.sinks, "streaming, kvzip: first tokens that always rank first", "N", "Scorer");
  add("--seed", o->scorer.seed, "random: of the permutation", "N", "Scorer");
  add("--rope-base", o->rope_base, "expected_attention, triattention: base of the rotation", "N", "Rotation")
      .positive();
  add("--rope-pairing", o->rope_pairing, "Channels that turn together: of the two halves, or neighbours",
      "halves|neighbours", "Rotation")
      .one_of({"halves", "neighbours"});
  add_output_options(command, o->output);
}

}  // namespace shale
