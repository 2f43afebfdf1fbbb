#include "loadtest/serve/serve_client.h"

#include <fmt/format.h>
#include <httplib.h>

#include <cmath>
#include <utility>

namespace shale {
namespace {

constexpr std::string_view kDone = "[DONE]";

void read_usage(const Json& usage, ServedAnswer& answer) {
  usage.at("prompt_tokens").get_to(answer.prompt_tokens);
  usage.at("completion_tokens").get_to(answer.completion_tokens);
  const Json& details = usage.at("prompt_tokens_details");
  details.at("computed_tokens").get_to(answer.computed_tokens);
  details.at("lossy").get_to(answer.lossy);
  details.at("expected_quality").get_to(answer.expected_quality);
  details.at("compressed").get_to(answer.forms);
  for (const auto& [source, tokens] : details.at("cached_from").items()) tokens.get_to(answer.cached_tokens[source]);
}

void read_event(std::string_view data, double after_s, ServedAnswer& answer) {
  const Json event = Json::parse(data);
  if (event.contains("error")) {
    event["error"].at("message").get_to(answer.error);
  } else if (event.contains("usage") && event["usage"].is_object()) {
    read_usage(event["usage"], answer);
  } else if (const Json& choices = event.at("choices"); !choices.empty()) {
    const Json& delta = choices[0].at("delta");
    if (!delta.contains("content") || delta["content"] == "") return;
    answer.pieces_s.push_back(after_s);
    answer.text += delta["content"].get<std::string_view>();
  }
}

std::string refusal(int status, const std::string& body) {
  const Json reply = Json::parse(body, nullptr, false);
  const Json::json_pointer message("/error/message");
  const bool told = reply.is_object() && reply.contains(message) && reply[message].is_string();
  return fmt::format("{}: {}", status, told ? reply[message].get<std::string>() : body.substr(0, 200));
}

}  // namespace

void to_json(Json& json, const ServedForm& form) {
  json = {{"method", form.method}, {"keep", form.keep}, {"tokens", form.tokens}, {"from", form.from}};
}

void from_json(const Json& json, ServedForm& form) {
  json.at("method").get_to(form.method);
  json.at("keep").get_to(form.keep);
  json.at("tokens").get_to(form.tokens);
  json.at("from").get_to(form.from);
}

std::string chat_body(std::string_view context, const std::vector<std::string>& said, std::uint32_t answer_tokens,
                      bool exact, bool to_the_end) {
  Json messages = Json::array();
  messages.push_back({{"role", "system"}, {"content", std::string(context)}});
  for (std::size_t i = 0; i < said.size(); ++i) {
    messages.push_back({{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", said[i]}});
  }
  Json body = {{"messages", std::move(messages)}, {"temperature", 0}, {"max_tokens", answer_tokens},
               {"ignore_eos", to_the_end},        {"stream", true},   {"stream_options", {{"include_usage", true}}}};
  if (exact) body["exact"] = true;
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void EventStream::push(std::string_view bytes) {
  constexpr std::string_view kData = "data: ";
  line_ += bytes;
  std::size_t begin = 0;
  for (std::size_t end; (end = line_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string_view line = std::string_view(line_).substr(begin, end - begin);
    if (line.starts_with(kData)) on_data_(line.substr(kData.size()));
  }
  line_.erase(0, begin);
}

ServedAnswer ask_server(std::uint16_t port, const std::string& body, const Clock& clock, double planned_s,
                        double wait_s_max, const std::string& key) {
  ServedAnswer answer;
  bool done = false;
  EventStream events([&](std::string_view data) {
    if (data == kDone) {
      done = true;
    } else {
      read_event(data, clock.now_s() - planned_s, answer);
    }
  });

  httplib::Client client("127.0.0.1", port);
  client.set_tcp_nodelay(true);
  client.set_read_timeout(static_cast<time_t>(std::ceil(wait_s_max)));
  httplib::Request request;
  request.method = "POST";
  request.path = "/v1/chat/completions";
  request.body = body;
  request.set_header("Content-Type", "application/json");
  if (!key.empty()) request.set_header("Authorization", "Bearer " + key);
  request.content_receiver = [&](const char* bytes, std::size_t size, std::uint64_t, std::uint64_t) {
    try {
      events.push({bytes, size});
    } catch (const Json::exception& error) {
      answer.error = fmt::format("an answer that is not understood: {}", error.what());
    }
    return answer.error.empty();
  };
  const httplib::Result reply = client.send(request);
  answer.end_s = clock.now_s() - planned_s;
  if (!answer.error.empty()) return answer;
  if (!reply) {
    answer.error = fmt::format("no answer: {}", httplib::to_string(reply.error()));
  } else if (reply->status != 200) {
    answer.error = refusal(reply->status, events.rest());
  } else if (!done || answer.prompt_tokens == 0) {
    answer.error = done ? "an answer without usage" : "the answer breaks off";
  } else if (answer.pieces_s.empty()) {
    answer.pieces_s.push_back(answer.end_s);  // of tokens without text, the end is all that a client sees
  }
  return answer;
}

}  // namespace shale
