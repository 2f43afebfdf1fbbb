// What was measured and is worth keeping: quality of every configuration, use of every cached prefix, delays of
// this machine. An SQLite file in the cache folder; losing it loses no cached prefix, only the time to measure again.
// Rows whose numbers cannot have been measured are as good as absent.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codec/method.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/hash.h"
#include "metadata/answer_metric.h"
#include "metadata/quality_table.h"

namespace shale {

inline constexpr int kMetadataStoreVersion = 1;
inline constexpr int kMetadataStoreWaitMs = 2000;  // for another process's write, unless told otherwise

struct QualityRecord {
  Hash128 key;  // of the cached prefix
  Method method = Method::full();
  double keep = 1;
  double quality = 0;  // of answers, [0, 1], in the metadata store's metric: the planner's quality
  double kl = 0;       // mean KL(full ‖ compressed), nats
  std::uint32_t questions = 0;
  double age_s = 0;  // since it was measured; ignored when recording
};

struct PrefixRecord {
  Hash128 key;
  std::uint32_t tokens = 0;
  double frequency = 0;  // decayed count of accesses as it was `age_s` ago
  std::uint64_t accesses = 0;
  double age_s = 0;        // since the last access, in wall time: counts while no process runs
  double recompute_s = 0;  // measured; 0 when not
  std::string label = {};  // for people
};

// A question asked about a cached prefix, for profiling.
struct QuestionRecord {
  std::string text;
  bool by_model = false;  // written by the model; else a user's
};

struct DelayRecord {
  double latency_s = 0;
  double read_bytes_per_s = 0;  // 0: nobody has measured it; so is that of writes
  double write_bytes_per_s = 0;
  std::uint64_t samples = 0;  // of reads; 0: nobody has measured the latency
};

struct PrefillRecord {
  std::uint32_t tokens = 0;
  std::uint32_t depth = 0;  // tokens already there
  double seconds = 0;
};

struct ModelRecord {
  Hash128 fingerprint;
  std::string name;  // for people
};

// Errors of every call: kBusy (another process wrote for as long as is waited), kFull, kIo, kCorrupt; kNotFound as
// said. Not thread-safe. Any number of processes may have the same file open: each write is one transaction, readers
// never wait.
class MetadataStore {
 public:
  static constexpr std::size_t kQuestionsMax = 32;                         // newest, per cached prefix
  static constexpr std::size_t kPrefillSamplesMax = 256;                   // newest, per model
  static constexpr std::size_t kPrefixesMax = QualityTable::kPrefixesMax;  // newest, per model
  // Of cached prefixes that are not, or not yet, among these: questions, the newest of a model; and for how long what
  // was measured on one says what to expect of others.
  static constexpr std::size_t kUnusedQuestionsMax = 16384;
  static constexpr double kUnusedQualityS = 30 * 86400.0;
  static constexpr double kLookEveryS = 5;

  using WallClock = std::function<double()>;  // seconds since 1970

  // Created where absent, mode 0600. `model` is the fingerprint whose cached prefixes and prefill delays are meant by
  // every call; other models' rows are kept and not seen. A damaged file is moved aside to PATH.corrupt and begun anew,
  // which `warning` then says. kMismatch for another version, or a database that is not a metadata store: it is left
  // alone.
  static Result<std::unique_ptr<MetadataStore>> open(const std::filesystem::path& path, const Hash128& model,
                                                     WallClock wall_clock = wall_clock_s);
  // The same in a folder that may be gone, full or unreachable, now or later: then in memory, as `warning` says. As
  // soon as the file can be written, or made anew where it was removed, refresh() goes on in it, with all that was
  // recorded meanwhile. `reachable` says whether the folder answers: nobody waits for one that does not. Records the
  // model.
  static Result<std::unique_ptr<MetadataStore>> open_late(const std::filesystem::path& path, const ModelRecord& model,
                                                          std::function<bool()> reachable,
                                                          WallClock wall_clock = wall_clock_s);
  // The same for as long as it lives and for this process alone, where there is no folder to keep it in.
  static Result<std::unique_ptr<MetadataStore>> open_in_memory(const Hash128& model,
                                                               WallClock wall_clock = wall_clock_s);
  ~MetadataStore();

  // For another process's write, from now on: for threads that have better things to do, and try again. Returns how
  // long it was until now.
  int wait_at_most(int milliseconds);
  const std::optional<Error>& warning() const;

