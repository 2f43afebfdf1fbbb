// Help and wrong usage.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "cli/renamed_options.h"
#include "cli/shale_program.h"
#include "support/eventually.h"

namespace shale::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class UsageTest : public ShaleProgram {};

TEST_F(UsageTest, HelpNamesEveryCommandAndGivesExamples) {
  const Outcome help = run({"--help"});
  EXPECT_EQ(help.status, 0);
  for (const char* command : {"generate", "chat", "profile", "cache", "model", "bench"})
    EXPECT_THAT(help.out, HasSubstr(command));
  EXPECT_THAT(help.out, HasSubstr("Examples:"));
  EXPECT_EQ(run({}).status, 2);
}

TEST_F(UsageTest, EveryCommandExplainsItself) {
  const std::vector<Words> commands = {{"generate"},
                                       {"chat"},
                                       {"profile"},
                                       {"cache"},
                                       {"cache", "ls"},
                                       {"cache", "show"},
                                       {"cache", "rm"},
                                       {"cache", "verify"},
                                       {"cache", "purge"},
                                       {"model"},
                                       {"model", "fetch"},
                                       {"model", "show"},
                                       {"model", "ls"},
                                       {"bench"},
                                       {"bench", "engine"},
                                       {"bench", "tiers"},
                                       {"bench", "kernels"},
                                       {"bench", "planner"},
                                       {"bench", "serve"},
                                       {"trace"},
                                       {"trace", "info"},
                                       {"trace", "make"},
                                       {"trace", "make", "documents"},
                                       {"trace", "make", "chats"},
                                       {"trace", "make", "agents"},
                                       {"trace", "make", "questions"}};
  for (Words words : commands) {
    words.push_back("--help");
    const Outcome help = run(words);
    EXPECT_EQ(help.status, 0) << words[0];
    EXPECT_THAT(help.out, HasSubstr("--help")) << words[0];
    EXPECT_THAT(help.out, HasSubstr("Usage:")) << words[0];
    EXPECT_EQ(help.err, "") << words[0];
  }
}

TEST_F(UsageTest, TheReferenceIsUpToDate) {
  const Outcome reference = run({"--reference"});
  EXPECT_EQ(reference.status, 0);
  const auto kept = std::filesystem::path(__FILE__).parent_path().parent_path().parent_path() / "docs/reference/cli.md";
  EXPECT_EQ(reference.out, read(kept)) << "run: shale --reference > docs/reference/cli.md";
  EXPECT_THAT(reference.out, Not(HasSubstr(" \n\n."))) << "a group of options is no command";
}

// `shale` has bench, simulate and trace by name alone; `shale-lab` has them, and lies beside it.
TEST_F(UsageTest, TheProgramThatServesHasTheCommandsOfTheOtherByName) {
  const auto output_of = [&](const std::string& command) {
    const auto out = home_.path() / "output";
    EXPECT_EQ(std::system((command + " > " + out.string() + " 2>&1").c_str()) == 0, command.ends_with("help"));
    return read(out);
  };
  EXPECT_EQ(output_of(SHALE_PROGRAM " --help"), output_of(SHALE_PROGRAM "-lab --help"));
  EXPECT_THAT(output_of(SHALE_PROGRAM " --config " + file("c.toml", "[bench.serve]\nrate = \"1x\"\n").string() +
                        " model ls --help"),
              HasSubstr("Usage: shale model ls"));

  const auto alone = home_.path() / "shale";
  std::filesystem::create_symlink(SHALE_PROGRAM, alone);
  EXPECT_THAT(output_of(alone.string() + " bench tiers --help"), HasSubstr("Usage: shale bench tiers"))
      << "a link is followed";
  std::filesystem::remove(alone);
  std::filesystem::copy_file(SHALE_PROGRAM, alone);
  EXPECT_THAT(output_of(alone.string() + " --json trace info"), HasSubstr("shale-lab is not there"));
}

TEST_F(UsageTest, SaysWhatWasMeant) {
  EXPECT_THAT(run({"generat"}).err, HasSubstr("(did you mean 'generate'?)"));
  EXPECT_THAT(run({"cache", "lss"}).err, HasSubstr("(did you mean 'ls'?)"));
  EXPECT_THAT(run({"model", "ls", "--jsn"}).err, HasSubstr("(did you mean '--json'?)"));
  EXPECT_THAT(run({"xylophone"}).err, Not(HasSubstr("did you mean")));
  environment_["SHALE_REDIS_PASSWORD"] = environment_["SHALE_DEPS_DIR"] = "read elsewhere";
  EXPECT_EQ(run({"model", "ls"}).err, "");
  environment_["SHALE_MODLE"] = "x";
  const Outcome models = run({"model", "ls"});
  EXPECT_EQ(models.status, 0);
  EXPECT_THAT(models.err, HasSubstr("SHALE_MODLE (did you mean SHALE_MODEL?)"));
}

