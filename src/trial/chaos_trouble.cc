#include "trial/chaos_trouble.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <fstream>
#include <map>

#include "core/text_file.h"
#include "io/file_calls.h"

namespace shale {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kTornMost = 3, kTornAmong = 6;

struct File {
  fs::path path;
  fs::file_time_type written;
};

// Regular files below `folder` that hold anything; what is removed meanwhile is passed over.
void collect(const fs::path& folder, std::vector<File>& files) {
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    std::error_code gone;
    if (!entry->is_regular_file(gone) || entry->file_size(gone) == 0 || gone) continue;
    const auto written = entry->last_write_time(gone);
    if (!gone) files.push_back({entry->path(), written});
  }
}

std::vector<File> files_of(std::initializer_list<fs::path> folders) {
  std::vector<File> files;
  for (const fs::path& folder : folders) collect(folder, files);
  std::ranges::sort(files, {}, &File::path);
  return files;
}

bool is_blob(const fs::path& path) { return path.string().contains("/objects/"); }

// In place, as a device does it: not by a new file, which a reader of the old one would not see.
void flip_bit(const fs::path& path, std::uint64_t draw) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  if (error || size == 0 || !file) return;
  const auto at = static_cast<std::streamoff>((draw >> 3) % size);
  file.seekg(at);
  const auto byte = static_cast<char>(file.get() ^ (1 << (draw & 7)));
  file.seekp(at);
  file.put(byte);
}

// Everything of the process that lies in files, or in swap where there is any.
void page_out(pid_t pid) {
  const FileDescriptor process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  std::ifstream maps(fmt::format("/proc/{}/maps", pid));
  for (std::string line; process && std::getline(maps, line);) {
    char* end = nullptr;
    const std::uintptr_t from = std::strtoull(line.c_str(), &end, 16), to = std::strtoull(end + 1, nullptr, 16);
    const iovec range{reinterpret_cast<void*>(from), to - from};
    syscall(SYS_process_madvise, process.get(), &range, std::size_t{1}, MADV_PAGEOUT, 0u);
  }
}

std::string fault_words(const Fault& fault) {
  static constexpr std::array kErrors = {"fail_reads", "fail_writes", "fail_lists", "fail_removals",
                                         "fail_reads,fail_writes,fail_lists,fail_removals"};
  switch (fault.kind) {
    case FaultKind::kError:
      return kErrors[fault.draw % kErrors.size()];
    case FaultKind::kDamage:
      return "flip_reads";
    case FaultKind::kFull:
      return "full";
    case FaultKind::kSlow:
      return fmt::format("delay={}", 0.005 * static_cast<double>(1 + fault.draw % 60));
    case FaultKind::kHang:
      return "hang";
    default:
      return {};
  }
}

__rlimit_resource resource_of(FaultKind kind) { return kind == FaultKind::kLimit ? RLIMIT_FSIZE : RLIMIT_NOFILE; }

bool is_of_process(FaultKind kind) {
  return kind == FaultKind::kLimit || kind == FaultKind::kDescriptors || kind == FaultKind::kPause;
}

// In place of the folder, of which no server could begin.
bool leaves_a_file(const Fault& gone) { return gone.draw % 2; }

}  // namespace

fs::path Trouble::folder_of(const Fault& fault) const { return fault.tier == "disk" ? folders_.disk : folders_.remote; }

void Trouble::begin(const Fault& fault, std::size_t number, pid_t pid) {
  // What is gone cannot go, and a limit that was lowered is not what to go back to.
  const bool once = is_of_process(fault.kind) || (fault.kind == FaultKind::kGone && !shared_.makes(fault));
  const bool is_on = std::ranges::any_of(
      active_, [&](const Active& active) { return active.fault.kind == fault.kind && !shared_.makes(active.fault); });
  if (once && is_on) return;
  active_.push_back({.number = number, .fault = fault, .pid = pid});
  apply(active_.back());
  if (fault.hold_s == 0) active_.pop_back();
}

void Trouble::end(std::size_t number) {
  const auto found = std::ranges::find(active_, number, &Active::number);
  if (found == active_.end()) return;
  const Active active = *found;
  active_.erase(found);
  undo(active);
}

void Trouble::before_kill() {
  const std::vector<Active> all = active_;
  for (const Active& active : all) {
    const Fault& fault = active.fault;
    const bool blocks = !shared_.makes(fault) &&
                        (fault.kind == FaultKind::kHang || (fault.kind == FaultKind::kGone && leaves_a_file(fault)));
    if (is_of_process(fault.kind) || blocks) end(active.number);
  }
}

void Trouble::end_all() {
  while (!active_.empty()) end(active_.back().number);
}

