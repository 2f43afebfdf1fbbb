// The index of a tier's folder on disk: a snapshot, and a log for each store that is open or was
// (docs/formats/store.md). Every store writes its own log and follows those of the others; the one that leads folds the
// logs of the dead into the snapshot. All of it is a hint: what a log says may be gone, and is then a miss.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "extents/index_records.h"
#include "io/file_calls.h"

namespace shale {

// One thread at a time; other stores and processes may do as they like with the folder meanwhile.
class IndexFolder {
 public:
  using Visit = std::function<void(const IndexRecord&)>;

  static constexpr std::uint64_t kLogBytesMax = std::uint64_t{64} << 20;

  // Makes `tier_folder`/store and a log of this store's own, locked as long as it lives; a longer one is followed by
  // another. `sync`: what is flushed outlives a loss of power, but for uses alone: every hit logs one. kIo.
  static Result<std::unique_ptr<IndexFolder>> open(const std::filesystem::path& tier_folder,
                                                   std::uint64_t log_bytes_max = kLogBytesMax, bool sync = false);

  // Everything that snapshot and logs tell, logs merged by time. False where they are missing, damaged, of another
  // version or replaced meanwhile: then what was visited is no whole index. Once, first.
  bool load(const Visit& visit);
  // Records that others have appended since, by time. Logs that turn out damaged are not followed any further.
  void follow(const Visit& visit);

  // Adds to this store's log, at the record's time or just after all that it has read, whichever is later: a hybrid
  // logical clock (Kulkarni et al., Logical Physical Clocks, OPODIS 2014), so that what is done after others' comes
  // after it whatever clocks say. With `flush` or when a good deal has gathered, others can read it. What could not be
  // written is tried again with the next flush. Where somebody removed the folder it is made again, with a new log, and
  // what was told in the old one, or was to be, is lost; so it is where a log's end cannot be mended, and where it
  // could not be synchronised: the new log then has what this store is at.
  void append(IndexRecord record);
  Status flush();
  // Whether that has happened since it was last asked: what is there is to be told again.
  bool begun_anew() { return std::exchange(begun_anew_, false); }

  // Whether other stores had the folder open when their logs were last looked for.
  bool has_others() const;

  // Whether this store leads the folder, now or again: the lock goes with the process that holds it.
  bool lead();

  // An extent that somebody was writing or removing when its log was last read.
  struct Unfinished {
    Hash128 name;
    std::uint64_t tag = 0;
    std::uint64_t bytes = 0;
    bool writing = false;
  };
  // Changes of all other stores, living and dead.
  std::vector<Unfinished> unfinished() const;
  // Changes in logs whose writers have died, and that nobody alive is at: told until the leader has settled them. For
  // the leader.
  std::vector<Unfinished> unfinished_of_the_dead() const;
  void settled(const Hash128& name);
  // Whether nothing is left to settle.
  bool all_settled() const;
  // Whether the dead have left so much, in logs or in bytes, that a snapshot is due. For the leader.
  bool snapshot_due();
  // Replaces the snapshot by what `fill` adds, and removes the dead logs that are in it: those that load() or follow()
  // have read to their ends. For the leader, when what they left unfinished is settled.
  Status write_snapshot(const std::function<void(const Visit& add)>& fill);

  // A snapshot made from nothing. For tests.
  static Status write_snapshot_file(const std::filesystem::path& tier_folder,
                                    const std::function<void(const Visit& add)>& fill);

 private:
  struct Log {
    std::filesystem::path path;
    FileDescriptor file;
    std::uint64_t session = 0;
    std::uint64_t offset = 0;  // read up to here
    bool damaged = false;
    bool dead = false;     // was so before it was last read: so all of it has been read
    bool removed = false;  // likewise: by the leader that has folded it, or whoever removed the folder
    RecordReader reader = {};
    std::unordered_map<Hash128, Unfinished> unfinished = {};
  };
  struct Logged {
    Log* log = nullptr;
    bool folded = false;  // into the snapshot
    IndexRecord record;
  };

  IndexFolder(std::filesystem::path folder, std::uint64_t log_bytes_max, bool sync)
      : folder_(std::move(folder)), log_bytes_max_(log_bytes_max), sync_(sync) {}
  std::filesystem::path log_path(std::uint64_t session) const;
  Status start_log();
  Status begin_again();
  bool find_logs();
  bool list_logs();
  bool read_logs(const Visit& visit);
  void read_log(Log& log, std::vector<Logged>& found);
  void note(Log& log, const IndexRecord& record);
  static bool is_dead(const Log& log);

  const std::filesystem::path folder_;
  const std::uint64_t log_bytes_max_;
  const bool sync_;
  std::uint64_t device_ = 0;  // that the folder was on
  FileDescriptor own_;
  std::uint64_t own_session_ = 0;
  std::uint64_t own_bytes_ = 0;
  RecordWriter writer_;
  std::vector<std::byte> unwritten_;
  bool needs_sync_ = false;  // more than uses was appended since the log was synchronised
  double latest_s_ = 0;      // of all records read and appended
  bool begun_anew_ = false;
  bool lost_ = false;  // records that what follows needs: only a new log can be read
  std::unordered_map<Hash128, IndexRecord> own_unfinished_;
  std::map<std::string, Log> logs_;                            // of others, and this store's earlier ones, by file name
  std::unordered_map<std::uint64_t, std::uint64_t> consumed_;  // of sessions, by the snapshot
  FileDescriptor leader_;
};

}  // namespace shale
