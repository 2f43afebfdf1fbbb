// `shale chat` at a terminal: what is typed, edited, interrupted and kept.
#include <gmock/gmock.h>
#include <poll.h>
#include <pty.h>
#include <sys/stat.h>

#include "cli/shale_program.h"

namespace shale::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AnyOf;
using ::testing::HasSubstr;

#ifdef SHALE_HAS_LIBEDIT
constexpr bool kEdits = true;
#else
constexpr bool kEdits = false;
#endif
constexpr char kCtrlC[] = "\x03", kCtrlD[] = "\x04", kCtrlZ[] = "\x1a", kBackspace[] = "\x7f", kUp[] = "\x1b[A";
constexpr int kPatienceMs = 60'000;

class TerminalChatTest : public TinyProgram {
 protected:
  ~TerminalChatTest() override {
    if (pid_ > 0) kill(pid_, SIGKILL);
  }

  void chat(const Words& more = {}) {
    Words words = {SHALE_PROGRAM, "chat"};
    words.insert(words.end(), more.begin(), more.end());
    at_terminal(words);
  }
  // Under a shell that has it suspended by Ctrl-Z, waits for a line, and goes on with it.
  void chat_to_suspend() {
    const char script[] =
        "set -m; found=$(stty -g); same() { [ \"$(stty -g)\" = \"$found\" ] && echo as it was; }\n"
        "\"$0\" chat; echo stopped $?, terminal $(same)\n"
        "read line; fg; echo ended $?, terminal $(same)";
    at_terminal({"/bin/sh", "-c", script, SHALE_PROGRAM});
  }
  void at_terminal(const Words& command) {
    const winsize size = {.ws_row = 50, .ws_col = 200, .ws_xpixel = 0, .ws_ypixel = 0};
    pid_ = forkpty(&terminal_, nullptr, nullptr, &size);
    ASSERT_GE(pid_, 0);
    if (pid_ > 0) return;
    for (const char* name : {"XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"}) unsetenv(name);
    setenv("TERM", "xterm", 1);
    for (const auto& [name, value] : environment_) setenv(name.c_str(), value.c_str(), 1);
    std::vector<char*> words;
    for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    execv(words[0], words.data());
    _exit(127);
  }
  void type(const std::string& keys) {
    shown_.clear();
    ASSERT_EQ(write(terminal_, keys.data(), keys.size()), std::ssize(keys));
  }
  // What the terminal shows since something was last typed, once it shows `text` and so many bytes after it.
  std::string until(const std::string& text, std::size_t bytes_more = 0) {
    char piece[4096];
    const auto shows = [&] {
      const std::size_t at = shown_.find(text);
      return at != std::string::npos && shown_.size() >= at + text.size() + bytes_more;
    };
    while (!shows()) {
      pollfd output{.fd = terminal_, .events = POLLIN, .revents = 0};
      if (poll(&output, 1, kPatienceMs) <= 0) break;
      const ssize_t count = ::read(terminal_, piece, sizeof piece);
      if (count <= 0) break;
      shown_.append(piece, static_cast<std::size_t>(count));
    }
    EXPECT_TRUE(shows()) << "'" << text << "' in: " << shown_;
    return shown_;
  }
  // Exit status, or -signal.
  int ended() {
    char piece[4096];
    pollfd output{.fd = terminal_, .events = POLLIN, .revents = 0};
    while (poll(&output, 1, kPatienceMs) > 0 && ::read(terminal_, piece, sizeof piece) > 0) continue;
    if (poll(&output, 1, 0) == 0) kill(pid_, SIGKILL);  // it does not end
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    close(terminal_);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  // What was said by the user, as /save has it.
  std::vector<std::string> saved_messages() {
    const fs::path path = home_.path() / ("saved" + std::to_string(saved_++) + ".json");
    type("/save " + path.string() + "\n");
    until(" messages in ", path.string().size() + std::string("\r\n> ").size());  // to the next prompt
    std::vector<std::string> messages;
    const auto saved = nlohmann::json::parse(read(path), nullptr, false);
    for (const auto& message : saved["messages"]) {
      if (message["role"] == "user") messages.push_back(message["content"]);
    }
    return messages;
  }
  fs::path history() const { return home_.path() / ".local/state/shale/chat_history"; }

  pid_t pid_ = -1;
  int terminal_ = -1;
  int saved_ = 0;
  std::string shown_;
};

TEST_F(TerminalChatTest, LinesAreEditedAndKeptForLaterChats) {
  chat();
  until("> ");
  type(std::string("Tell me of slatX") + kBackspace + "e\n");
  until("first token");
  EXPECT_THAT(saved_messages(), ::testing::ElementsAre("Tell me of slate"));
  type(kCtrlD);
  EXPECT_EQ(ended(), 0);
  ASSERT_EQ(fs::exists(history()), kEdits);
  if (!kEdits) GTEST_SKIP() << "built without libedit";
  struct stat status = {};
  ASSERT_EQ(stat(history().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);

  chat();
  until("> ");
  type(std::string(kUp) + kUp + "\n");  // past /save
  until("first token");
  EXPECT_THAT(saved_messages(), ::testing::ElementsAre("Tell me of slate"));
  type("/quit\n");
  EXPECT_EQ(ended(), 0);
}

TEST_F(TerminalChatTest, KeepsNoHistoryWhereItIsNotToBe) {
  chat({"--history", "off"});
  until("> ");
  type("A secret\n");
  until("first token");
  type("/quit\n");
  EXPECT_EQ(ended(), 0);
  EXPECT_FALSE(fs::exists(history()));
}

TEST_F(TerminalChatTest, CtrlCClearsTheLineAndTwiceEnds) {
  chat();
  until("> ");
  type("not to be said");
  until("said");
  type(kCtrlC);
  until("> ");
  type("Hello\n");
  until("first token");
  EXPECT_THAT(saved_messages(), ::testing::ElementsAre("Hello"));
  type(kCtrlC);
  until("Ctrl-C again, or Ctrl-D, ends the chat");
  until("> ");
  type(kCtrlC);
  EXPECT_EQ(ended(), 0);
}

TEST_F(TerminalChatTest, CtrlZSuspendsAndAfterFgTheLineIsThereAgain) {
  if (!kEdits) GTEST_SKIP() << "built without libedit";
  chat_to_suspend();
  until("> ");
  type("half of a line");
  until("half of a line");
  type(kCtrlZ);
  until("stopped 148, terminal as it was");
  type("\n");
  until("> half of a line");
  type(" and the rest\n");
  until("first token");
  EXPECT_THAT(saved_messages(), ::testing::ElementsAre("half of a line and the rest"));
  type("/quit\n");
  until("ended 0, terminal as it was");
}

TEST_F(TerminalChatTest, CtrlZSuspendsAnAnswerWhichGoesOn) {
  environment_["SHALE_MAX_TOKENS"] = "400";
  chat_to_suspend();
  until("> ");
  type("Go on and on\n");
  until("Go on and on\r\n", 20);
  type(kCtrlZ);
  until("stopped 148, terminal as it was");
  type("\n");
  until("first token");
  type("/quit\n");
  until("ended 0, terminal as it was");
}

// A terminal that moves no cursor, and what a build without libedit has at any.
TEST_F(TerminalChatTest, PlainLinesAreWhatTheTerminalHandsOver) {
  environment_["TERM"] = "dumb";
  chat_to_suspend();
  until("> ");
  type(std::string("Tell me of slatX") + kBackspace + "e\n");
  until("first token");
  type(kCtrlZ);
  until("stopped 148, terminal as it was");
  type("\n");
  type("And of clay\n");
  until("first token");
  EXPECT_THAT(saved_messages(), ::testing::ElementsAre("Tell me of slate", "And of clay"));
  type(kCtrlD);
  until("ended 0, terminal as it was");
  EXPECT_FALSE(fs::exists(history()));
}

TEST_F(TerminalChatTest, CtrlCStopsTheAnswerAndNotTheProgram) {
  environment_["SHALE_MAX_TOKENS"] = "1900";
  chat();
  until("> ");
  type("Go on and on\n");
  until("Go on and on\r\n", 20);
  type(kCtrlC);
  until("first token");
  EXPECT_THAT(saved_messages(), ::testing::ElementsAre("Go on and on"));
  type("/quit\n");
  EXPECT_EQ(ended(), 0);
}

TEST_F(TerminalChatTest, KnowsCommandsAndSaysWhichThereAre) {
  chat();
  until("> ");
  type("/help\n");
  EXPECT_THAT(until("/quit"), HasSubstr("/save FILE"));
  type("/halp\n");
  until("there is no /halp; /help lists what there is");
  type("/save\n");
  until("name a file");
  type("/save " + context_.string() + "\n");
  until("is there already");
  type("/quit\n");
  EXPECT_EQ(ended(), 0);
}

TEST_F(TerminalChatTest, EndsWhenTold) {
  chat();
  until("> ");
  kill(pid_, SIGTERM);
  EXPECT_THAT(ended(), AnyOf(1, 130, 143));
}

}  // namespace
}  // namespace shale::testing
