#include <fmt/format.h>

#include "cli/command_cache.h"
#include "cli/model_registry.h"
#include "cli/stored_copies.h"
#include "core/units.h"

namespace shale {
namespace {

struct ShowOptions {
  StoredOptions stored;
  std::string key, model;
};

// The entry's words, by the vocabulary of the named model's file.
Result<std::string> entry_text(const Manifest& manifest, const std::string& model) {
  SHALE_ASSIGN(const auto path, resolve_model(model));
  SHALE_ASSIGN(const auto tokenizer, Tokenizer::load(path));
  return tokenizer->text(manifest.tokens, true);
}

Json chunks_json(const StoredCopy& copy) {
  Json chunks = Json::array();
  const auto present = copy.manifest().chunks_for(copy.stored.strata, copy.stored.bits);
  for (std::uint32_t i = 0; i < copy.manifest().chunks.size(); ++i) {
    const ChunkInfo& chunk = copy.manifest().chunks[i];
    chunks.push_back({{"stratum", chunk.stratum},
                      {"plane", chunk.plane == kBasePlane ? "base" : "refinement"},
                      {"first_layer", chunk.first_layer},
                      {"end_layer", chunk.end_layer},
                      {"bytes", chunk.bytes},
                      {"present", std::ranges::binary_search(present, i)}});
  }
  return chunks;
}

void print_copy(const StoredCopy& copy) {
  const Manifest& m = copy.manifest();
  fmt::print("  {} on {}: keep {}, {} in {} chunks\n", copy.object().method().text(), copy.tier->name(),
             copy.object().keep(), format_bytes(copy.object().bytes()),
             m.chunks_for(copy.stored.strata, copy.stored.bits).size());
}

Status run(const ShowOptions& options) {
  SHALE_ASSIGN(const StoredListing listing, list_stored(options.stored.tiers));
  SHALE_ASSIGN(const auto copies, find_entry(listing, options.key));
  const Manifest& m = copies[0]->manifest();
  std::string text;
  if (!options.model.empty()) {
    SHALE_ASSIGN(text, entry_text(m, options.model));
  }
  if (options.stored.output.json) {
    for (const StoredCopy* copy : copies) {
      Json json = to_json(*copy);
      json["chunks"] = chunks_json(*copy);
      if (!options.model.empty()) json["text"] = text;
      print_json(json);
    }
    return {};
  }
  fmt::print("{}\n  {} ({})\n  tokens {} to {}{}\n", m.key.hex(), m.fingerprint.model, m.fingerprint.hash.hex(),
             m.first_position, m.first_position + m.tokens.size(),
             m.parent == EntryKey{} ? "" : ", after " + m.parent.hex());
  for (const StoredCopy* copy : copies) print_copy(*copy);
  if (!text.empty()) fmt::print("\n{}\n", text);
  return {};
}

}  // namespace

void add_cache_show(CLI::App& parent, Action& chosen) {
  auto [command, options] =
      add_command(parent, chosen, "show", "Show one entry, its copies and, with --model, its text", run);
  command->add_option("KEY", options->key, "The entry's key, or its first digits")->required()->configurable(false);
  command->add_option("--model", options->model, "Show the text by this model's vocabulary")
      ->type_name("NAME|PATH")
      ->configurable(false);
  add_stored_options(*command, options->stored);
}

}  // namespace shale
