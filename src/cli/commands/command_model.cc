#include <fmt/format.h>

#include "cli/command.h"
#include "cli/option_types.h"
#include "cli/serving_options.h"
#include "core/child_process.h"
#include "core/units.h"
#include "report/output.h"
#include "runtime/model_registry.h"
#include "runtime/serving.h"

namespace shale {
namespace {

struct FetchOptions {
  std::string name;
  OutputOptions output;
};

struct ListOptions {
  OutputOptions output;
};

struct ModelShowOptions {
  ModelChoice model;
  OutputOptions output;
};

Status fetch(const FetchOptions& options) {
  SHALE_ASSIGN(const auto command, fetch_command(options.name));
  const bool here = resolve_model(options.name).has_value();
  if (!here) SHALE_TRY(run_child(command, ChildErrors::kShow));
  SHALE_ASSIGN(const auto path, resolve_model(options.name));
  if (options.output.json) {
    print_json({{"model", options.name}, {"path", path.string()}, {"fetched", !here}});
  } else {
    fmt::print("{}\n", path.string());
  }
  return {};
}

Status list(const ListOptions& options) {
  for (const NamedModel& model : named_models()) {
    const auto path = resolve_model(model.name);
    if (options.output.json) {
      print_json({{"name", model.name},
                  {"about", model.about},
                  {"architecture", model.architecture},
                  {"licence", model.licence},
                  {"bytes", model.bytes},
                  {"sha256", model.sha256},
                  {"default", model.is_default},
                  {"path", path ? Json(path->string()) : Json()}});
    } else {
      fmt::print("{:<20} {:>10}  {:<10}  {}\n", model.name, format_bytes(model.bytes), path ? "here" : "not here",
                 model.about);
    }
  }
  return {};
}

Status show(const ModelShowOptions& options) {
  SHALE_ASSIGN(const auto path, resolve_model(options.model.model));
  SHALE_ASSIGN(const auto model, open_model(options.model));
  const ModelInfo& info = model->info();
  const PageShape shape = model->page_shape();
  const Json json = {{"name", info.name},
                     {"path", path.string()},
                     {"architecture", info.architecture},
                     {"layers", info.layers},
                     {"query_heads", info.query_heads},
                     {"kv_heads", info.kv_heads},
                     {"head_dim", info.head_dim},
                     {"embedding", info.embedding},
                     {"vocabulary", info.vocabulary},
                     {"context_max", info.context_max},
                     {"prefill_weights", info.prefill_weights},
                     {"decode_weights", info.decode_weights},
                     {"weight_bytes", info.weight_bytes},
                     {"kv_bytes_per_token", shape.token_bytes()},
                     {"block_size", shape.block_size},
                     {"threads", model->executor().threads()},
                     {"fingerprint", model->fingerprint().hex()}};
  if (options.output.json) {
    print_json(json);
    return {};
  }
  for (const auto& [key, value] : json.items()) {
    fmt::print("{:<20} {}\n", key, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return {};
}

}  // namespace

void add_model(Command parent, Action& chosen) {
  Command group = parent.add_group("model", "Fetch, list and look at models");
  group.footer(
      "Examples:\n"
      "  shale model ls\n"
      "  shale model fetch qwen2.5-coder-0.5b\n"
      "  shale model show ./my-model.gguf");

  auto [fetching, fetch_options] =
      add_command(group, chosen, "fetch", "Fetch a named model, checked by SHA-256", fetch);
  fetching.add_option("NAME", fetch_options->name, "A name of `shale model ls`").required().configurable(false);
  add_output_options(fetching, fetch_options->output);

  auto [listing, list_options] =
      add_command(group, chosen, "ls", "List the named models and which of them are here", list);
  add_output_options(listing, list_options->output);

  auto [showing, show_options] =
      add_command(group, chosen, "show", "Show a model's shape and the weight types it runs with", show);
  add_model_options(showing, show_options->model);
  showing.add_option("MODEL", show_options->model.model, "A name of `shale model ls`, or a path to a GGUF file")
      .configurable(false);
  add_output_options(showing, show_options->output);
}

}  // namespace shale