TEST_F(UsageTest, AnOldNameIsAnErrorThatTellsTheNewOne) {
  const std::vector<Words> commands = {{"serve"}, {"chat"}, {"generate", "--prompt", "x"}, {"simulate", "tiers"}};
  for (const auto& [old_name, new_name] : renamed_options()) {
    const std::string given = "--" + std::string(old_name), now = fmt::format("(it is called '--{}' now)", new_name);
    std::size_t told = 0;
    for (Words words : commands) {
      if (words.back() != "tiers" && old_name == "remote") continue;  // a folder there
      words.push_back(given + "=1");
      const Outcome outcome = run(words);
      EXPECT_EQ(outcome.status, 2) << given;
      told += outcome.err.find(now) != std::string::npos;
    }
    EXPECT_GE(told, 1u) << given;
  }
}

TEST_F(UsageTest, AnOldNameInTheConfigurationOrTheEnvironmentTellsTheNewOne) {
  const Outcome file_of_old =
      run({"cache", "ls", "--config", file("config.toml", "[serve]\nmax-tokens = 3\nqueue = 3\n")});
  EXPECT_EQ(file_of_old.status, 2);
  EXPECT_THAT(file_of_old.err, HasSubstr("it is called 'max-queue' now"));
  environment_["SHALE_PAGE_TOKENS"] = "32";
  const Outcome models = run({"model", "ls"});
  EXPECT_EQ(models.status, 0);
  EXPECT_THAT(models.err, HasSubstr("SHALE_PAGE_TOKENS (it is called SHALE_BLOCK_SIZE now)"));
}

TEST_F(UsageTest, AnAnswerThatCannotBeWrittenIsAFailure) {
  const std::string command =
      std::string(SHALE_PROGRAM) + " model ls > /dev/full 2> " + (home_.path() / "err").string();
  const int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_THAT(read(home_.path() / "err"), HasSubstr("standard output"));
}

TEST_F(UsageTest, WrongUsageIsOneLineAndStatusTwo) {
  const auto text = file("text.txt", "Some text.");
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"frobnicate"}, "frobnicate"},
      {{"cache"}, "subcommand"},
      {{"model", "ls", "cache", "ls"}, "not expected"},
      {{"cache", "ls", "bench", "--anything"}, "bench"},
      {{"generate", "--prompt", "Explain", "demo"}, "demo"},
      {{"simulate", "tiers", "--trace", text, "fleet"}, "fleet"},
      {{"generate"}, "--prompt"},
      {{"generate", "--prompt", "x", "--bogus"}, "--bogus"},
      {{"generate", "--prompt", "x", "--threads", "many"}, "--threads"},
      {{"generate", "--prompt", "x", "--pool", "2 parsecs"}, "--pool"},
      {{"generate", "--prompt", "x", "--planner", "oracle"}, "oracle"},
      {{"generate", "--prompt", "x", "--prefix-eviction", "belady"}, "hazard"},
      {{"generate", "--prompt", "x", "--prefix-cache", "perhaps"}, "perhaps"},
      {{"generate", "--prompt", "x", "--method", "magic"}, "magic"},
      {{"generate", "--prompt", "x", "--methods", "int8,magic"}, "magic"},
      {{"generate", "--prompt", "x", "--method", "knorm", "--keep", "0.3"}, "0.3"},
      {{"generate", "--prompt", "x", "--keep", "0.5"}, "--method"},
      {{"generate", "--prompt", "x", "--exact", "--method", "int8"}, "--exact"},
      {{"generate", "--prompt", "x", "--throttle-disk", "warp"}, "warp"},
      {{"generate", "--prompt", "x", "--throttle-disk", "1MB/s,soon"}, "soon"},
      {{"generate", "--prompt", "-", "--context", "-"}, "standard input"},
      {{"generate", "--prompt", ""}, "prompt is empty"},
      {{"compress", "--context", "/nowhere.txt", "--budget", "20%"}, "--budget: '20%' is neither a share"},
      {{"compress", "--context", "/nowhere.txt", "--budget", "1.5"}, "--budget: '1.5'"},
      {{"compress", "--context", "/nowhere.txt", "--budget", "0"}, "--budget: '0'"},
      {{"cache", "ls", "--tiers", "ftp://host"}, "dir:///folder"},
      {{"cache", "ls", "--tiers", "memory:?size=1GB,dir:/x?speed=3"}, "speed"},
      {{"cache", "ls", "--tiers", "dir:/nowhere", "--disk-size", "0"}, "leave --disk-size out"},
      {{"cache", "ls", "--cache-dir", "kv", "--remote", "./kv/"}, "two tiers lie in"},
      {{"cache", "ls", "--remote-size", "1GiB"}, "--remote-size does nothing without --remote FOLDER"},
      {{"generate", "--prompt", "x", "--throttle-remote", "s3-far"},
       "--throttle-remote does nothing without --remote FOLDER"},
      {{"generate", "--prompt", "x", "--disk-size", "0", "--throttle-disk", "hdd"}, "does nothing with --disk-size 0"},
      {{"trace", "info"}, "FILE"},
      {{"trace", "make", "chats"}, "--out"},
      {{"trace", "make", "chats", "--out", "-", "--arrivals", "never"}, "never"},
      {{"--config", "/nowhere/config.toml", "cache", "ls"}, "/nowhere/config.toml"},
  };
  for (const auto& [words, expected] : cases) {
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.status, 2) << words.back() << ": " << outcome.err;
    EXPECT_TRUE(outcome.err.starts_with("shale: ")) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(expected));
    EXPECT_EQ(outcome.out, "") << words.back();
  }
}