void Trouble::apply(Active& active) {
  const Fault& fault = active.fault;
  if (shared_.makes(fault)) return tell_proxy(fault.tier);
  switch (fault.kind) {
    case FaultKind::kFlip:
      return flip(fault.draw);
    case FaultKind::kGone:
      return move_away(active);
    case FaultKind::kMemory:
      return page_out(active.pid);
    case FaultKind::kPause:
      kill(active.pid, SIGSTOP);
      return;
    case FaultKind::kLimit:
    case FaultKind::kDescriptors: {
      if (prlimit(active.pid, resource_of(fault.kind), nullptr, &active.before) != 0) return;
      rlimit low = active.before;
      low.rlim_cur = fault.kind == FaultKind::kLimit ? fault.draw % (64 << 10)
                                                     : std::min<rlim_t>(low.rlim_cur, open_files(active.pid) + 1);
      prlimit(active.pid, resource_of(fault.kind), &low, nullptr);
      return;
    }
    default:
      return write_fault_file();
  }
}

void Trouble::undo(const Active& active) {
  if (shared_.makes(active.fault)) {
    if (active.fault.kind == FaultKind::kGone) shared_.forget(active.fault);
    return tell_proxy(active.fault.tier);
  }
  switch (active.fault.kind) {
    case FaultKind::kGone:
      return bring_back(active);
    case FaultKind::kPause:
      kill(active.pid, SIGCONT);
      return;
    case FaultKind::kLimit:
    case FaultKind::kDescriptors:
      prlimit(active.pid, resource_of(active.fault.kind), &active.before, nullptr);
      return;
    default:
      return write_fault_file();
  }
}

void Trouble::tell_proxy(const std::string& tier) {
  std::vector<Fault> faults;
  for (const Active& active : active_) {
    if (active.fault.tier == tier && shared_.makes(active.fault)) faults.push_back(active.fault);
  }
  shared_.set(tier, faults);
}

void Trouble::move_away(const Active& active) const {
  const fs::path folder = folder_of(active.fault);
  std::error_code error;
  fs::rename(folder, folder.string() + ".away", error);
  if (!error && leaves_a_file(active.fault)) std::ofstream(folder) << "a file where a folder was";
}

void Trouble::bring_back(const Active& active) {
  const fs::path folder = folder_of(active.fault), new_one = folder.string() + ".new";
  std::error_code error;
  fs::rename(folder, new_one, error);  // at once, though a server writes into it
  fs::rename(folder.string() + ".away", folder, error);
  damaged_blobs_ += static_cast<std::uint64_t>(std::ranges::count_if(files_of({new_one}), is_blob, &File::path));
  fs::remove_all(new_one, error);  // also parts of what goes on being written where it was
}

void Trouble::flip(std::uint64_t draw) {
  const std::vector<File> files = files_of({folders_.disk, folders_.remote});
  if (files.empty()) return;
  const fs::path& path = files[(draw >> 32) % files.size()].path;
  flip_bit(path, draw);
  damaged_blobs_ += is_blob(path);
}

void Trouble::tear(std::uint64_t draw) {
  std::vector<File> files = files_of({folders_.disk, folders_.remote});
  std::ranges::stable_sort(files, std::greater(), &File::written);
  std::mt19937_64 random(draw);
  for (std::size_t left = 1 + random() % kTornMost; left > 0 && !files.empty(); --left) {
    const fs::path& path = files[random() % std::min(kTornAmong, files.size())].path;
    std::error_code error;
    fs::resize_file(path, random() % std::max<std::uintmax_t>(fs::file_size(path, error), 1), error);
    damaged_blobs_ += is_blob(path);
  }
}

void Trouble::write_fault_file() const {
  std::map<std::string, std::vector<std::string>> by_tier;
  std::string text;
  for (const Active& active : active_) {
    if (active.fault.kind == FaultKind::kClock) {
      constexpr std::int64_t kDays10 = 10 * 24 * 3600;
      text = fmt::format("clock {}\n", static_cast<std::int64_t>(active.fault.draw % (2 * kDays10)) - kDays10);
    } else if (std::string words = fault_words(active.fault); !words.empty() && !shared_.makes(active.fault)) {
      by_tier[active.fault.tier].push_back(std::move(words));
    }
  }
  for (const auto& [tier, words] : by_tier) text += fmt::format("{} {}\n", tier, fmt::join(words, ","));
  const fs::path next = folders_.faults.string() + ".next";
  std::error_code error;
  if (write_file(next, text)) fs::rename(next, folders_.faults, error);
}

std::string Trouble::now() const {
  std::vector<std::string> names;
  for (const Active& active : active_)
    names.push_back(fmt::format("{} of {}", to_string(active.fault.kind), active.fault.tier));
  return names.empty() ? "nothing" : fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace shale
