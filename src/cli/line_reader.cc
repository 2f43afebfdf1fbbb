#include "cli/line_reader.h"

#include <poll.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string_view>
#include <utility>

#include "core/interrupt.h"
#include "report/output.h"

#ifdef SHALE_HAS_LIBEDIT
#include <fcntl.h>
#include <histedit.h>
#include <termios.h>

#include <cerrno>
#include <clocale>
#include <csignal>
#include <cwchar>

#include "io/file_calls.h"
#endif

namespace shale {
namespace {

// A terminal hands over lines one by one, so that nothing typed waits unseen in a buffer.
class PlainLines final : public LineReader {
 public:
  explicit PlainLines(Idle idle) : idle_(std::move(idle)) {}

  std::optional<std::string> next() override {
    print_error("> ");
    while (!interrupted() && !typed()) idle_();
    std::string line;
    if (!interrupted() && std::getline(std::cin, line)) return line;
    print_error("\n");
    return std::nullopt;
  }

 private:
  const Idle idle_;
};

#ifdef SHALE_HAS_LIBEDIT

constexpr int kHistoryLines = 1000;
constexpr int kBetweenKeysMs = 1000;

termios g_modes_found;  // of the terminal, while lines are not edited
volatile std::sig_atomic_t g_resumed = 0;

void set_modes(const termios& modes) {
  while (tcsetattr(STDIN_FILENO, TCSADRAIN, &modes) != 0 && errno == EINTR) continue;
}

// Stops the program as SIGTSTP would. It goes on behind sigprocmask(). In the background set_modes() stops it anew.
void on_suspend(int) {
  const int error = errno;
  termios editing;
  tcgetattr(STDIN_FILENO, &editing);
  set_modes(g_modes_found);
  struct sigaction as_usual{}, caught;
  as_usual.sa_handler = SIG_DFL;
  sigaction(SIGTSTP, &as_usual, &caught);
  sigset_t suspend, before;
  sigemptyset(&suspend);
  sigaddset(&suspend, SIGTSTP);
  raise(SIGTSTP);
  pthread_sigmask(SIG_UNBLOCK, &suspend, &before);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  sigaction(SIGTSTP, &caught, nullptr);
  set_modes(editing);
  g_resumed = 1;
  errno = error;
}

// While it lives, SIGTSTP gives the terminal back before it stops the program; not where it is ignored.
class Suspendable {
 public:
  Suspendable() {
    tcgetattr(STDIN_FILENO, &g_modes_found);
    sigaction(SIGTSTP, nullptr, &before_);
    if (before_.sa_handler == SIG_IGN) return;
    struct sigaction action{};
    action.sa_handler = on_suspend;
    sigaction(SIGTSTP, &action, nullptr);
  }
  ~Suspendable() { sigaction(SIGTSTP, &before_, nullptr); }
  Suspendable(const Suspendable&) = delete;
  Suspendable& operator=(const Suspendable&) = delete;

 private:
  struct sigaction before_{};
};

class EditedLines final : public LineReader {
 public:
  EditedLines(std::filesystem::path file, Idle idle) : history_file_(std::move(file)), idle_(std::move(idle)) {
    std::setlocale(LC_CTYPE, "C.UTF-8");  // the editor counts columns by it
    edit_ = el_init("shale", stdin, stderr, stderr);
    history_ = history_init();
    if (!edit_ || !history_) return;
    el_set(edit_, EL_CLIENTDATA, this);
    el_set(edit_, EL_PROMPT, &prompt);
    el_set(edit_, EL_EDITOR, "emacs");
    el_set(edit_, EL_GETCFN, &read_character);
    el_set(edit_, EL_HIST, ::history, history_);
    el_set(edit_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    el_source(edit_, nullptr);
    HistEvent event;
    ::history(history_, &event, H_SETSIZE, kHistoryLines);
    ::history(history_, &event, H_SETUNIQUE, 1);
    if (!history_file_.empty()) ::history(history_, &event, H_LOAD, history_file_.c_str());
  }
  ~EditedLines() override {
    if (edit_) el_end(edit_);
    if (history_) history_end(history_);
  }
  EditedLines(const EditedLines&) = delete;
  EditedLines& operator=(const EditedLines&) = delete;

  std::optional<std::string> next() override {
    if (!edit_ || !history_) return std::nullopt;
    const Suspendable suspendable;
    el_resize(edit_);
    el_set(edit_, EL_PREP_TERM, 1);  // before the prompt: what is typed as soon as it shows is edited
    begun_ = false;
    int count = 0;
    const char* line = el_gets(edit_, &count);
    if (interrupted() || !line || count <= 0) {
      print_error("\n");
      return std::nullopt;
    }
    std::string text(line, static_cast<std::size_t>(count));
    if (text.ends_with('\n')) text.pop_back();
    if (!text.empty()) add_to_history(text.c_str());
    return text;
  }

 private:
  static const char* prompt(EditLine*) { return "> "; }

  // Until a key waits, true, or interrupted(). Within a line it is waited for first: it must not wait for other work.
  bool wait_for_key() {
    for (int patience_ms = std::exchange(begun_, true) ? kBetweenKeysMs : 0; !interrupted(); patience_ms = 0) {
      if (std::exchange(g_resumed, 0)) {
        el_resize(edit_);
        el_set(edit_, EL_REFRESH);
      }
      if (typed(patience_ms)) return true;
      if (!g_resumed && !interrupted()) idle_();
    }
    return false;
  }

  // A character of UTF-8; 0 at the end of the input, -1 when interrupted.
  static int read_character(EditLine* edit, wchar_t* character) {
    EditedLines* self = nullptr;
    el_get(edit, EL_CLIENTDATA, &self);
    std::mbstate_t partial = {};
    for (;;) {
      char byte = 0;
      const ssize_t count = self->wait_for_key() ? read(STDIN_FILENO, &byte, 1) : -1;
      if (count < 0 && errno == EINTR && !interrupted()) continue;
      if (count <= 0) return static_cast<int>(count);
      const std::size_t length = std::mbrtowc(character, &byte, 1, &partial);
      if (length <= 1) return 1;
      if (length == static_cast<std::size_t>(-1)) partial = {};  // no UTF-8: passed over
    }
  }

  // Whole each time: a chat may end in any way.
  void add_to_history(const char* line) {
    HistEvent event;
    ::history(history_, &event, H_ENTER, line);
    if (history_file_.empty()) return;
    std::error_code error;
    std::filesystem::create_directories(history_file_.parent_path(), error);
    const FileDescriptor file(open(history_file_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (file) ::history(history_, &event, H_SAVE, history_file_.c_str());
  }

  const std::filesystem::path history_file_;
  const Idle idle_;
  bool begun_ = false;  // the line that is being read
  EditLine* edit_ = nullptr;
  History* history_ = nullptr;
};

bool can_be_edited_at() {
  const char* terminal = std::getenv("TERM");
  return terminal && *terminal && std::string_view(terminal) != "dumb";
}

#endif

}  // namespace

bool typed(int within_ms) {
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  return poll(&input, 1, within_ms) > 0;
}

std::unique_ptr<LineReader> LineReader::make([[maybe_unused]] std::filesystem::path history, Idle idle) {
#ifdef SHALE_HAS_LIBEDIT
  if (can_be_edited_at()) return std::make_unique<EditedLines>(std::move(history), std::move(idle));
#endif
  return std::make_unique<PlainLines>(std::move(idle));
}

}  // namespace shale
