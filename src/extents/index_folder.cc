#include "extents/index_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "core/random.h"

namespace shale {
namespace {

namespace fs = std::filesystem;
using Type = IndexRecord::Type;

constexpr std::string_view kSnapshotMagic = "SHALEIX1";
constexpr std::string_view kLogMagic = "SHALELG1";
constexpr std::size_t kLogHeaderBytes = 16;  // magic, session
constexpr std::uint64_t kDeadLogsMax = 8;
constexpr std::uint64_t kDeadBytesMax = std::uint64_t{4} << 20;
constexpr double kLeftOverAfterSeconds = 600;  // files without a name that nobody will give one
constexpr std::size_t kFlushBytes = std::size_t{1} << 20;
constexpr std::size_t kUnwrittenBytesMax = std::size_t{16} << 20;  // more are not tried again

// Whether its writer is at the extent from then on.
bool begins(const IndexRecord& record) { return record.type == Type::kWriting || record.type == Type::kRemoved; }

// The extent that its writer is at no more; null: none.
const Hash128* ended(const IndexRecord& record) {
  if (record.type == Type::kStored) return &record.facts.name;
  return record.type == Type::kSettled ? &record.name : nullptr;
}

FileDescriptor open_file(const fs::path& path, int flags) {
  return FileDescriptor(open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, 0600));
}

// Or replaced.
bool is_removed(const FileDescriptor& file) {
  struct stat status;
  return fstat(file.get(), &status) == 0 && status.st_nlink == 0;
}

bool try_lock(const FileDescriptor& file) { return file && flock(file.get(), LOCK_EX | LOCK_NB) == 0; }

void remove_left_over(const fs::path& folder) {
  (void)for_each_entry(folder, [](const fs::directory_entry& entry) -> Status {
    const std::string name = entry.path().filename();
    if (!name.starts_with("new-") && !name.starts_with("snapshot-")) return {};
    std::error_code error;
    const auto age = fs::file_time_type::clock::now() - entry.last_write_time(error);
    if (!error && std::chrono::duration<double>(age).count() > kLeftOverAfterSeconds) fs::remove(entry.path(), error);
    return {};
  });
}

Status synchronise(const FileDescriptor& file, const fs::path& path) {
  return fdatasync(file.get()) == 0 ? Status() : system_failure(errno, "synchronise", path);
}

Status write_snapshot_to(const fs::path& folder, bool sync,
                         const std::function<void(const IndexFolder::Visit& add)>& fill) {
  const fs::path temporary = folder / fmt::format("snapshot-{:016x}", random_number());
  const FileDescriptor file = open_file(temporary, O_WRONLY | O_CREAT | O_EXCL);
  if (!file) return system_failure(errno, "create", temporary);
  Status written = append_all(file.get(), std::as_bytes(std::span(kSnapshotMagic)), temporary);
  RecordWriter writer;
  const auto pass_on = [&](bool all) {
    if (written && (all || writer.size() >= kFlushBytes)) written = append_all(file.get(), writer.take(), temporary);
  };
  fill([&](const IndexRecord& record) {
    writer.add(record);
    pass_on(false);
  });
  writer.add({});
  pass_on(true);
  if (written && sync) written = synchronise(file, temporary);
  if (written && rename(temporary.c_str(), (folder / "snapshot").c_str()) != 0) {
    written = system_failure(errno, "name", folder / "snapshot");
  }
  if (!written) unlink(temporary.c_str());
  return written && sync ? sync_folder(folder) : written;
}

}  // namespace

Result<std::unique_ptr<IndexFolder>> IndexFolder::open(const fs::path& tier_folder, std::uint64_t log_bytes_max,
                                                       bool sync) {
  const fs::path folder = tier_folder / "store";
  std::unique_ptr<IndexFolder> index(new IndexFolder(folder, log_bytes_max, sync));
  if (const int error = make_private_folder(folder); error != 0) return system_failure(error, "create", folder);
  index->device_ = device_of(folder);
  SHALE_TRY(index->start_log());
  return index;
}

