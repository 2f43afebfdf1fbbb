// Quality of every configuration of one context, measured: the compressed cache's answers against the full cache's.
//
// All answers are teacher-forced: the question and the full cache's own greedy answer are fed, and at each token of
// that answer the compressed cache's prediction is compared with what the full cache predicts there *in a step of the
// same shape*. So differences of batch shape, or of weight types between prefill and decoding, do not count as loss,
// and `full`, read back from its bytes at rest, agrees in every position.
//
// Where the cache's metric is another than agreement, answers are also generated over every configuration, as many
// together as the full cache's were, and compared as texts.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "profile/divergence.h"
#include "profile/exact_context.h"
#include "profile/feed.h"
#include "profile/prompt.h"
#include "profile/questions.h"
#include "profile/teacher.h"

namespace shale {

struct ProfileOptions {
  std::vector<std::string> methods;  // beside `full`. Empty: the cache's candidate methods
  bool full = true;                  // measured too: to show that it agrees, and how long it takes to decode
  std::vector<double> keeps = {0.75, 0.5, 0.25, 0.1};  // for methods that rank tokens
  std::uint32_t answer_tokens = 24;                    // of each reference answer
  std::uint32_t questions_max = 4;                     // more are left unasked; as many are written when there are none
  // Asked too, but kept out of the means and of the metadata store: to see how well a profile predicts.
  std::vector<std::string> held_out = {};
  // The questions are others than those of the context's profile, which becomes the mean over both; else it is
  // replaced.
  bool adds = false;
  std::string label = {};  // for people
  bool store = true;       // in the end, where no exact copy of the context lies: in the form that is best by then
  // What cannot be recorded once all is measured, since another process is writing, is left to a later piece: for those
  // who have something else to do meanwhile. False: kBusy.
  bool record_later = false;
  Stop stop = {};
};

struct ProfileRow {
  Method method;
  double keep = 1;
  double quality = 0;    // in the cache's metric; mean over questions
  double agreement = 0;  // share of positions whose arg max is the reference's token; mean over questions
  double kl = 0;         // mean KL(full ‖ compressed) over positions, nats; mean over questions
  std::uint32_t questions = 0;
  std::uint64_t bytes = 0;           // at rest, at this keep: CompressedRun::bytes_for
  double decode_s = 0;               // from those bytes to blocks, without reading
  std::vector<Divergence> held_out;  // one per held-out question
};

struct ContextProfile {
  Hash128 run;               // its name
  std::uint32_t tokens = 0;  // of its whole blocks, which are what is compressed
  ContextKind kind = ContextKind::kProse;
  std::vector<std::string> questions = {};  // that were asked, without the held-out ones
  std::uint32_t questions_by_model = 0;     // of these the model wrote so many for this purpose; the rest are generic
  std::vector<ProfileRow> rows = {};        // `full` first
  double seconds = 0;
};

// Measures every (method, keep) of the context on `questions`; where there are none, on those that the metadata store
// knows were asked about it; where there are none either, on questions that the model writes about different
// paragraphs. Records questions, rows and decode delays in the metadata store. The context is computed only where no
// exact copy can be fetched; each method encodes it once. `progress(done, total)` counts configurations.
// Owns the engine meanwhile. kFull when the pool cannot hold the context beside one compressed copy and the questions;
// kBusy when another process writes to the metadata store for as long as is waited.
Result<ContextProfile> profile_context(Engine& engine, std::string_view context, std::vector<std::string> questions,
                                       const ProfileOptions& options,
                                       const std::function<void(std::size_t, std::size_t)>& progress = {});

// The same of what was tokenised already, on its questions, which are not recorded.
Result<ContextProfile> profile_context(Engine& engine, const AskedContext& context, const ProfileOptions& options);

// The same in pieces, for an engine that has nothing else to do: between two pieces the engine may be used by others.
class ContextProfiling {
 public:
  // Asks all questions of the context, of which there is at least one; the last ones, from `counted` on, are held out.
  // kInvalidArgument for unknown methods, and for a context of less than a block.
  static Result<ContextProfiling> begin(Engine& engine, AskedContext context, std::size_t counted,
                                        ProfileOptions options);

  // The next piece: the full cache's answers, or one method at all keeps, which is then recorded, with the next where
  // another process is writing. False when all is done. Errors end the profile, but kCancelled, once `stop` or the
  // options' says so, the piece alone: it begins again with the next call. The last piece hands the context over to be
  // stored.
  Result<bool> step(const Stop& stop, const std::function<void(std::size_t, std::size_t)>& progress = {});
  // Gives back the pages that it holds between pieces. The next piece begins with computing the context again.
  void let_go() { exact_.reset(); }
  bool holds_pages() const { return exact_.has_value(); }
  const ContextProfile& profile() const { return profile_; }

 private:
  ContextProfiling(Engine& engine, AskedContext context, std::size_t counted, ProfileOptions options);
  Status prepare(const Stop& stop);
  Status measure(const Method& method, const Stop& stop, const std::function<void(std::size_t, std::size_t)>& progress);
  Status record();

  Engine* engine_;
  AskedContext context_;
  std::size_t counted_;
  ProfileOptions options_;
  std::vector<Method> methods_;
  ScorerNeeds needs_;
  std::optional<ExactContext> exact_;
  std::vector<Reference> references_;
  std::size_t next_method_ = 0, done_ = 0;  // methods, configurations
  std::size_t recorded_ = 0;                // rows of the profile
  ContextProfile profile_;
};

}  // namespace shale