// Wherever a number enters. CLI11 alone takes nan and wraps what is negative or too large.
TEST_F(UsageTest, NumbersThatAreNoneAreRefused) {
  const std::vector<std::pair<std::string, std::string>> options = {
      {"serve", "alpha"},        {"serve", "grace"}, {"serve", "reuse-weight"}, {"serve", "quality-floor"},
      {"serve", "max-num-seqs"}, {"serve", "port"},  {"serve", "memory-size"},  {"serve", "threads"},
      {"chat", "seed"},          {"chat", "top-p"},  {"chat", "top-k"},         {"chat", "temperature"},
      {"chat", "pool"},          {"chat", "min-p"},  {"chat", "max-tokens"}};
  for (const auto& [command, option] : options) {
    for (const char* value : {"nan", "-nan", "-inf", "-1", "1e999", "99999999999999999999", "0x"}) {
      const Outcome outcome = run({command, "--" + option + "=" + value});
      EXPECT_EQ(outcome.status, 2) << option << "=" << value;
      EXPECT_THAT(outcome.err, HasSubstr("--" + option)) << value;
      EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    }
  }
  for (const char* throttle : {"0MB/s,1ms", "nanMB/s,1ms", "inf,1ms", "1MB/s,nan", "1MB/s,-1ms", "-1MB/s,1ms"}) {
    EXPECT_EQ(run({"chat", "--throttle-disk", throttle}).status, 2) << throttle;
    EXPECT_EQ(run({"chat", "--tiers", std::string("memory:?size=1MB&throttle=") + throttle}).status, 2);
  }
  for (const char* size : {"nan", "inf", "-1", "1e99GB", ""}) {
    EXPECT_EQ(run({"chat", "--tiers", std::string("memory:?size=") + size}).status, 2) << size;
  }
  EXPECT_EQ(run({"serve", "--config", file("config.toml", "[serve]\nalpha = nan\n")}).status, 2);
  environment_["SHALE_ALPHA"] = "nan";
  const Outcome outcome = run({"serve"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--alpha"));
}

TEST_F(UsageTest, FailuresSayWhatIsWrong) {
  const auto empty = file("empty.txt", ""), binary = file("binary.txt", "text\xff\xfe");
  const std::vector<std::tuple<Words, int, std::string>> cases = {
      {{"generate", "--prompt", "x", "--context", "/nowhere.txt"}, 1, "/nowhere.txt"},
      {{"generate", "--prompt", "x", "--context", home_.path()}, 2, "folder"},
      {{"generate", "--prompt", "x", "--context", empty}, 2, "empty"},
      {{"generate", "--prompt", "x", "--context", binary}, 2, "byte 4"},
      {{"generate", "--prompt", "x", "--model", "gpt-17"}, 1, "smollm2-135m"},
      {{"generate", "--prompt", "x", "--model", binary}, 1, "binary.txt"},
      {{"cache", "rm", "0123456789"}, 1, "0123456789"},
      {{"model", "fetch", "gpt-17"}, 1, "gpt-17"},
      {{"bench", "engine", "--tiny", "--peer", home_.path(), "--model", binary}, 1, "binary.txt"},
  };
  for (const auto& [words, status, expected] : cases) {
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.status, status) << outcome.err;
    EXPECT_TRUE(outcome.err.starts_with("shale: ")) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(expected));
  }
}

// A downloader that never ends stands in for pip.
TEST_F(UsageTest, AFetchThatIsStoppedLeavesNothing) {
  file("fake/pip.py", "import time\ntime.sleep(600)\n");
  const auto models = home_.path() / "models";
  std::filesystem::create_directories(models);
  environment_["PYTHONPATH"] = home_.path() / "fake";
  environment_["SHALE_MODEL_DIR"] = models;
  const pid_t fetching = start({"model", "fetch", "smollm2-135m"});
  ASSERT_TRUE(eventually_beside_others([&] { return !std::filesystem::is_empty(models); }));
  kill(fetching, SIGINT);
  EXPECT_EQ(finish(fetching).status, 130);
  EXPECT_TRUE(std::filesystem::is_empty(models));
}

}  // namespace
}  // namespace shale::testing