// A new log is locked, and tells what this store is at, before it has a name that others look at: nobody ever takes it,
// or what it is at, for a dead one's. The one before it, if any, is a dead one's from then on, of which nothing is
// news.
Status IndexFolder::start_log() {
  const std::uint64_t session = random_number();
  const fs::path temporary = folder_ / fmt::format("new-{:016x}", session);
  FileDescriptor file = open_file(temporary, O_RDWR | O_CREAT | O_EXCL | O_APPEND);
  if (!file) return system_failure(errno, "create", temporary);
  std::array<std::byte, kLogHeaderBytes> header;
  std::memcpy(header.data(), kLogMagic.data(), kLogMagic.size());
  std::memcpy(header.data() + kLogMagic.size(), &session, sizeof session);
  RecordWriter unfinished;
  for (const auto& [name, record] : own_unfinished_) unfinished.add(record);
  const std::vector<std::byte> records = unfinished.take();
  const fs::path path = log_path(session);
  const auto named = [&]() -> Status {
    if (!try_lock(file)) return system_failure(errno, "lock", temporary);
    SHALE_TRY(append_all(file.get(), header, temporary));
    SHALE_TRY(append_all(file.get(), records, temporary));
    if (sync_) SHALE_TRY(synchronise(file, temporary));
    if (rename(temporary.c_str(), path.c_str()) != 0) return system_failure(errno, "name", path);
    return sync_ ? sync_folder(folder_) : Status();
  }();
  if (!named) {
    unlink(temporary.c_str());
    return named;
  }
  if (own_) {
    flock(own_.get(), LOCK_UN);
    const fs::path left = log_path(own_session_);
    logs_[left.filename()] = {
        .path = left, .file = std::move(own_), .session = own_session_, .offset = own_bytes_, .dead = true};
  }
  writer_ = std::move(unfinished);  // knows the names that its records are told by
  own_ = std::move(file);
  own_session_ = session;
  own_bytes_ = kLogHeaderBytes + records.size();
  return {};
}

fs::path IndexFolder::log_path(std::uint64_t session) const { return folder_ / fmt::format("log-{:016x}", session); }

void IndexFolder::append(IndexRecord record) {
  record.time_s = std::max(record.time_s, std::nextafter(latest_s_, std::numeric_limits<double>::max()));
  latest_s_ = record.time_s;
  if (begins(record)) own_unfinished_[record.name] = record;
  if (const Hash128* name = ended(record)) {
    own_unfinished_.erase(*name);
    settled(*name);
  }
  needs_sync_ = needs_sync_ || (sync_ && record.type != Type::kUsed);
  writer_.add(record);
  if (writer_.size() >= kFlushBytes && !lost_) (void)flush();
}

// What is written to the log so far, or was to be, nobody can read any more. Where another file system lies there that
// has no such folder, this store's is gone, and is waited for; mounted again it may be another device.
Status IndexFolder::begin_again() {
  lost_ = true;
  needs_sync_ = false;
  unwritten_.clear();
  writer_ = {};
  leader_ = {};
  if (!file_at(folder_) && device_of(folder_) != device_) return system_failure(ENOENT, "write", folder_);
  std::error_code error;
  fs::create_directories(folder_.parent_path(), error);
  if (const int failed = make_private_folder(folder_); failed != 0) return system_failure(failed, "create", folder_);
  device_ = device_of(folder_);
  SHALE_TRY(start_log());
  lost_ = false;
  begun_anew_ = true;
  return {};
}

Status IndexFolder::flush() {
  if (lost_) return begin_again();
  if (writer_.size() == 0 && unwritten_.empty() && !needs_sync_) return {};
  const std::vector<std::byte> bytes = writer_.take();
  unwritten_.insert(unwritten_.end(), bytes.begin(), bytes.end());
  if (is_removed(own_)) return begin_again();  // with its folder, by somebody, or its file system is gone
  if (Status written = append_all(own_.get(), unwritten_, folder_); !written) {
    // Records go in whole; others would take the rest of one for damage.
    const bool whole = ftruncate(own_.get(), static_cast<off_t>(own_bytes_)) == 0;
    if (!whole || unwritten_.size() > kUnwrittenBytesMax) static_cast<void>(begin_again());
    return written;
  }
  own_bytes_ += std::exchange(unwritten_, {}).size();
  // The system tells of pages that did not reach the device once, and takes them for written then.
  if (needs_sync_ && !synchronise(own_, folder_)) return begin_again();
  needs_sync_ = false;
  return own_bytes_ > log_bytes_max_ ? start_log() : Status();
}

