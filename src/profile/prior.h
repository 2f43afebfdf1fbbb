// The prior of a model: what its answers are worth under every configuration on texts that ship with Shale
// (prior_texts.h), measured once for a fingerprint and kept in the metadata store as the profiles of these texts. From
// them, and from contexts that were profiled, quality is expected for contexts that never were
// (metadata/quality_table.h).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "profile/profile.h"

namespace shale {

struct PriorOptions {
  std::vector<std::string> methods = {};  // empty: the cache's candidate methods
  std::uint32_t answer_tokens = 24;       // of each reference answer
};

// Measures in pieces, for an engine that has nothing else to do. Its cache has a metadata store, and a pool of halves.
class PriorMeasurement {
 public:
  PriorMeasurement(Engine& engine, PriorOptions options);

  // The next piece (ContextProfiling::step) of the first text that the metadata store lacks something of. False when
  // nothing is lacking. kCancelled once `stop` says so; other errors are of the text at hand.
  Result<bool> step(const Stop& stop);
  // Leaves the text at hand unmeasured.
  void pass_over() { profiling_.reset(); }
  // Gives back the pages that it holds between pieces.
  void let_go();
  bool holds_pages() const { return profiling_ && profiling_->holds_pages(); }
  std::size_t measured() const { return measured_; }  // texts, by this object
  std::size_t left() const;                           // texts that are still to be measured, or looked for

 private:
  // Its methods that the metadata store has no rows of.
  Result<std::vector<std::string>> lacking(const AskedContext& text) const;
  Status begin(std::size_t index);

  Engine& engine_;
  PriorOptions options_;
  std::size_t next_ = 0, measured_ = 0;
  std::optional<ContextProfiling> profiling_;
};

// As they are asked: text number `index`, its questions behind it.
Result<AskedContext> prior_text(const Tokenizer& tokenizer, std::size_t index);
// Tells the cache's metadata store, if there is one, which profiles are of these texts.
void note_prior_texts(const Tokenizer& tokenizer, Cache& cache);

}  // namespace shale
