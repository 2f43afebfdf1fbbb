#include "cli/line_reader.h"

#include <fmt/format.h>

#include <iostream>
#include <utility>

#include "core/interrupt.h"

#ifdef SHALE_HAS_LIBEDIT

#include <fcntl.h>
#include <histedit.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cwchar>

#include "io/file_calls.h"

namespace shale {
namespace {

constexpr int kHistoryLines = 1000;

}  // namespace

struct LineReader::State {
  State(std::filesystem::path file, Wait until_typed) : history_file(std::move(file)), wait(std::move(until_typed)) {
    std::setlocale(LC_CTYPE, "C.UTF-8");  // the editor counts columns by it
    edit = el_init("shale", stdin, stderr, stderr);
    history = history_init();
    if (!edit || !history) return;
    el_set(edit, EL_CLIENTDATA, this);
    el_set(edit, EL_PROMPT, &prompt);
    el_set(edit, EL_EDITOR, "emacs");
    el_set(edit, EL_GETCFN, &read_character);
    el_set(edit, EL_HIST, ::history, history);
    el_set(edit, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    el_source(edit, nullptr);
    HistEvent event;
    ::history(history, &event, H_SETSIZE, kHistoryLines);
    ::history(history, &event, H_SETUNIQUE, 1);
    if (!history_file.empty()) ::history(history, &event, H_LOAD, history_file.c_str());
  }
  ~State() {
    if (edit) el_end(edit);
    if (history) history_end(history);
  }

  static const char* prompt(EditLine*) { return "> "; }

  // A character of UTF-8; 0 at the end of the input, -1 when interrupted.
  static int read_character(EditLine* edit, wchar_t* character) {
    State* state = nullptr;
    el_get(edit, EL_CLIENTDATA, &state);
    std::mbstate_t partial = {};
    for (;;) {
      state->wait(std::exchange(state->begun, true));
      char byte = 0;
      const ssize_t count = interrupted() ? -1 : read(STDIN_FILENO, &byte, 1);
      if (count < 0 && errno == EINTR && !interrupted()) continue;
      if (count <= 0) return static_cast<int>(count);
      const std::size_t length = std::mbrtowc(character, &byte, 1, &partial);
      if (length <= 1) return 1;
      if (length == static_cast<std::size_t>(-1)) partial = {};  // no UTF-8: passed over
    }
  }

  // Whole each time: a chat may end in any way.
  void remember(const char* line) {
    HistEvent event;
    ::history(history, &event, H_ENTER, line);
    if (history_file.empty()) return;
    std::error_code error;
    std::filesystem::create_directories(history_file.parent_path(), error);
    const FileDescriptor file(open(history_file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (file) ::history(history, &event, H_SAVE, history_file.c_str());
  }

  const std::filesystem::path history_file;
  const Wait wait;
  bool begun = false;  // the line that is being read
  EditLine* edit = nullptr;
  History* history = nullptr;
};

std::optional<std::string> LineReader::next() {
  State& s = *state_;
  if (!s.edit || !s.history) return std::nullopt;
  el_resize(s.edit);
  el_set(s.edit, EL_PREP_TERM, 1);  // before the prompt: what is typed as soon as it shows is edited
  s.begun = false;
  int count = 0;
  const char* line = el_gets(s.edit, &count);
  if (interrupted() || !line || count <= 0) {
    fmt::print(stderr, "\n");
    return std::nullopt;
  }
  std::string text(line, static_cast<std::size_t>(count));
  if (text.ends_with('\n')) text.pop_back();
  if (!text.empty()) s.remember(text.c_str());
  return text;
}

#else

namespace shale {

struct LineReader::State {
  State(std::filesystem::path, Wait until_typed) : wait(std::move(until_typed)) {}
  Wait wait;
};

// A terminal hands over lines one by one, so that nothing typed waits unseen in a buffer.
std::optional<std::string> LineReader::next() {
  fmt::print(stderr, "> ");
  state_->wait(false);
  std::string line;
  if (!interrupted() && std::getline(std::cin, line)) return line;
  fmt::print(stderr, "\n");
  return std::nullopt;
}

#endif

LineReader::LineReader(std::filesystem::path history, Wait wait)
    : state_(std::make_unique<State>(std::move(history), std::move(wait))) {}
LineReader::~LineReader() = default;

}  // namespace shale