// Those of others. False where some may be missing: what cannot be opened now is tried again the next time. Whoever
// goes on in another log has named it before the first is a dead one's: so that is looked for once more.
bool IndexFolder::find_logs() {
  bool all = list_logs();
  bool died = false;
  for (auto& [name, log] : logs_) died = (!std::exchange(log.dead, is_dead(log)) && log.dead) || died;
  if (died) all = list_logs() && all;
  return all;
}

bool IndexFolder::list_logs() {
  bool all = true;
  const Status listed = for_each_entry(folder_, [&](const fs::directory_entry& entry) -> Status {
    const std::string name = entry.path().filename();
    if (!name.starts_with("log-") || entry.path() == log_path(own_session_)) return {};
    if (logs_.contains(name)) return {};
    FileDescriptor file = open_file(entry.path(), O_RDWR);
    if (!file) {
      all = false;
      return {};
    }
    Log& log = logs_[name];
    log.path = entry.path();
    log.file = std::move(file);
    std::array<std::byte, kLogHeaderBytes> header = {};
    log.damaged = pread(log.file.get(), header.data(), header.size(), 0) != std::ssize(header) ||
                  std::memcmp(header.data(), kLogMagic.data(), kLogMagic.size()) != 0;
    std::memcpy(&log.session, header.data() + kLogMagic.size(), sizeof log.session);
    log.offset = kLogHeaderBytes;
    return {};
  });
  return listed && all;
}

void IndexFolder::note(Log& log, const IndexRecord& record) {
  if (begins(record)) {
    log.unfinished[record.name] = {record.name, record.tag, record.bytes, record.type == Type::kWriting};
  }
  if (const Hash128* name = ended(record)) {
    log.unfinished.erase(*name);
    settled(*name);  // by the leader, or by whoever was at it, too
  }
}

void IndexFolder::settled(const Hash128& name) {
  for (auto& [file, log] : logs_) {
    if (log.dead) log.unfinished.erase(name);
  }
}

bool IndexFolder::all_settled() const { return unfinished_of_the_dead().empty(); }

// What ends in the middle of a record is being written, or was when its writer died.
void IndexFolder::read_log(Log& log, std::vector<Logged>& found) {
  if (log.damaged) return;
  const auto bytes = read_from(log.file.get(), log.offset, log.path);
  if (!bytes) return;
  std::span<const std::byte> rest = *bytes;
  IndexRecord record;
  for (;;) {
    const auto read = log.reader.next(rest, record);
    if (!read) log.damaged = true;
    if (!read || !*read) break;
    const std::uint64_t end = log.offset + (bytes->size() - rest.size());
    const auto folded = consumed_.find(log.session);
    latest_s_ = std::max(latest_s_, record.time_s);
    found.push_back({&log, folded != consumed_.end() && end <= folded->second, record});
  }
  log.offset += bytes->size() - rest.size();
}

// Logs tell of the same extents: what was stored here may have been removed there, later. False where one is damaged or
// missing. Those that the leader has folded since are read to their ends.
bool IndexFolder::read_logs(const Visit& visit) {
  std::vector<Logged> found;
  bool whole = find_logs();
  for (auto& [name, log] : logs_) {
    log.removed = is_removed(log.file);
    read_log(log, found);
    whole = whole && !log.damaged;
  }
  std::ranges::stable_sort(found, {}, [](const Logged& logged) { return logged.record.time_s; });
  for (const Logged& logged : found) {
    note(*logged.log, logged.record);
    if (!logged.folded) visit(logged.record);
  }
  std::erase_if(logs_, [](const auto& known) { return known.second.removed; });
  return whole;
}

