// Programs that a test starts, and that end with it.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "support/loopback_address.h"

namespace shale::testing {

// Whether a program is there, by its name alone.
inline bool is_installed(const std::string& program) {
  const char* path = std::getenv("PATH");
  for (std::string rest = path ? path : ""; !rest.empty();) {
    const std::size_t colon = rest.find(':');
    if (access((std::filesystem::path(rest.substr(0, colon)) / program).c_str(), X_OK) == 0) return true;
    rest = colon == std::string::npos ? "" : rest.substr(colon + 1);
  }
  return false;
}

// Of 127.0.0.1, that nobody listened at a moment ago.
inline std::uint16_t free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = loopback_address();
  socklen_t length = sizeof address;
  (void)bind(fd, reinterpret_cast<sockaddr*>(&address), length);
  (void)getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  close(fd);
  return ntohs(address.sin_port);
}

inline bool listens(std::uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in address = loopback_address(port);
  const bool open = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  close(fd);
  return open;
}

// Called by a forked child: it does not outlive the test, however that ends.
inline void end_with_parent() { (void)prctl(PR_SET_PDEATHSIG, SIGKILL); }

class ChildProcess {
 public:
  // What it prints goes nowhere.
  explicit ChildProcess(const std::vector<std::string>& command) {
    std::vector<char*> arguments;
    for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
    arguments.push_back(nullptr);
    pid_ = fork();
    if (pid_ != 0) return;
    end_with_parent();
    const int nowhere = open("/dev/null", O_RDWR);
    for (const int fd : {0, 1, 2}) (void)dup2(nowhere, fd);
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  ~ChildProcess() { kill(); }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  void signal(int number) const {
    if (pid_ > 0) (void)::kill(pid_, number);
  }
  void kill() {
    if (pid_ <= 0) return;
    signal(SIGKILL);
    (void)waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  // Waits until somebody listens at the port: true within ten seconds.
  bool serves(std::uint16_t port) const {
    for (int i = 0; i < 2000; ++i) {
      if (listens(port)) return true;
      if (waitpid(pid_, nullptr, WNOHANG) != 0) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

 private:
  pid_t pid_ = 0;
};

}  // namespace shale::testing
