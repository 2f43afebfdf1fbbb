// Bodies of requests: any bytes are an error that names what is wrong, or a request within bounds.
#include "core/utf8.h"
#include "input.h"
#include "server/answer_json.h"
#include "server/answer_request.h"

namespace {

using namespace shale;

void check_error(const ApiError& error) {
  check(error.status == 400 && !error.message.empty());
  const std::string reply = dump(to_json(error));
  check(Json::parse(reply)["error"]["message"].is_string() && reply.size() < 4096);
}

void check_request(const AnswerRequest& request) {
  const Request& engine = request.request;
  check((engine.max_tokens >= 1) != engine.prompt_only && engine.spans.empty());
  check(!engine.prompt_only || request.details.echo);
  check(engine.sampling.temperature >= 0 && engine.sampling.top_p >= 0 && engine.sampling.top_p <= 1);
  check(engine.policy.keep >= 0 && engine.policy.keep <= 1 && !(engine.policy.exact && engine.policy.method));
  for (const std::string& stop : engine.stop) check(!stop.empty());
  check(request.n >= 1 && request.n <= 128 && request.choices() == request.prompts.size() * request.n);
  if (request.endpoint == Endpoint::kChat) {
    check(!request.messages.empty() && request.prompts.size() == 1);
    for (const ChatMessage& message : request.messages) {
      check(find_invalid_utf8(message.content) == std::string::npos && message.tokens.empty());
    }
  } else {
    check(!request.prompts.empty() && request.prompts.size() <= 1024);
    for (const AnswerPrompt& prompt : request.prompts) {
      check(prompt.text.empty() != prompt.tokens.empty() && prompt.spans.empty());
      for (const Token token : prompt.tokens) check(token >= 0);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  for (const Endpoint endpoint : {Endpoint::kChat, Endpoint::kCompletions}) {
    const auto request = parse_answer_request(endpoint, body, {});
    request ? check_request(*request) : check_error(request.error());
  }
  return 0;
}
