#include "core/child_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/interrupt.h"

namespace shale {
namespace {

constexpr const char* kNowhere = "/dev/null";
constexpr auto kKept =
    std::to_array<std::string_view>({"SHALE_DATA_DIR=", "SHALE_MODEL_DIR=", "SHALE_REDIS_PASSWORD="});

// Without the user's options: a program of Shale's is told all that it is to have.
std::vector<char*> environment_without_options() {
  static char no_configuration[] = "SHALE_CONFIG=/dev/null";
  std::vector<char*> kept;
  for (char** variable = environ; *variable; ++variable) {
    const std::string_view text = *variable;
    const auto begins = [text](std::string_view name) { return text.starts_with(name); };
    if (!begins("SHALE_") || std::ranges::any_of(kKept, begins)) kept.push_back(*variable);
  }
  kept.push_back(no_configuration);
  kept.push_back(nullptr);
  return kept;
}

// Starts `command` with stdout and stderr going to files that are open here.
Result<pid_t> spawn(const std::vector<std::string>& command, int out, int err) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);

  std::vector<char*> environment = environment_without_options();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, kNowhere, O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err, STDERR_FILENO);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, arguments[0], &actions, nullptr, arguments.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  if (error) return fail(ErrorCode::kIo, "cannot start {}: {}", command[0], std::strerror(error));
  return pid;
}

// Closed when it goes.
class OpenFile {
 public:
  explicit OpenFile(const std::filesystem::path& path)
      : file_(open(path.empty() ? kNowhere : path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)),
        error_(errno) {}
  ~OpenFile() {
    if (file_ >= 0) close(file_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  int get() const { return file_; }
  Status check() const {
    if (file_ < 0) return fail(ErrorCode::kIo, "cannot write what a program says: {}", std::strerror(error_));
    return {};
  }

 private:
  const int file_, error_;
};

int wait_for(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

std::string read_to_end(int file, pid_t pid) {
  std::string text;
  char buffer[1 << 14];
  for (;;) {
    const ssize_t got = read(file, buffer, sizeof buffer);
    if (got > 0) {
      text.append(buffer, static_cast<std::size_t>(got));
    } else if (got == 0 || errno != EINTR) {
      return text;
    } else if (interrupted()) {
      kill(pid, SIGTERM);
    }
  }
}

}  // namespace

Result<std::filesystem::path> own_program() {
  std::error_code error;
  auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return fail(ErrorCode::kIo, "cannot find this program's own file: {}", error.message());
  return program;
}

Result<std::string> run_child(const std::vector<std::string>& command, ChildErrors errors) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return fail(ErrorCode::kIo, "cannot make a pipe: {}", std::strerror(errno));
  const OpenFile nowhere({});
  const auto pid = spawn(command, ends[1], errors == ChildErrors::kShow ? STDERR_FILENO : nowhere.get());
  close(ends[1]);
  std::string text = pid ? read_to_end(ends[0], *pid) : std::string();
  close(ends[0]);
  if (!pid) return std::unexpected(pid.error());
  const int status = wait_for(*pid);
  SHALE_TRY(check_interrupt());
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return fail(ErrorCode::kIo, "{} failed ({} {})", command[0], WIFEXITED(status) ? "exit status" : "signal",
                WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
  }
  return text;
}

Result<ChildProcess> ChildProcess::start(const std::vector<std::string>& command, const std::filesystem::path& out,
                                         const std::filesystem::path& err) {
  const OpenFile out_file(out), err_file(err);
  SHALE_TRY(out_file.check());
  SHALE_TRY(err_file.check());
  SHALE_ASSIGN(const pid_t pid, spawn(command, out_file.get(), err_file.get()));
  return ChildProcess(pid);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept : pid_(std::exchange(other.pid_, 0)) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  return *this;
}

ChildProcess::~ChildProcess() {
  if (pid_ <= 0) return;
  kill(pid_, SIGTERM);
  wait_for(pid_);
}

void ChildProcess::send(int signal) const {
  if (pid_ > 0) ::kill(pid_, signal);
}

bool ChildProcess::running() const {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
}

Result<ScratchFolder> ScratchFolder::create(const std::filesystem::path& parent) {
  std::error_code error;
  std::filesystem::create_directories(parent, error);
  std::string name = parent / "scratch-XXXXXX";
  if (error || !mkdtemp(name.data())) {
    return fail(ErrorCode::kIo, "cannot make a folder in {}: {}", parent.string(),
                std::strerror(error ? error.value() : errno));
  }
  return ScratchFolder(name);
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace shale
