// `shale serve`: what it says when it begins, and what it leaves when it is told to end.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <fstream>

#include "cli/serve_program.h"
#include "support/eventually.h"

namespace shale::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ServeTest = ServeProgram;

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

// A remote tier that takes a context in hours.
class ServeSlowTest : public ServeTest {
 protected:
  std::string remote() const { return (home_.path() / "remote").string(); }
  nlohmann::json answer_over_slow_tier(const std::string& flush_timeout) {
    const auto line = serve({"--remote", remote(), "--throttle-remote", "100B/s,1ms", "--profile", "never",
                             "--flush-timeout", flush_timeout});
    return chat(port_of(line));
  }
  // Nothing damaged is left, and the next server answers the same.
  void expect_sound(const nlohmann::json& answer) {
    const Outcome verified = run({"cache", "verify", "--remote", remote()});
    EXPECT_EQ(verified.status, 0) << verified.out << verified.err;
    EXPECT_EQ(chat(port_of(serve({"--remote", remote(), "--load-always"})))["choices"], answer["choices"]);
    EXPECT_EQ(end(SIGTERM).status, 0);
  }
};

TEST_F(ServeSlowTest, SaysHowMuchItGivesUpOfWhatASlowTierHasNotTaken) {
  const auto answer = answer_over_slow_tier("0.5");
  const Outcome outcome = end(SIGTERM);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, ContainsRegex("after 0.5 s \\(--flush-timeout\\) is left out: 1 save, about .*B"));
  expect_sound(answer);
}

TEST_F(ServeSlowTest, EndsAtOnceWhenToldAgain) {
  const auto answer = answer_over_slow_tier("86400");
  kill(server_, SIGTERM);
  ASSERT_TRUE(eventually([&] { return read(home_.path() / "stderr").contains("again ends at once"); }));
  const Outcome outcome = end(SIGTERM);
  EXPECT_EQ(outcome.status, 130);
  EXPECT_THAT(outcome.err, ContainsRegex("still to be stored is left out: 1 save, about .*B"));
  expect_sound(answer);
}

// Whose log goes into a pipe, which this test opens for its reader.
class ServePipedTest : public ServeTest {
 protected:
  void serve_piped(const char* form) {
    ASSERT_EQ(mkfifo(log_.c_str(), 0600), 0);
    reader_ = open(log_.c_str(), O_RDONLY | O_NONBLOCK);
    line_ = serve({"--log", form});
    ASSERT_FALSE(line_.is_null());
  }
  void answer_and_end() {
    for (int i = 0; i < 2; ++i) EXPECT_EQ(chat(port_of(line_))["choices"].size(), 1u);
    std::filesystem::remove(log_);
    file("stderr", "");
    EXPECT_EQ(end(SIGTERM).status, 0);
  }

  const std::filesystem::path log_ = home_.path() / "stderr";
  int reader_ = -1;
  nlohmann::json line_;
};

TEST_F(ServePipedTest, GoesOnWhereNobodyReadsItsLogAnyMore) {
  ASSERT_NO_FATAL_FAILURE(serve_piped("json"));
  close(reader_);
  answer_and_end();
}

// As when a pager or a terminal stands still.
TEST_F(ServePipedTest, AnswersStoresAndEndsWhereItsLogIsFullAndNobodyReadsIt) {
  ASSERT_NO_FATAL_FAILURE(serve_piped("text"));
  const int filler = open(log_.c_str(), O_WRONLY | O_NONBLOCK);
  while (write(filler, "x", 1) == 1) continue;
  answer_and_end();
  close(filler);
  close(reader_);
  EXPECT_GT(chat(port_of(serve()))["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  EXPECT_EQ(end(SIGTERM).status, 0);
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

TEST_F(ServeTest, RefusesOptionsOfWhatIsNotAskedFor) {
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"--tenant-bytes", "1GiB"}, "--tenants"},
      {{"--tenant-requests", "4"}, "--tenants"},
      {{"--shared-cache"}, "--tenants"},
      {{"--kv-events-encoding", "arrays"}, "--kv-events"},
      {{"--kv-events-buffer", "100"}, "--kv-events"},
      {{"--kv-event-block-size", "64"}, "--kv-events"},
  };
  for (const auto& [more, missing] : cases) {
    Words words = {"serve", "--model", "/nowhere.gguf"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.status, 2) << more[0];
    EXPECT_THAT(outcome.err, AllOf(HasSubstr(more[0]), HasSubstr(missing)));
  }
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
