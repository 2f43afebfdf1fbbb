// Other programs: those that `shale bench` compares with, and servers of its own. Of the user's SHALE_ variables they
// have those that say where models and data lie and what Redis asks for, and they read no configuration file.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"

namespace shale {

// The file that this program was started from, links followed. kIo where the system does not tell.
Result<std::filesystem::path> own_program();

// What a program writes to stderr: lost, or seen by the user.
enum class ChildErrors { kDrop, kShow };

// Runs a program to its end and returns what it wrote to stdout. kIo when it cannot be started or does not exit with 0.
// Ctrl-C ends it (kCancelled).
Result<std::string> run_child(const std::vector<std::string>& command, ChildErrors errors = ChildErrors::kDrop);

// A program in the background; asked to end, and waited for, when this is destroyed.
class ChildProcess {
 public:
  // What it writes to stdout and stderr is lost, or goes into a file.
  static Result<ChildProcess> start(const std::vector<std::string>& command, const std::filesystem::path& out = {},
                                    const std::filesystem::path& err = {});
  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;

  pid_t pid() const { return pid_; }
  bool running() const;
  // Returns at once. SIGTERM asks, SIGKILL does not.
  void send(int signal) const;

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}
  pid_t pid_ = 0;
};

// A new empty folder inside `parent`, private to its owner; removed with everything in it when this is destroyed.
class ScratchFolder {
 public:
  static Result<ScratchFolder> create(const std::filesystem::path& parent);
  ~ScratchFolder();
  ScratchFolder(ScratchFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}

  const std::filesystem::path& path() const { return path_; }

 private:
  explicit ScratchFolder(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

}  // namespace shale
