// The built program, run as a user would: arguments, standard input and environment in; exit status, output out. Each
// fixture has a home of its own, so that no configuration and no cache of the user is seen or touched.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "support/byte_vocabulary.h"
#include "support/child_process.h"
#include "support/gguf_writer.h"
#include "support/temporary_folder.h"

namespace shale::testing {

struct Outcome {
  int status = 0;  // exit status, or -signal
  std::string out, err;

  // The objects on stdout, one a line.
  std::vector<nlohmann::json> objects() const {
    std::vector<nlohmann::json> found;
    std::istringstream lines(out);
    for (std::string line; std::getline(lines, line);) found.push_back(nlohmann::json::parse(line, nullptr, false));
    return found;
  }
  nlohmann::json object() const {
    const auto found = objects();
    return found.size() == 1 ? found[0] : nlohmann::json();
  }
};

using Words = std::vector<std::string>;

class ShaleProgram : public ::testing::Test {
 protected:
  ShaleProgram() { environment_["HOME"] = home_.path(); }

  std::filesystem::path file(const std::string& name, const std::string& text) {
    const auto path = home_.path() / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  static std::string read(const std::filesystem::path& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  pid_t start(const Words& arguments, const std::string& input = {}) {
    const auto in = file("stdin", input);
    for (const char* output : {"stdout", "stderr"}) file(output, "");
    const pid_t pid = fork();
    if (pid != 0) return pid;
    end_with_parent();
    redirect(in, O_RDONLY, STDIN_FILENO);
    redirect(home_.path() / "stdout", O_WRONLY | O_CREAT | O_TRUNC, STDOUT_FILENO);
    redirect(home_.path() / "stderr", O_WRONLY | O_CREAT | O_TRUNC, STDERR_FILENO);
    for (const char* name : {"XDG_CACHE_HOME", "XDG_CONFIG_HOME"}) unsetenv(name);
    for (const auto& [name, value] : environment_) setenv(name.c_str(), value.c_str(), 1);
    std::vector<char*> words = {const_cast<char*>(SHALE_PROGRAM)};
    for (const std::string& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    execv(SHALE_PROGRAM, words.data());
    _exit(127);
  }

  Outcome finish(pid_t pid) {
    int status = 0;
    waitpid(pid, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), read(home_.path() / "stdout"),
            read(home_.path() / "stderr")};
  }

  Outcome run(const Words& arguments, const std::string& input = {}) { return finish(start(arguments, input)); }

  TemporaryFolder home_;
  std::map<std::string, std::string> environment_;

 private:
  static void redirect(const std::filesystem::path& path, int flags, int to) {
    const int from = open(path.c_str(), flags, 0600);
    if (from < 0) _exit(126);
    dup2(from, to);
    close(from);
  }
};

// With a random model of letters, small, but slow enough that loading its cache is worth it, and a context to ask
// about.
class TinyProgram : public ShaleProgram {
 protected:
  TinyProgram() {
    write_model(1);
    environment_["SHALE_MODEL"] = model_file_;
    environment_["SHALE_WEIGHTS"] = "file";
    environment_["SHALE_THREADS"] = "1";
    environment_["SHALE_LOAD_ALWAYS"] = "true";  // a tiny model computes about as fast as a busy disk reads
    environment_["SHALE_MAX_TOKENS"] = "12";
    std::string text;
    for (int i = 0; i < 90; ++i) text += "Layer " + std::to_string(i) + " is shale. ";
    context_ = file("context.txt", text);
  }

  void write_model(std::uint32_t seed) const {
    write_tiny_model({.layers = 6,
                      .embedding = 256,
                      .feed_forward = 768,
                      .vocabulary = kByteVocabulary,
                      .context = 2048,
                      .tied_head = false,
                      .seed = seed},
                     model_file_, [](gguf_context* metadata) { set_byte_vocabulary(metadata); });
  }

  Words generate(Words more = {}) const {
    Words words = {"generate", "--context", context_, "--prompt", "What is it?", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  std::filesystem::path kv() const { return home_.path() / ".cache/shale/kv"; }

  // The first chunk of a stored object.
  std::filesystem::path stored_chunk() const {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(kv())) {
      if (entry.path().filename() == "00000000") return entry.path();
    }
    return {};
  }
  void flip_a_byte(const std::filesystem::path& path) {
    std::string bytes = read(path);
    ASSERT_GT(bytes.size(), 100u) << path;
    bytes[100] ^= 0x10;
    std::ofstream(path, std::ios::binary) << bytes;
  }

  const std::filesystem::path model_file_ = home_.path() / "tiny.gguf";
  std::filesystem::path context_;
};

}  // namespace shale::testing
