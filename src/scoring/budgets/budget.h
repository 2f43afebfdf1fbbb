// A budget says how many tokens each layer and KV head keeps, over any scorer. One file each, named as the table in
// budget.cc names it; the definition and the paper stand at its head.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace shale {

// Scores of all of a model's layers, higher = keep, none of them NaN.
struct ModelScores {
  std::uint32_t layers = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t tokens = 0;
  std::span<const float> scores;  // [layers][kv_heads][tokens]
  // Of the context, where a live sequence has lost some of them and these are what its heads still hold; 0: as many.
  std::uint32_t context_tokens = 0;

  std::span<const float> layer(std::uint32_t l) const {
    const std::size_t size = std::size_t{kv_heads} * tokens;
    return scores.subspan(l * size, size);
  }
  std::span<const float> head(std::uint32_t l, std::uint32_t h) const {
    return layer(l).subspan(std::size_t{h} * tokens, tokens);
  }
};

// 1 for every token that is kept, [layers][kv_heads][tokens].
using Kept = std::vector<std::uint8_t>;

// Stateless and thread-safe.
class Budget {
 public:
  virtual ~Budget() = default;
  virtual std::string_view name() const = 0;
  // Whether a larger keep keeps all that a smaller one does.
  virtual bool nested() const = 0;
  // Keeps about `keep` of the scored tokens, in (0, 1]. `window` is the scorer's (ScorerOptions::window): its own
  // tokens rank first, and a budget that differs between layers leaves each room for them. Every head keeps at least
  // one token; within a head ties keep the newer. A token that scores -infinity is kept only where nothing better is
  // left.
  Kept select(const ModelScores& scores, double keep, std::uint32_t window) const;

 private:
  // At least one layer, head and token.
  virtual Kept select_impl(const ModelScores& scores, double keep, std::uint32_t window) const = 0;
};

// Names in alphabetical order, as on the command line.
std::vector<std::string_view> budget_names();
// kInvalidArgument names the known ones.
Result<std::unique_ptr<Budget>> make_budget(std::string_view name);

}  // namespace shale
