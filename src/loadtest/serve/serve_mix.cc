#include "loadtest/serve/serve_mix.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <httplib.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <thread>

#include "io/file_calls.h"
#include "loadtest/serve/serve_client.h"

namespace shale {
namespace {

using namespace std::chrono_literals;

constexpr auto kNextByteMax = 60s;  // for the next byte
constexpr auto kSlowReader = 20ms;
constexpr auto kIdle = 50ms;
constexpr std::size_t kContexts = 12;
constexpr const char* kPath = "/v1/chat/completions";

constexpr std::array kWords = {"shale", "mud",  "layer", "river", "slate", "page", "stone", "deep",  "fine", "silt",
                               "cold",  "grey", "press", "water", "clay",  "bed",  "old",   "leaf",  "thin", "form",
                               "rock",  "sea",  "split", "plant", "fish",  "heat", "grain", "plate", "dark", "coal"};

constexpr auto kManners = std::to_array<std::pair<std::string_view, unsigned>>({{"whole", 20},
                                                                                {"streamed", 30},
                                                                                {"not exact", 15},
                                                                                {"salted", 5},
                                                                                {"slow", 8},
                                                                                {"gives up", 10},
                                                                                {"malformed", 8},
                                                                                {"idle", 4}});  // of 100; as Manner is

std::string some_words(std::size_t count, std::mt19937_64& random) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += (i ? " " : "") + std::string(kWords[random() % kWords.size()]);
  return text + ".";
}

struct Reply {
  int status = 0;
  bool done = false;  // it came to its end
  double first_s = 0;
  std::string text, error;
  Json usage;
};

void read_answer(const Json& json, const char* part, Reply& reply) {
  if (json.contains("error")) reply.error = json["error"].value("message", "an error");
  if (json.contains("usage") && json["usage"].is_object()) reply.usage = json["usage"];
  if (!json.contains("choices") || json["choices"].empty()) return;
  reply.text += json["choices"][0].at(part).value("content", "");
}

// `on_text`: false ends the connection.
Reply post(std::uint16_t port, const std::string& body, bool streamed,
           const std::function<bool(const Reply&)>& on_text) {
  Reply reply;
  const auto start = std::chrono::steady_clock::now();
  EventStream events([&](std::string_view data) {
    if (data == "[DONE]") {
      reply.done = true;
      return;
    }
    read_answer(Json::parse(data), "delta", reply);
    if (reply.first_s == 0 && !reply.text.empty())
      reply.first_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  });
  httplib::Client client("127.0.0.1", port);
  client.set_tcp_nodelay(true);
  client.set_read_timeout(kNextByteMax);
  httplib::Request request;
  request.method = "POST";
  request.path = kPath;
  request.body = body;
  request.set_header("Content-Type", "application/json");
  request.content_receiver = [&](const char* bytes, std::size_t size, std::uint64_t, std::uint64_t) {
    events.push({bytes, size});
    return on_text(reply);
  };
  const httplib::Result result = client.send(request);
  if (!result) {
    reply.error = httplib::to_string(result.error());
    return reply;
  }
  reply.status = result->status;
  if (streamed && reply.status == 200) return reply;
  read_answer(Json::parse(events.rest()), "message", reply);
  reply.done = true;
  return reply;
}

bool is_exact(Manner manner) { return manner != Manner::kNotExact; }
bool is_streamed(Manner manner) { return manner != Manner::kWhole && manner != Manner::kSalted; }

Json body_of(const MixRequest& request, const MixPrompt& prompt) {
  Json body = {{"messages", prompt.messages},
               {"temperature", 0},
               {"max_tokens", prompt.answer_tokens},
               {"ignore_eos", true},
               {"exact", is_exact(request.manner)}};
  if (request.manner == Manner::kSalted) body["cache_salt"] = fmt::format("salt {:x}", request.number);
  if (is_streamed(request.manner)) body.update({{"stream", true}, {"stream_options", {{"include_usage", true}}}});
  return body;
}

std::string malformed_body(const MixRequest& request, const MixPrompt& prompt) {
  Json body = body_of(request, prompt);
  switch (request.number % 4) {
    case 0:
      return body.dump().substr(0, body.dump().size() / 2);
    case 1:
      body["max_tokens"] = -1;
      return body.dump();
    case 2:
      body["messages"] = "none";
      return body.dump();
    default:
      return std::string(300, '[');
  }
}

// What of it is not as it must be; empty: nothing.
std::string difference(const MixRequest& request, const MixPrompt& prompt, const Reply& reply) {
  if (is_exact(request.manner) && reply.text != prompt.answer)
    return fmt::format("the answer '{}' in place of '{}'", reply.text, prompt.answer);
  const Json& details = reply.usage.at("prompt_tokens_details");
  const auto cached = details.at("cached_tokens").get<std::uint32_t>();
  const auto computed = details.at("computed_tokens").get<std::uint32_t>();
  if (reply.usage.at("completion_tokens") != prompt.answer_tokens)
    return fmt::format("{} tokens in place of {}", reply.usage.at("completion_tokens").dump(), prompt.answer_tokens);
  if (reply.usage.at("prompt_tokens") != prompt.prompt_tokens || cached + computed != prompt.prompt_tokens)
    return fmt::format("{} tokens cached and {} computed of a prompt of {}", cached, computed, prompt.prompt_tokens);
  if (is_exact(request.manner) && details.at("lossy") == true) return "an exact answer over lossy keys and values";
  if (request.manner == Manner::kSalted && cached != 0)
    return fmt::format("{} tokens found that another salt left", cached);
  return {};
}

MixOutcome judge(const MixRequest& request, const MixPrompt& prompt, const Reply& reply) {
  using Kind = MixOutcome::Kind;
  if (reply.status != 0 && (reply.status != 200 || !reply.error.empty()))
    return {.kind = Kind::kRefused, .what = fmt::format("status {}: {}", reply.status, reply.error)};
  if (!reply.done) {
    const bool wrong = is_exact(request.manner) && !prompt.answer.starts_with(reply.text);
    return {.kind = wrong ? Kind::kWrong : Kind::kBroken,
            .what = fmt::format("after '{}' of '{}' the answer breaks off ({})", reply.text, prompt.answer,
                                reply.error.empty() ? "without a word" : reply.error)};
  }
  if (std::string what = difference(request, prompt, reply); !what.empty())
    return {.kind = Kind::kWrong, .what = std::move(what)};
  return {.first_s = reply.first_s,
          .cached_tokens = reply.usage["prompt_tokens_details"]["cached_tokens"].get<std::uint32_t>()};
}

MixOutcome stay_idle(std::uint16_t port) {
  constexpr std::string_view kHalfAHead = "POST /v1/chat/comple";
  const FileDescriptor file(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(file.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      send(file.get(), kHalfAHead.data(), kHalfAHead.size(), MSG_NOSIGNAL) < 0)
    return {.kind = MixOutcome::Kind::kBroken, .what = "no connection"};
  std::this_thread::sleep_for(kIdle);
  return {};
}

MixOutcome ask_malformed(std::uint16_t port, const MixRequest& request, const MixPrompt& prompt) {
  const Reply reply = post(port, malformed_body(request, prompt), false, [](const Reply&) { return true; });
  if (reply.status == 400) return {};
  return {.kind = reply.status ? MixOutcome::Kind::kWrong : MixOutcome::Kind::kBroken,
          .what = fmt::format("status {} in place of 400: {}", reply.status, reply.error)};
}

MixOutcome outcome_of(std::uint16_t port, const MixRequest& request, const MixPrompt& prompt) {
  if (request.manner == Manner::kIdle) return stay_idle(port);
  if (request.manner == Manner::kMalformed) return ask_malformed(port, request, prompt);
  bool gave_up = false;
  const Reply reply =
      post(port, body_of(request, prompt).dump(), is_streamed(request.manner), [&](const Reply& so_far) {
        if (request.manner == Manner::kSlow) std::this_thread::sleep_for(kSlowReader);
        gave_up = request.manner == Manner::kGivesUp && !so_far.text.empty();
        return !gave_up;
      });
  if (gave_up && prompt.answer.starts_with(reply.text)) return {};
  return judge(request, prompt, reply);
}

}  // namespace

std::string_view to_string(Manner manner) { return kManners[static_cast<std::size_t>(manner)].first; }

std::vector<MixPrompt> make_mix(std::uint64_t seed, std::size_t prompts) {
  std::mt19937_64 random(seed);
  std::vector<std::string> contexts;
  for (std::size_t i = 0; i < kContexts; ++i)
    contexts.push_back(some_words(8 + random() % (i % 4 == 0 ? 160 : 50), random));
  std::vector<MixPrompt> mix(prompts);
  for (MixPrompt& prompt : mix) {
    prompt.messages = Json::array({{{"role", "system"}, {"content", contexts[random() % kContexts]}}});
    for (std::size_t turns = random() % 3; turns > 0; --turns) {
      prompt.messages.push_back({{"role", "user"}, {"content", some_words(3, random)}});
      prompt.messages.push_back({{"role", "assistant"}, {"content", some_words(6, random)}});
    }
    prompt.messages.push_back({{"role", "user"}, {"content", some_words(4, random)}});
    prompt.answer_tokens = 2 + static_cast<std::uint32_t>(random() % 6);
  }
  return mix;
}

Status answer_mix(std::uint16_t port, std::vector<MixPrompt>& prompts) {
  for (MixPrompt& prompt : prompts) {
    const std::string body = body_of({}, prompt).dump();
    const Reply reply = post(port, body, false, [](const Reply&) { return true; });
    if (reply.status != 200) return fail(ErrorCode::kIo, "a server without faults does not answer: {}", reply.error);
    prompt.answer = reply.text;
    prompt.prompt_tokens = reply.usage.at("prompt_tokens").get<std::uint32_t>();
  }
  return {};
}

MixRequest draw_request(std::size_t prompts, std::mt19937_64& random) {
  MixRequest request{.prompt = random() % prompts, .number = random()};
  std::size_t manner = 0;
  for (std::uint64_t left = random() % 100; left >= kManners[manner].second; ++manner) left -= kManners[manner].second;
  request.manner = static_cast<Manner>(manner);
  return request;
}

MixOutcome ask_mixed(std::uint16_t port, const MixRequest& request, const MixPrompt& prompt) {
  try {
    return outcome_of(port, request, prompt);
  } catch (const Json::exception& error) {
    return {.kind = MixOutcome::Kind::kWrong,
            .what = fmt::format("an answer that is not understood: {}", error.what())};
  }
}

}  // namespace shale
