#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <thread>

#include "cli/answer_options.h"
#include "cli/command.h"
#include "cli/line_reader.h"
#include "cli/option_types.h"
#include "cli/serving_options.h"
#include "core/interrupt.h"
#include "core/text_file.h"
#include "core/user_folder.h"
#include "core/utf8.h"
#include "engine/conversation.h"
#include "profile/quality_watch.h"
#include "profile/spare_time.h"
#include "runtime/requests.h"

namespace shale {
namespace {

struct ChatOptions {
  ServingOptions serving;
  AnswerOptions answer;
  OutputOptions output;
  std::string system;
  bool exact = false;
  bool history = true;
};

constexpr char kChatExamples[] =
    "One message a line; /help lists what is not said to the model. Ctrl-C stops an answer, and the chat goes on with\n"
    "what there is of it; at the prompt it clears the line, and twice, as Ctrl-D does, it ends the chat. Ctrl-Z\n"
    "suspends it; fg goes on. Every turn is stored: when the same conversation is held again, by another process too,\n"
    "its turns are loaded instead of computed. A message that cannot be answered, because it is too long, say, is\n"
    "refused and the chat goes on without it.\n"
    "\n"
    "Examples:\n"
    "  shale chat --system \"You are a patient teacher.\"\n"
    "  printf 'Hello.\\nWhat did I say?\\n' | shale chat --json";

constexpr char kHelp[] =
    "/save FILE   write what was said, as the messages of a request of OpenAI's API\n"
    "/quit        end, as Ctrl-D does\n"
    "/help        this; a line that begins with a space and a / is said to the model";

// What a server does while it is idle: the last turn is stored, and quality measured, a step at a time.
void use_idle_time(Engine& engine, QualityWatch& watch) {
  if (engine.run_once()) return;
  const auto turn = [&engine] {
    engine.run_once();
    return !typed() && !interrupted();
  };
  SpareTime spare(engine, engine.cache().clock(), turn);
  if (!watch.work(Stop(spare))) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

// Where lines come from: a terminal, whose idle time is used, or a pipe.
class Lines {
 public:
  Lines(const ChatOptions& options, Engine& engine, QualityWatch& watch) {
    if (!is_terminal()) return;
    const std::filesystem::path history =
        options.history ? user_folder("XDG_STATE_HOME", ".local/state") / "chat_history" : "";
    typed_ = LineReader::make(history, [&] { use_idle_time(engine, watch); });
  }

  bool terminal() const { return typed_ != nullptr; }

  // Nothing at the end of input, or of patience: Ctrl-C twice with nothing said between them, or SIGTERM.
  std::optional<std::string> next() {
    if (!typed_) {
      std::string line;
      return interrupted() || !std::getline(std::cin, line) ? std::nullopt : std::optional(line);
    }
    for (bool again = false;; again = true) {
      auto line = typed_->next();
      if (line || !interrupted() || told_to_end()) return line;
      catch_interrupts();
      if (again) return std::nullopt;
      print_note("Ctrl-C again, or Ctrl-D, ends the chat");
    }
  }

 private:
  static bool is_terminal() { return isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1; }

  std::unique_ptr<LineReader> typed_;
};

Status save(const Conversation& conversation, std::string_view path) {
  if (path.empty()) return fail(ErrorCode::kInvalidArgument, "name a file: /save FILE");
  std::error_code error;
  if (std::filesystem::exists(path, error)) {
    return fail(ErrorCode::kInvalidArgument, "{} is there already: name another file", path);
  }
  Json messages = Json::array();
  for (const ChatMessage& message : conversation.messages()) {
    messages.push_back({{"role", message.role}, {"content", message.content}});
  }
  SHALE_TRY(write_file(std::string(path),
                       Json{{"messages", messages}}.dump(2, ' ', false, Json::error_handler_t::replace) + '\n'));
  print_note(fmt::format("saved {} messages in {}", messages.size(), path));
  return {};
}

enum class LineKind { kMessage, kCommand, kGoodbye };

LineKind obey(std::string_view line, const Conversation& conversation) {
  if (!line.starts_with('/')) return LineKind::kMessage;
  const std::string_view name = line.substr(0, line.find(' '));
  if (name == "/quit") return LineKind::kGoodbye;
  if (name == "/help") {
    print_note(kHelp);
  } else if (name == "/save") {
    const std::size_t argument = line.find_first_not_of(' ', name.size());
    const Status saved = save(conversation, argument == line.npos ? std::string_view() : line.substr(argument));
    if (!saved) print_note("shale: " + saved.error().message);
  } else {
    print_note(fmt::format(
        "shale: there is no {}; /help lists what there is, and a space before it says it to the model", name));
  }
  return LineKind::kCommand;
}

Result<Response> answer(Serving& serving, QualityWatch& watch, Conversation& conversation, const std::string& message,
                        const ChatOptions& options) {
  if (find_invalid_utf8(message) != std::string::npos) {
    return fail(ErrorCode::kInvalidArgument, "the message is not UTF-8 text: write it in UTF-8");
  }
  Request request;
  SHALE_ASSIGN(request.spans, conversation.ask(message));
  options.answer.apply(request);
  request.policy.exact = options.exact;
  request.store_answer = true;
  if (!options.output.json) request.on_text = print_piece;

  watch.on_request(request);
  const Request asked = request;
  SHALE_ASSIGN(Response response, run_until_interrupted(serving.engine(), std::move(request), options.output));
  watch.on_response(asked, response);
  if (!response.tokens.empty()) conversation.answered(response);
  return response;
}

void print_answer(const Response& response, const Model& model, bool json) {
  if (json) {
    print_json(to_json(response, model));
  } else {
    fmt::print("\n");
    print_note(summary(response));
  }
}

Status run_chat(const ChatOptions& options) {
  SHALE_ASSIGN(const auto serving, Serving::open(options.serving, options.output));
  Conversation conversation(serving->tokenizer(), options.system);
  QualityWatch watch({}, serving->engine());
  Lines lines(options, serving->engine(), watch);
  while (const auto line = lines.next()) {
    if (line->empty()) continue;
    const LineKind kind = obey(*line, conversation);
    if (kind == LineKind::kGoodbye) break;
    if (kind == LineKind::kCommand) continue;
    if (const auto response = answer(*serving, watch, conversation, *line, options)) {
      print_answer(*response, serving->model(), options.output.json);
      if (response->stop != StopReason::kCancelled) continue;
      if (!lines.terminal() || told_to_end()) break;
      catch_interrupts();
    } else if (options.output.json) {
      print_json({{"error", response.error().message}});
    } else {
      print_note("shale: " + response.error().message);
    }
  }
  SHALE_TRY(check_interrupt());
  return serving->finish_background(options.output);
}

}  // namespace

void add_chat(Command parent, Action& chosen) {
  auto [command, options] = add_command(parent, chosen, "chat", "Talk with the model; every turn is kept", run_chat);
  command.footer(kChatExamples);
  command.add_option("--system", options->system, "System message instead of the model's own")
      .envname("SHALE_SYSTEM")
      .type_name("TEXT");
  add_switch(command, "--history", options->history,
             "Keep what is typed for later chats, in a file that only you can read (~/.local/state/shale/chat_history)")
      .envname("SHALE_CHAT_HISTORY");
  command.add_flag("--exact", options->exact, "Use only bit-exact stored caches").group("Cache use");
  add_answer_options(command, options->answer);
  add_serving_options(command, options->serving);
  add_kv_cache_dtype_option(command, options->serving.model);
  add_output_options(command, options->output);
}

}  // namespace shale
