#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <iostream>
#include <thread>

#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/requests.h"
#include "core/utf8.h"
#include "engine/conversation.h"
#include "profile/quality_watch.h"

namespace shale {
namespace {

struct ChatOptions {
  ServingOptions serving;
  AnswerOptions answer;
  OutputOptions output;
  std::string system;
  bool exact = false;
};

constexpr char kExamples[] =
    "One message a line; /quit or the end of the input ends the chat. Every turn is stored: when the same\n"
    "conversation is held again, by another process too, its turns are loaded instead of computed. A message that\n"
    "cannot be answered, because it is too long, say, is refused and the chat goes on without it.\n"
    "\n"
    "Examples:\n"
    "  shale chat --system \"You are a patient teacher.\"\n"
    "  printf 'Hello.\\nWhat did I say?\\n' | shale chat --json";

bool typed() {
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  return poll(&input, 1, 0) != 0;
}

// What a server does while it is idle: the last turn is stored, and quality measured, until a line was typed.
void use_idle_time(Engine& engine, QualityWatch& watch) {
  while (!typed() && !interrupted()) {
    if (engine.run_once()) continue;
    const bool worked = engine.cache().idle() && watch.work([] { return typed() || interrupted(); });
    if (!worked) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

// The next message; nothing at the end of input, after /quit or Ctrl-C. Skips empty lines. A terminal hands over lines
// one by one, so that nothing typed waits unseen in a buffer.
std::optional<std::string> next_message(bool terminal, Engine& engine, QualityWatch& watch) {
  std::string line;
  for (;;) {
    if (terminal) {
      fmt::print(stderr, "> ");
      use_idle_time(engine, watch);
    }
    if (interrupted() || !std::getline(std::cin, line) || line == "/quit") return std::nullopt;
    if (!line.empty()) return line;
  }
}

Result<Response> answer(Serving& serving, QualityWatch& watch, Conversation& conversation, const std::string& message,
                        const ChatOptions& options) {
  if (find_invalid_utf8(message) != std::string::npos) {
    return fail(ErrorCode::kInvalidArgument, "that message is not UTF-8 text");
  }
  Request request;
  SHALE_ASSIGN(request.segments, conversation.ask(message));
  options.answer.apply(request);
  request.demand.exact = options.exact;
  request.store_answer = true;
  if (!options.output.json) request.on_text = print_piece;

  watch.on_request(request);
  const Request asked = request;
  SHALE_ASSIGN(Response response, run_request(serving.engine(), std::move(request), options.output));
  watch.on_response(asked, response);
  conversation.answered(response);
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

Status run(const ChatOptions& options) {
  SHALE_ASSIGN(const auto serving, Serving::open(options.serving, options.output));
  Conversation conversation(serving->tokenizer(), options.system);
  const bool terminal = isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1;

  QualityWatch watch({}, serving->engine());
  while (const auto message = next_message(terminal, serving->engine(), watch)) {
    if (const auto response = answer(*serving, watch, conversation, *message, options)) {
      print_answer(*response, serving->model(), options.output.json);
    } else if (response.error().code == ErrorCode::kCancelled) {
      break;
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

void add_chat(CLI::App& parent, Action& chosen) {
  auto [command, options] = add_command(parent, chosen, "chat", "Talk with the model; every turn is kept", run);
  command->footer(kExamples);
  command->add_option("--system", options->system, "System message instead of the model's own")
      ->envname("SHALE_SYSTEM")
      ->type_name("TEXT");
  command->add_flag("--exact", options->exact, "Use only bit-exact stored caches")->group("Cache use");
  add_answer_options(*command, options->answer);
  add_serving_options(*command, options->serving);
  add_resident_option(*command, options->serving.model);
  add_output_options(*command, options->output);
}

}  // namespace shale
