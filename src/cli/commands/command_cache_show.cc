#include <fmt/format.h>

#include "cli/commands/command_cache.h"
#include "core/units.h"
#include "runtime/model_registry.h"
#include "runtime/stored_runs.h"

namespace shale {
namespace {

struct ShowOptions {
  StoredOptions stored;
  std::string name, model;
};

// The run's words, by the vocabulary of the named model's file. Empty where its tokens are not known.
Result<std::string> run_text(const StoredVariant& variant, const std::string& model) {
  SHALE_ASSIGN(const auto path, resolve_model(model));
  SHALE_ASSIGN(const auto tokenizer, Tokenizer::load(path));
  std::vector<Token> tokens;
  for (const ScannedExtent* extent : variant.extents) {
    tokens.insert(tokens.end(), extent->manifest->token_ids.begin(), extent->manifest->token_ids.end());
  }
  return tokenizer->text(tokens, true);
}

Json blobs_json(const ScannedExtent& extent) {
  Json blobs = Json::array();
  const ExtentManifest& m = *extent.manifest;
  const auto present = m.blobs_for(extent.keep);
  for (std::uint32_t i = 0; i < m.blobs.size(); ++i) {
    const BlobInfo& blob = m.blobs[i];
    blobs.push_back({{"importance", blob.tier},
                     {"plane", blob.plane == kBasePlane ? "base" : "refinement"},
                     {"first_layer", blob.first_layer},
                     {"end_layer", blob.end_layer},
                     {"bytes", blob.bytes()},
                     {"present", std::ranges::binary_search(present, i)}});
  }
  return blobs;
}

Json extents_json(const StoredVariant& variant) {
  Json extents = Json::array();
  for (const ScannedExtent* extent : variant.extents) {
    const ExtentManifest& m = *extent->manifest;
    Json rankings = Json::array();
    for (const RankingInfo& ranking : m.rankings) rankings.push_back(ranking.name);
    extents.push_back({{"name", extent->name.hex()},
                       {"first_position", m.first_position},
                       {"tokens", m.tokens},
                       {"chunks", m.chunks()},
                       {"bytes", extent->bytes},
                       {"rankings", std::move(rankings)},
                       {"blobs", blobs_json(*extent)}});
  }
  return extents;
}

void print_variant(const StoredVariant& variant) {
  fmt::print("  {} on {}: keep {}, {}\n", variant.first().method.text(), variant.tier->tier->name(), variant.keep(),
             format_bytes(variant.bytes()));
  for (const ScannedExtent* extent : variant.extents) {
    const ExtentManifest& m = *extent->manifest;
    fmt::print("    extent {}: tokens {} to {}, {} chunks in {} blobs\n", extent->name.hex().substr(0, 12),
               m.first_position, m.first_position + m.tokens, m.chunks(), m.blobs_for(extent->keep).size());
  }
}

Status run_cache_show(const ShowOptions& options) {
  SHALE_ASSIGN(const StoredListing listing, list_stored(options.stored.tiers));
  SHALE_ASSIGN(const auto variants, find_run(listing, options.name));
  const StoredVariant& first = *variants[0];
  std::string text;
  if (!options.model.empty()) {
    SHALE_ASSIGN(text, run_text(first, options.model));
  }
  if (options.stored.output.json) {
    for (const StoredVariant* variant : variants) {
      Json json = to_json(*variant);
      json["extents"] = extents_json(*variant);
      if (!options.model.empty()) json["text"] = text;
      print_json(json);
    }
    return {};
  }
  fmt::print("{}\n  {}\n  tokens {} to {}{}\n", first.run().hex(), first.model, first.first().first_position,
             first.first().first_position + first.tokens(),
             first.parent == Hash128{} ? "" : ", after " + first.parent.hex());
  for (const StoredVariant* variant : variants) print_variant(*variant);
  if (!text.empty()) fmt::print("\n{}\n", text);
  return {};
}

}  // namespace

void add_cache_show(Command parent, Action& chosen) {
  auto [command, options] =
      add_command(parent, chosen, "show", "Show one run, its extents and, with --model, its text", run_cache_show);
  command.add_option("RUN", options->name, "The run's name, its first digits, or what it is from")
      .required()
      .configurable(false);
  command.add_option("--model", options->model, "Show the text by this model's vocabulary")
      .type_name("NAME|PATH")
      .configurable(false);
  add_stored_options(command, options->stored);
}

}  // namespace shale
