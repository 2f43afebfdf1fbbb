// `shale serve`: what it says when it begins, and what it leaves when it is told to end.
#include <gmock/gmock.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "cli/shale_program.h"
#include "loadtest/loopback_http.h"

namespace shale::testing {
namespace {

using ::testing::HasSubstr;

class ServeTest : public TinyProgram {
 protected:
  // Starts it on a free port; its first line.
  nlohmann::json serve(Words more = {}) {
    Words words = {"serve", "--port", "0", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    server_ = start(words);
    for (int i = 0; i < 1000; ++i) {
      const std::string out = read(home_.path() / "stdout");
      if (out.ends_with('\n')) return nlohmann::json::parse(out);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return {};
  }
  Outcome end(int signal) {
    kill(server_, signal);
    return finish(server_);
  }

  static std::uint16_t port_of(const nlohmann::json& line) {
    const std::string url = line.at("url");
    return static_cast<std::uint16_t>(std::stoi(url.substr(url.rfind(':') + 1)));
  }
  nlohmann::json chat(std::uint16_t port) {
    const nlohmann::json body = {{"messages", {{{"role", "user"}, {"content", read(context_)}}}}, {"temperature", 0}};
    const auto answer = loopback_request(port, "POST", "/v1/chat/completions", body.dump());
    EXPECT_TRUE(answer) << answer.error().message;
    return nlohmann::json::parse(answer.value_or("null"));
  }

  pid_t server_ = 0;
};

TEST_F(ServeTest, StoresWhatItAnsweredForTheNextProcess) {
  const auto line = serve();
  ASSERT_EQ(line["model"], "tiny");
  const auto first = chat(port_of(line));
  EXPECT_EQ(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  const Outcome outcome = end(SIGTERM);
  EXPECT_EQ(outcome.status, 0) << outcome.err;

  // A model as small as this one computes as fast as any disk reads.
  const auto again = chat(port_of(serve({"--load-always"})));
  // From the disk, or from memory where it rose while the server was idle.
  EXPECT_GT(again["usage"]["prompt_tokens_details"]["cached_tokens"], std::filesystem::file_size(context_));
  EXPECT_EQ(again["choices"], first["choices"]);
  EXPECT_EQ(end(SIGINT).status, 0);
}

TEST_F(ServeTest, EndsThoughATierHangs) {
  const auto faults = home_.path() / "faults";
  std::ofstream(faults) << "";
  const auto line = serve({"--faults", faults.string(), "--flush-timeout", "1"});
  std::ofstream(faults) << "disk hang\n";
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(chat(port_of(line))["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  const Outcome outcome = end(SIGTERM);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("(--flush-timeout) is left out"));
}

TEST_F(ServeTest, ATakenPortIsAnError) {
  const auto line = serve();
  const pid_t first = server_;
  const Outcome second = run({"serve", "--port", std::to_string(port_of(line)), "--disk-size", "0"});
  EXPECT_EQ(second.status, 1);
  EXPECT_THAT(second.err, HasSubstr("cannot listen on 127.0.0.1"));
  kill(first, SIGTERM);
  EXPECT_EQ(finish(first).status, 0);
}

TEST_F(ServeTest, ServesNobodyWithoutAKeyByMistake) {
  const Outcome empty = run({"serve", "--port", "0", "--api-key", ""});
  EXPECT_EQ(empty.status, 2);
  EXPECT_THAT(empty.err, HasSubstr("--api-key is empty"));
  const Outcome open = run({"serve", "--port", "0", "--host", "0.0.0.0", "--disk-size", "0"});
  EXPECT_EQ(open.status, 2);
  EXPECT_THAT(open.err, HasSubstr("--no-auth"));
  environment_["SHALE_API_KEY"] = "";
  EXPECT_THAT(run({"serve", "--port", "0"}).err, HasSubstr("SHALE_API_KEY is empty"));
}

}  // namespace
}  // namespace shale::testing
