// Where options come from: the command line, the environment, and the configuration file.
#include <gmock/gmock.h>

#include "cli/shale_program.h"

namespace shale::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ConfigurationTest : public ShaleProgram {};
class OptionSourcesTest : public TinyProgram {};

TEST_F(ConfigurationTest, AnUnknownKeyIsAnError) {
  for (const char* text : {"colour = \"red\"\n", "[generate]\ncolour = \"red\"\n", "[paint]\nmodel = \"x\"\n"}) {
    const auto config = file("config.toml", text);
    const Outcome outcome = run({"cache", "ls", "--config", config});
    EXPECT_EQ(outcome.status, 2) << text;
    EXPECT_THAT(outcome.err, HasSubstr("configuration")) << text;
  }
}

TEST_F(ConfigurationTest, ABadValueIsAnError) {
  const Outcome outcome = run({"cache", "ls", "--config", file("config.toml", "disk-size = \"huge\"\n")});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--disk-size"));
}

TEST_F(ConfigurationTest, OneThatCannotBeReadIsAnError) {
  const Outcome empty = run({"model", "ls", "--config", file("empty.toml", "")});
  EXPECT_EQ(empty.status, 0) << empty.err;
  std::filesystem::create_directories(home_.path() / ".config/shale/config.toml");
  EXPECT_EQ(run({"model", "ls"}).status, 2) << "a folder lies where it is looked for";
  for (const std::string& named : {std::string("/nowhere/config.toml"), home_.path().string()}) {
    environment_["SHALE_CONFIG"] = named;
    const Outcome outcome = run({"model", "ls"});
    EXPECT_EQ(outcome.status, 2) << named;
    EXPECT_THAT(outcome.err, HasSubstr(named));
    EXPECT_EQ(outcome.out, "");
  }
  const Outcome help = run({"--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_THAT(help.out, Not(HasSubstr("required")));
  environment_["SHALE_CONFIG"] = home_.path() / "empty.toml";
  EXPECT_EQ(run({"model", "ls"}).status, 0);
  EXPECT_EQ(run({"model", "ls", "--config", "/dev/null"}).status, 0);
}

// What is wrong with a model's name repeats it.
TEST_F(ConfigurationTest, StringsAreReadAsTomlHasThem) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("gpt #17")", "gpt #17"},
      {R"('gpt #17\n' # a comment)", R"(gpt #17\n)"},
      {R"("gpt\u002d\"17\"")", "gpt-\"17\""},
      {R"("""gpt, 17""")", "gpt, 17"},
  };
  for (const auto& [value, model] : cases) {
    const auto config = file("config.toml", "model = " + value + "\n");
    const Outcome outcome = run({"generate", "--prompt", "x", "--config", config});
    EXPECT_EQ(outcome.status, 1) << value;
    EXPECT_THAT(outcome.err, HasSubstr(model)) << value;
  }
}

TEST_F(ConfigurationTest, AListMayHaveCommentsBetweenItsLines) {
  const auto near = home_.path() / "near", far = home_.path() / "far";
  std::filesystem::create_directories(near);
  std::filesystem::create_directories(far);
  const auto config = file("config.toml", "tiers = [  # fast to slow\n  \"memory:?size=1MiB\",\n  \"dir://" +
                                              near.string() + "?name=near\",  # in the room\n  \"dir://" +
                                              far.string() + "?name=far\",\n]  # of four\n[cache]\njson = false\n");
  const Outcome listed = run({"cache", "ls", "--config", config});
  EXPECT_EQ(listed.status, 0) << listed.err;
  EXPECT_THAT(listed.out, HasSubstr(near.string()));
  EXPECT_THAT(listed.out, HasSubstr(far.string()));
}

TEST_F(ConfigurationTest, WhatIsNoTomlOrNoValueOfAnOptionIsRefusedByItsPlace) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"model = \"x\"\npool = 1GiB\n", "line 2, column"},
      {"model = \"x\n", "line 1, column"},
      {"\n[cache\n", "line 2, column"},
      {"pool = \"1GiB\"\npool = \"2GiB\"\n", "line 2, column"},
      {"\n\nmodel = 2026-01-01\n", "line 3, column 9"},
      {"[[generate]]\nmodel = \"x\"\n", "line 1, column"},
      {"\n  colour = \"red\"\n", "line 2, column 3"},
  };
  for (const auto& [text, place] : cases) {
    const Outcome outcome = run({"model", "ls", "--config", file("config.toml", text)});
    EXPECT_EQ(outcome.status, 2) << text;
    EXPECT_THAT(outcome.err, HasSubstr("configuration, " + place)) << text;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }
}

// How many tokens were generated tells which source won.
TEST_F(OptionSourcesTest, CommandLineBeatsEnvironmentBeatsConfiguration) {
  const auto tokens = [&](const Words& more) {
    const Outcome outcome = run(generate(more));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.object()["completion_tokens"].get<int>();
  };
  environment_.erase("SHALE_MAX_TOKENS");
  file(".config/shale/config.toml", "max-tokens = 3\ntemperature = 0.0\n");
  EXPECT_EQ(tokens({}), 3);
  environment_["SHALE_MAX_TOKENS"] = "4";
  EXPECT_EQ(tokens({}), 4);
  EXPECT_EQ(tokens({"--max-tokens", "5"}), 5);

  environment_.erase("SHALE_MAX_TOKENS");
  const auto other = file("other.toml", "max-tokens = 6\n[generate]\nstop = [\"zzz\"]\n[chat]\nmax-tokens = 9\n");
  EXPECT_EQ(tokens({"--config", other}), 6);
  environment_["SHALE_CONFIG"] = other;
  EXPECT_EQ(tokens({}), 6);
}

TEST_F(OptionSourcesTest, ASectionHoldsForItsCommandAlone) {
  environment_.erase("SHALE_MAX_TOKENS");
  file(".config/shale/config.toml", "[chat]\nmax-tokens = 2\n[generate]\nmax-tokens = 3\n");
  EXPECT_EQ(run(generate()).object()["completion_tokens"], 3);
  const auto turns = run({"chat", "--json"}, "Hello.\n").objects();
  ASSERT_EQ(turns.size(), 1u);
  EXPECT_EQ(turns[0]["completion_tokens"], 2);
}

TEST_F(OptionSourcesTest, ASectionBeatsAKeyAtTheTop) {
  environment_.erase("SHALE_MAX_TOKENS");
  file(".config/shale/config.toml", "max-tokens = 6\n[chat]\nmax-tokens = 2\n");
  EXPECT_EQ(run(generate()).object()["completion_tokens"], 6);
  const auto turns = run({"chat", "--json"}, "Hello.\n").objects();
  ASSERT_EQ(turns.size(), 1u);
  EXPECT_EQ(turns[0]["completion_tokens"], 2);
}

TEST_F(ConfigurationTest, ACommandsSectionBeatsItsGroups) {
  const auto config = file("config.toml", "[cache]\njson = true\n[cache.verify]\njson = false\n");
  EXPECT_THAT(run({"cache", "verify", "--config", config}).out, HasSubstr("sound"));
}

// They write, count or simulate what others read, hold and serve by.
TEST_F(OptionSourcesTest, AKeyAtTheTopLeavesOptionsThatOnlyShareItsNameAlone) {
  const auto tables = file("my.tables", "x"), trace = file("a.jsonl", R"({"timestamp": 0, "hash_ids": [1, 2], )"
                                                                      R"("input_length": 1024, "output_length": 1})");
  file(".config/shale/config.toml", "cachegen-tables = \"" + tables.string() +
                                        "\"\npool = \"1GiB\"\nthreads = 96\nfaults = \"/etc/faults\"\n" +
                                        "[calibrate]\nthreads = 1\n");
  const Outcome calibrated = run({"calibrate", "--text", context_, "--output", home_.path() / "tiny.calibration"});
  EXPECT_EQ(calibrated.status, 0) << calibrated.err;
  EXPECT_EQ(read(tables), "x");
  for (const Words& words : {Words{"simulate", "tiers", "--trace", trace}, {"trace", "info", trace}}) {
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
  }
}

TEST_F(ConfigurationTest, ASectionReachesWhatOnlySharesAName) {
  const auto config = file("config.toml", "[simulate.tiers]\npool = \"1GiB\"\n");
  const Outcome outcome = run({"simulate", "tiers", "--trace", file("a.jsonl", ""), "--config", config});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--max-num-seqs"));
}

TEST_F(ConfigurationTest, AKeyOfTheLaboratoryAtTheTopIsAnErrorInBothPrograms) {
  const auto config = file("config.toml", "rounds = 2\n");
  for (const Words& words : {Words{"model", "ls"}, {"bench", "hazard", "--tiny"}}) {
    Words all = words;
    all.insert(all.end(), {"--config", config});
    const Outcome outcome = run(all);
    EXPECT_EQ(outcome.status, 2) << words[0];
    EXPECT_THAT(outcome.err, HasSubstr("'rounds'")) << words[0];
  }
}

TEST_F(OptionSourcesTest, ASystemMessageIsTheSameFromTheFile) {
  const auto prompt_tokens = [&](const Words& more) {
    const Outcome outcome = run(generate(more));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.object()["prompt_tokens"];
  };
  const auto config = file("config.toml", "[generate]\nsystem = \"Answer on C# only.\\n\\tBriefly, please.\"\n");
  EXPECT_EQ(prompt_tokens({"--config", config}), prompt_tokens({"--system", "Answer on C# only.\n\tBriefly, please."}));
}

}  // namespace
}  // namespace shale::testing
