// Loading in flight: Cache::retrieve starts the reads; what has come is decoded piece by piece, layers in the order in
// which attention needs them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/cost_model.h"
#include "codec/method.h"
#include "core/clock.h"
#include "core/executor.h"
#include "core/hash.h"
#include "paging/sequence.h"
#include "store/store.h"

namespace shale {

// Where one span of the prefix came from.
struct SourceUsed {
  std::string where;  // kPoolSource, or the tier's name
  Method method = Method::full();
  double keep = 1;
  std::uint32_t tokens = 0;  // logical
  std::uint64_t bytes = 0;   // read, about
  Hash128 run = {};          // zero for what was computed, and lies in the pool since
  // What answers over it are expected to be worth, in [0, 1]; nothing where nobody knows. 1 for exact KV.
  std::optional<double> quality = 1;
  bool behind_lossy = false;  // computed behind lossy KV: whatever its form, it is worth no more than that

  bool lossy() const { return behind_lossy || !method.is_full(); }
  // Worth what the sources before it are: behind their lossy forms it was computed.
  bool computed_behind_lossy() const { return behind_lossy && run == Hash128{}; }
};

// Those of the first so many tokens.
std::vector<SourceUsed> first_of(std::vector<SourceUsed> sources, std::uint32_t tokens);

// The quality expected of answers over them: the least of theirs. Nothing where one is not known.
std::optional<double> expected_quality(std::span<const SourceUsed> sources);

// How long a request waits for a tier that was asked for what should take `expected_s`, and at least.
constexpr double kPatienceS = 0.5;
constexpr double kPatienceAlwaysS = 10;  // with CacheOptions::load_always
constexpr double late_after_s(double expected_s, double patience_s = kPatienceS) { return patience_s + 4 * expected_s; }

// The load of another request that brings what this one wants, too, or its front; `load` 0: there is none.
struct SharedLoad {
  std::uint64_t load = 0;    // Retrieval::load_number()
  std::uint32_t tokens = 0;  // of the prompt, from its first, that are taken from it then
  // Where that is a front, and the rest is to be loaded then: seconds until all would be there by a load of its own.
  std::optional<double> otherwise_s = {};
};

// Movable; extents stay in use while it lives. Dropping it lets reads end by themselves: nothing is written to the
// sequence any more, which must stay where it is until then. Not thread-safe.
class Retrieval {
 public:
  Retrieval();
  ~Retrieval();
  Retrieval(Retrieval&&) noexcept;
  Retrieval& operator=(Retrieval&&) noexcept;

  std::uint32_t tokens() const;         // logical tokens that need not be computed
  std::uint32_t tokens_loaded() const;  // those of them, counted from the first, after which none came from a tier
  bool lossy() const;
  // Of those who may share it: the request's, or everybody's where what is found is published.
  std::string_view salt() const;
  // Of a lossy one: tokens from this position on were computed behind lossy KV, or are where it ends. Else kAllTokens.
  std::uint32_t lossy_from() const;
  // So many of the prompt's first tokens are reproducible (model/model.h), with what is computed up to there: all of
  // them, or those before the first that is not.
  std::uint32_t reproducible() const;
  const std::vector<SourceUsed>& sources() const;
  // Whether bytes are still to come, long after they should have: four times the estimate of when it began, which
  // counts the reads ahead of it, and half a second. Whoever waits had better compute.
  bool late() const;

  // Decodes what has come, on the executor, until `budget_s` have passed (one read at least) or none is left. Never
  // waits. True when it decoded anything. On an error nothing may be computed on the sequence before
  // Cache::keep_what_came. `before_s`: what is computed of other prompts before a meeting goes on (meeting.h).
  Result<bool> poll(Executor& executor, double budget_s, double before_s = 0);
  // A prefix that is loaded from its back (meeting.h) may be computed before this position meanwhile; the rest joins
  // the sequence when it has been computed up to here. Falls as more is asked for. 0 for any other prefix.
  std::uint32_t compute_until() const;
  // Whether more of such a prefix is on its way, so that computing it may wait.
  bool meeting() const;
  // Blocks of the pool that it holds beside the sequence.
  std::uint32_t blocks_held() const;
  // Whether every page of `layer` is in place.
  bool layer_loaded(std::uint32_t layer) const;
  bool loaded() const;
  // Of the cache's loads and meetings, that which it waits for; 0: nothing is to come any more.
  std::uint64_t load_number() const;

  // Waits for what is missing, and decodes it. Errors as of `poll`. For tests.
  Status ensure_all(Executor& executor);

  // The first block, of the prompt, that did not come, and why.
  struct Failure {
    std::uint32_t block = 0;
    Error error;
  };
  const std::optional<Failure>& failure() const;

 private:
  friend class Cache;
  struct State;
  std::unique_ptr<State> state_;  // null: nothing was found
};

}  // namespace shale