// A leader that replaces the snapshot meanwhile has removed the logs that are in the new one.
bool IndexFolder::load(const Visit& visit) {
  const fs::path path = folder_ / "snapshot";
  bool whole = false;
  const FileDescriptor file = open_file(path, O_RDONLY);
  if (file) {
    const auto bytes = read_from(file.get(), 0, path);
    if (bytes && bytes->size() >= kSnapshotMagic.size() &&
        std::memcmp(bytes->data(), kSnapshotMagic.data(), kSnapshotMagic.size()) == 0) {
      std::span<const std::byte> rest = std::span(*bytes).subspan(kSnapshotMagic.size());
      RecordReader reader;
      IndexRecord record;
      for (auto read = reader.next(rest, record); read && *read && !whole; read = reader.next(rest, record)) {
        whole = record.type == Type::kEnd && rest.empty();
        if (record.type == Type::kConsumed) consumed_[record.session] = record.offset;
        visit(record);
        if (whole) break;
      }
    }
  }
  whole = read_logs(visit) && whole;
  return whole && !is_removed(file);
}

void IndexFolder::follow(const Visit& visit) { (void)read_logs(visit); }

bool IndexFolder::has_others() const {
  return std::ranges::any_of(logs_, [](const auto& log) { return !log.second.dead; });
}

bool IndexFolder::lead() {
  if (leader_) return true;
  FileDescriptor file = open_file(folder_ / "leader", O_RDWR | O_CREAT);
  if (try_lock(file)) leader_ = std::move(file);
  return static_cast<bool>(leader_);
}

bool IndexFolder::is_dead(const Log& log) {
  if (!log.file || flock(log.file.get(), LOCK_EX | LOCK_NB) != 0) return false;
  flock(log.file.get(), LOCK_UN);
  return true;
}

std::vector<IndexFolder::Unfinished> IndexFolder::unfinished() const {
  std::vector<Unfinished> found;
  for (const auto& [file, log] : logs_) {
    for (const auto& [name, unfinished] : log.unfinished) found.push_back(unfinished);
  }
  return found;
}

std::vector<IndexFolder::Unfinished> IndexFolder::unfinished_of_the_dead() const {
  std::vector<Unfinished> found;
  const auto is_at = [&](const Hash128& name) {
    return own_unfinished_.contains(name) || std::ranges::any_of(logs_, [&](const auto& other) {
             return !other.second.dead && other.second.unfinished.contains(name);
           });
  };
  for (const auto& [file, log] : logs_) {
    if (!log.dead) continue;
    for (const auto& [name, unfinished] : log.unfinished) {
      if (!is_at(name)) found.push_back(unfinished);
    }
  }
  return found;
}

bool IndexFolder::snapshot_due() {
  std::uint64_t logs = 0, bytes = 0;
  for (const auto& [name, log] : logs_) {
    logs += log.dead ? 1 : 0;
    bytes += log.dead ? log.offset : 0;
  }
  return logs > kDeadLogsMax || bytes > kDeadBytesMax;
}

Status IndexFolder::write_snapshot(const std::function<void(const Visit& add)>& fill) {
  SHALE_TRY(flush());
  std::vector<const Log*> dead;
  for (const auto& [name, log] : logs_) {
    if (log.dead) dead.push_back(&log);
  }
  SHALE_TRY(write_snapshot_to(folder_, sync_, [&](const Visit& add) {
    IndexRecord record;
    record.type = Type::kConsumed;
    record.session = own_session_;
    record.offset = own_bytes_;
    add(record);
    for (const auto& [name, log] : logs_) {
      record.session = log.session;
      record.offset = log.offset;
      if (std::ranges::find(dead, &log) == dead.end()) add(record);
    }
    fill(add);
  }));
  for (const Log* log : dead) unlink(log->path.c_str());
  remove_left_over(folder_);
  std::erase_if(logs_, [&](const auto& log) { return std::ranges::find(dead, &log.second) != dead.end(); });
  return {};
}

Status IndexFolder::write_snapshot_file(const fs::path& tier_folder,
                                        const std::function<void(const Visit& add)>& fill) {
  if (const int error = make_private_folder(tier_folder / "store"); error != 0) {
    return system_failure(error, "create", tier_folder / "store");
  }
  return write_snapshot_to(tier_folder / "store", false, fill);
}

}  // namespace shale