  // The metric that qualities are recorded and asked for in from now on, kAgreement until then. Rows of each metric are
  // kept and none sees another's. bound_error() makes forms near lossless in agreement alone: it bounds the next token,
  // not a whole answer.
  Status measure_in(std::string_view metric);
  const std::string& metric() const;

  // The name that people use for this model; and all models that the metadata store was opened for, with theirs.
  Status record_model(std::string_view name);
  Result<std::vector<ModelRecord>> models() const;

  // Replaces what was measured for the same (key, method, keep).
  Status record_quality(const QualityRecord& record);
  // The same of more questions than those measured before: the means are over all of them.
  Status add_quality(QualityRecord record);
  // The records of one cached prefix, by method and keep.
  Result<std::vector<QualityRecord>> qualities(const Hash128& key) const;
  // Reads memory, fast enough for every candidate of every plan; thread-safe, as nothing else here. Nothing where
  // neither this cached prefix nor enough others of the model were measured at (method, keep), nor near lossless.
  std::optional<Quality> quality_for(const Hash128& key, const Method& method, double keep) const;
  // Questions that the method was measured on over the cached prefix, at the keep of fewest; 0: never. Reads memory.
  std::uint32_t questions_measured(const Hash128& key, const Method& method) const;

  // What the cached prefix's text is like, for quality_for. Known to this process alone until it is recorded.
  void describe(const Hash128& key, ContextKind kind, std::uint32_t tokens);
  Status record_kind(const Hash128& key, ContextKind kind);
  std::optional<ContextKind> kind(const Hash128& key) const;
  // The cached prefix was computed behind lossy forms, over which answers were expected to be worth so much, in the
  // metric: whoever finds it is served no better. Known to this process alone until it is recorded. What others
  // recorded is read when it is asked for, once after each refresh() that finds the file changed. kNotFound: nobody
  // knows. Other errors: what others know could not be read, and is asked for again.
  void inherit(const Hash128& key, double quality);
  Status record_inherited(const Hash128& key, double quality);
  Result<double> inherited(const Hash128& key) const;
  // The cached prefix is a text that ships with Shale. Known to this process alone.
  void note_shipped(const Hash128& key);
  // How far a quantizer moves attention's output over the cached prefix (near_lossless.h). Known to this process alone.
  void bound_error(const Hash128& key, const Method& method, double error);
  // Makes quality_for see what other processes recorded since: whether there was any. Costs microseconds when there is
  // nothing new. Where it was opened late, looks after the file every kLookEveryS.
  Result<bool> refresh();

  // Adds to what is known of the cached prefix by now, by other processes too: `frequency` and `accesses` count what is
  // new, and decay to the later of both last accesses. The rest replaces what was there.
  Status record_prefix(const PrefixRecord& record, double half_life_s);
  Result<PrefixRecord> prefix(const Hash128& key) const;  // kNotFound
  Result<std::vector<PrefixRecord>> prefixes() const;     // by last access, newest first
  // The cached prefix with its kind, qualities and questions. Not an error when it is unknown.
  Status forget(const Hash128& key);
  // What is more than is kept, as said above: prefixes used longest ago, with their questions; and their kinds, and
  // qualities, once nothing new is measured on them. What is known of shipped texts stays, by those who know these.
  Status forget_old();

  // A question asked again becomes the newest.
  Status record_question(const Hash128& key, const QuestionRecord& question);
  Result<std::vector<QuestionRecord>> questions(const Hash128& key) const;  // newest first

  // `emulated` names the throttle, empty for the machine's own: the two are never mixed.
  Status record_delay(std::string_view tier, std::string_view emulated, const DelayRecord& record);
  Result<DelayRecord> delay(std::string_view tier, std::string_view emulated) const;  // kNotFound
  // `bytes_per_s` is of stored bytes.
  Status record_decode(std::string_view quantizer, double bytes_per_s);
  Result<double> decode_bytes_per_s(std::string_view quantizer) const;  // kNotFound
  Status record_prefill(const PrefillRecord& record);
  Result<std::vector<PrefillRecord>> prefills() const;  // oldest first

  // All that `body` records through this metadata store, or nothing of it, in one transaction.
  Status together(const std::function<Status()>& body);

 private:
  struct State;
  explicit MetadataStore(std::unique_ptr<State> state);
  static Result<std::unique_ptr<MetadataStore>> begin(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace shale
