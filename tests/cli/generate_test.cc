// `shale generate` and `shale chat`: answers, and what they say about where the cache came from.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>

#include "cli/shale_program.h"
#include "runtime/model_registry.h"
#include "support/eventually.h"

namespace shale::testing {
namespace {

using ::testing::HasSubstr;

class GenerateTest : public TinyProgram {};
class ChatTest : public TinyProgram {};

TEST_F(GenerateTest, TakesTiersByUrl) {
  const std::string near = "file://" + (home_.path() / "near").string() + "?size=64MiB&name=near";
  const auto cached = [&] {
    return run(generate({"--tiers", "memory:?size=64MiB," + near})).object()["cached_tokens"];
  };
  EXPECT_EQ(cached(), (nlohmann::json{{"pool", 0}, {"memory", 0}, {"near", 0}}));
  EXPECT_GT(cached()["near"], std::filesystem::file_size(context_));
  EXPECT_TRUE(std::filesystem::exists(home_.path() / "near" / "catalogue.sqlite"));
  EXPECT_FALSE(std::filesystem::exists(kv()));

  const auto config = file("config.toml", "tiers = [\"memory:?size=1MiB\", \"" + near + "\"]\n");
  const Outcome listed = run({"cache", "ls", "--json", "--config", config});
  ASSERT_FALSE(listed.objects().empty()) << listed.err;
  EXPECT_EQ(listed.objects()[0]["tier"], "near");
}

TEST_F(GenerateTest, ReportsEveryField) {
  const Outcome outcome = run(generate());
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto answer = outcome.object();
  ASSERT_TRUE(answer.is_object()) << outcome.out;
  EXPECT_TRUE(answer["text"].is_string());
  EXPECT_EQ(answer["tokens"].size(), answer["completion_tokens"]);
  EXPECT_GT(answer["prompt_tokens"], std::filesystem::file_size(context_));  // a token a byte, and the template
  EXPECT_EQ(answer["cached_tokens"], (nlohmann::json{{"pool", 0}, {"memory", 0}, {"disk", 0}}));
  EXPECT_EQ(answer["lossy"], false);
  EXPECT_GT(answer["ttft_seconds"], 0);
  EXPECT_GT(answer["tpot_seconds"], 0);
  EXPECT_THAT(answer["stop_reason"].get<std::string>(), ::testing::AnyOf("length", "end_of_turn"));
  EXPECT_TRUE(answer["sources"].is_array());
  EXPECT_TRUE(answer["weights"]["prefill"].is_string());
}

// Room for a few kilobytes a file: not for a metadata store, nor for anything stored.
TEST_F(GenerateTest, AFullDiskCostsNoAnswer) {
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit limit = {16 << 10, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  const pid_t pid = start(generate());
  setrlimit(RLIMIT_FSIZE, &before);
  const Outcome full = finish(pid);
  EXPECT_EQ(full.status, 0) << full.err;
  EXPECT_THAT(full.err, HasSubstr("what is measured is kept in memory until it can be written"));
  const Outcome after = run(generate());
  EXPECT_EQ(after.status, 0) << after.err;
  EXPECT_EQ(after.object()["tokens"], full.object()["tokens"]);
  EXPECT_GT(run(generate()).object()["cached_tokens"]["disk"], 0);
}

// Two measurements of about equally fast types name different ones.
TEST_F(GenerateTest, MachinesThatShareATierRunTheTypesThatItsFirstUserMeasured) {
  environment_.erase("SHALE_WEIGHTS");
  const auto on_machine = [&](const std::string& name, const Words& more) {
    environment_["XDG_CACHE_HOME"] = home_.path() / name;
    const Outcome outcome = run(generate(more));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome;
  };
  const auto measured = [&](const std::string& name, const std::string& record) {
    on_machine(name, {"--tiers", "memory:?size=1MiB"});
    for (const auto& file : std::filesystem::directory_iterator(home_.path() / name / "shale/weights")) {
      std::ofstream(file.path()) << record;
    }
  };
  measured("a", "prefill bf16 2\ndecode bf16 2\nfrom 0\n");
  measured("b", "prefill file 1\ndecode file 1\nfrom 0\n");
  const Words shared = {"--tiers", "dir://" + (home_.path() / "shared").string() + "?name=shared"};
  const auto first = on_machine("a", shared).object();
  EXPECT_EQ(first["cached_tokens"]["shared"], 0);
  const auto second = on_machine("b", shared).object();
  EXPECT_GT(second["cached_tokens"]["shared"], std::filesystem::file_size(context_));
  EXPECT_EQ(second["tokens"], first["tokens"]);

  const auto none = file("not_a_folder", "");
  const Outcome alone = on_machine("b", {"--tiers", "dir://" + (none / "kv").string() + "?name=gone"});
  EXPECT_THAT(alone.err, HasSubstr("gone does not say which types its servers run weights in"));
}

TEST_F(GenerateTest, AFolderThatCannotBeMadeCostsNoAnswer) {
  const Outcome outcome = run(generate({"--cache-dir", context_.string() + "/below/a/file"}));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("tier disk: cannot create"));
  EXPECT_FALSE(outcome.object()["tokens"].empty());
}

TEST_F(GenerateTest, ASecondProcessFindsTheContextAndAnswersAlike) {
  const auto first = run(generate()).object();
  const auto second = run(generate()).object();
  EXPECT_EQ(second["tokens"], first["tokens"]);
  EXPECT_EQ(second["text"], first["text"]);
  EXPECT_GT(second["cached_tokens"]["disk"], std::filesystem::file_size(context_));
  EXPECT_EQ(second["lossy"], false);
  ASSERT_EQ(second["sources"].size(), 1u);
  EXPECT_EQ(second["sources"][0]["where"], "disk");
  EXPECT_EQ(second["sources"][0]["method"], "full");
  EXPECT_GT(second["sources"][0]["bytes"], 0);
}

TEST_F(GenerateTest, AnotherQuestionFindsTheSameContext) {
  ASSERT_EQ(run(generate()).status, 0);
  const auto other = run({"generate", "--context", context_, "--prompt", "Why?", "--json"}).object();
  EXPECT_GT(other["cached_tokens"]["disk"], 0);
}

TEST_F(GenerateTest, NoCacheLeavesNothingBehind) {
  const auto answer = run(generate({"--no-cache"})).object();
  EXPECT_FALSE(answer["cached_tokens"].contains("disk")) << "there is no tier";
  EXPECT_FALSE(std::filesystem::exists(kv()));
  EXPECT_EQ(run(generate()).object()["tokens"], answer["tokens"]);
}

TEST_F(GenerateTest, WithoutPrefixCachingNothingIsLookedUpOrLeftBehind) {
  const auto kept = run(generate()).object();
  const auto stored = std::distance(std::filesystem::recursive_directory_iterator(kv()), {});
  for (int process = 0; process < 2; ++process) {
    const auto answer = run(generate({"--prefix-cache", "off", "--prefix-eviction", "hazard"})).object();
    EXPECT_EQ(answer["tokens"], kept["tokens"]);
    for (const auto& [source, tokens] : answer["cached_tokens"].items()) EXPECT_EQ(tokens, 0) << source;
  }
  EXPECT_EQ(std::distance(std::filesystem::recursive_directory_iterator(kv()), {}), stored);
  EXPECT_THAT(run(generate({"--prefix-cache", "off", "--method", "int8"})).err, HasSubstr("prefix caching is off"));
}

TEST_F(GenerateTest, ANamedMethodIsLossyAndExactIsNot) {
  const auto exact = run(generate()).object();
  for (int process = 0; process < 2; ++process) {
    const auto lossy = run(generate({"--method", "knorm+int8", "--keep", "0.5"})).object();
    EXPECT_EQ(lossy["lossy"], true) << "process " << process;
  }
  EXPECT_EQ(run(generate({"--kv-cache-dtype", "int8"})).object()["lossy"], true);
  EXPECT_THAT(run(generate({"--kv-cache-dtype", "int8", "--exact"})).err, HasSubstr("start with fp16 pages"));
  EXPECT_THAT(run(generate({"--kv-budget", "64", "--exact"})).err, HasSubstr("ask for one of them"));
  EXPECT_THAT(run({"generate", "--prompt", "hi", "--method", "knorm"}).err, HasSubstr("--context"));
  const auto demanded = run(generate({"--exact"})).object();
  EXPECT_EQ(demanded["lossy"], false);
  EXPECT_EQ(demanded["tokens"], exact["tokens"]);
}

TEST_F(GenerateTest, WritesTextToStdoutAndASummaryToStderr) {
  const Outcome outcome = run({"generate", "--context", context_, "--prompt", "What is it?"});
  EXPECT_GT(outcome.out.size(), 1u);
  EXPECT_EQ(outcome.out.back(), '\n');
  EXPECT_THAT(outcome.err, HasSubstr("computed; first token"));
}

TEST_F(GenerateTest, ReadsThePromptFromStandardInput) {
  const auto piped = run({"generate", "--context", context_, "--prompt", "-", "--json"}, "What is it?").object();
  EXPECT_EQ(piped["tokens"], run(generate()).object()["tokens"]);
}

TEST_F(GenerateTest, ASeedRepeatsAnAnswer) {
  const auto draw = [&](const char* seed) {
    return run(generate({"--temperature", "1", "--top-k", "50", "--seed", seed})).object()["tokens"];
  };
  const auto one = draw("1");
  EXPECT_EQ(draw("1"), one);
  EXPECT_NE(draw("2"), one);
}

TEST_F(GenerateTest, RefusesAContextThatDoesNotFit) {
  const auto large = file("large.txt", std::string(4096, 'a'));
  const Outcome outcome = run({"generate", "--context", large, "--prompt", "x"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("2048"));
  const Outcome cramped = run(generate({"--pool", "64KiB"}));
  EXPECT_EQ(cramped.status, 1);
  EXPECT_THAT(cramped.err, HasSubstr("pool"));
}

TEST_F(GenerateTest, AFlippedByteCostsItsChunkAndNotTheAnswer) {
  const auto first = run(generate()).object();
  flip_a_byte(stored_chunk());

  const auto second = run(generate()).object();
  EXPECT_EQ(second["tokens"], first["tokens"]);
  EXPECT_EQ(second["cached_tokens"]["disk"], 0);
  EXPECT_EQ(second["damaged_chunks"], 1);
  const auto third = run(generate()).object();  // stored anew
  EXPECT_EQ(third["tokens"], first["tokens"]);
  EXPECT_GT(third["cached_tokens"]["disk"], 0);
  EXPECT_EQ(run({"cache", "verify", "--json"}).object()["faults"].size(), 1u);
  EXPECT_EQ(run({"cache", "verify"}).status, 0);
  EXPECT_GT(run(generate()).object()["cached_tokens"]["disk"], 0);
}

TEST_F(GenerateTest, CtrlCStopsItAndLeavesTheFolderWhole) {
  ASSERT_EQ(run(generate()).status, 0);
  const pid_t pid = start({"generate", "--context", context_, "--prompt", "Go on and on.", "--max-tokens", "150"});
  EXPECT_TRUE(eventually_beside_others([&] { return std::filesystem::file_size(home_.path() / "stdout") > 0; }));
  kill(pid, SIGINT);  // it has begun to answer
  const Outcome outcome = finish(pid);
  EXPECT_EQ(outcome.status, 130) << outcome.err;
  const Outcome verified = run({"cache", "verify", "--json"});
  EXPECT_EQ(verified.status, 0) << verified.out;
  EXPECT_TRUE(verified.object()["faults"].empty());
  EXPECT_GT(run(generate()).object()["cached_tokens"]["disk"], 0);
}

// Killed between an object's chunks and its manifest, which are written one behind the other.
TEST_F(GenerateTest, AKilledProcessLeavesTheFolderWhole) {
  const auto slow = file("faults", "disk delay=0.1\n");
  const auto stored = [this](std::string_view name) {
    std::error_code error;
    std::filesystem::recursive_directory_iterator at(kv(), error), end;
    std::set<std::filesystem::path> files;
    for (; !error && at != end; at.increment(error)) {
      if (at->path().filename() == name) files.insert(at->path());
    }
    return files;
  };
  int rounds_while_writing = 0;
  for (int round = 0; round < 4; ++round) {
    const auto text = file("new.txt", std::string(600, static_cast<char>('a' + round)));
    const auto chunks = stored("00000000"), manifests = stored("manifest");
    const pid_t pid = start({"generate", "--context", text, "--prompt", "x", "--faults", slow});
    EXPECT_TRUE(eventually_beside_others([&] { return !std::ranges::includes(chunks, stored("00000000")); }));
    kill(pid, SIGKILL);
    const bool killed = finish(pid).status == -SIGKILL;  // it may have ended just before
    rounds_while_writing += killed && stored("manifest") == manifests ? 1 : 0;
    const Outcome verified = run({"cache", "verify"});
    EXPECT_EQ(verified.status, 0) << verified.out << verified.err;
  }
  EXPECT_GT(rounds_while_writing, 0);
}

TEST_F(ChatTest, ATurnFindsTheTurnsBeforeIt) {
  const auto turns = run({"chat", "--json"}, "Tell me of shale.\n\nAnd of slate?\n/quit\nnever read\n").objects();
  ASSERT_EQ(turns.size(), 2u);
  const int before = turns[0]["prompt_tokens"].get<int>() + turns[0]["completion_tokens"].get<int>();
  EXPECT_GE(turns[1]["cached_tokens"]["pool"].get<int>(), before - 1);
  EXPECT_GT(turns[1]["prompt_tokens"].get<int>(), before);
}

TEST_F(ChatTest, AnotherProcessFindsTheSameConversation) {
  const std::string words = "Of this: " + std::string(1000, 's') + "\nAnd of slate?\nAnd of chalk?\n";
  const auto first = run({"chat", "--json"}, words).objects();
  const auto second = run({"chat", "--json"}, words).objects();
  ASSERT_EQ(first.size(), 3u);
  ASSERT_EQ(second.size(), 3u);
  for (std::size_t turn = 0; turn < 3; ++turn) EXPECT_EQ(second[turn]["tokens"], first[turn]["tokens"]) << turn;
  EXPECT_GT(second[0]["cached_tokens"]["disk"], 0);
}

TEST_F(ChatTest, ARefusedMessageEndsNeitherTheChatNorWhatIsBeingStored) {
  const std::string too_long(5000, 'x');
  const std::string first = "Of this: " + std::string(1000, 's') + "\n";
  const Outcome outcome =
      run({"chat", "--json"}, first + too_long + "\nnot \xff text\nAnd of slate?\n" + too_long + "\n");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const auto turns = outcome.objects();
  ASSERT_EQ(turns.size(), 5u);
  EXPECT_THAT(turns[1]["error"].get<std::string>(), HasSubstr("2048"));
  EXPECT_THAT(turns[2]["error"].get<std::string>(), HasSubstr("UTF-8"));
  EXPECT_GT(turns[3]["cached_tokens"]["pool"], 1000);
  EXPECT_LT(turns[3]["prompt_tokens"], 2000) << "what was refused is no part of the conversation";
  EXPECT_TRUE(turns[4].contains("error"));
  EXPECT_GT(run({"chat", "--json"}, first).object()["cached_tokens"]["disk"], 1000) << "stored after the refusal";
}

TEST_F(ShaleProgram, TheDefaultModelAnswersFromDiskInASecondProcess) {
  // The program under test has another home folder.
  if (!std::getenv("SHALE_MODEL_DIR") || !resolve_model("smollm2-135m"))
    GTEST_SKIP() << "no smollm2-135m.gguf below SHALE_MODEL_DIR";
  std::string text;
  for (int i = 0; i < 30; ++i) text += "Shale number " + std::to_string(i) + " was laid down in still water. ";
  const Words words = {
      "generate",  "--context", file("context.txt", text), "--prompt", "Where was it laid down?", "--max-tokens", "8",
      "--weights", "file",      "--load-always",           "--json"};
  const Outcome outcome = run(words);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto first = outcome.object(), second = run(words).object();
  EXPECT_GT(second["cached_tokens"]["disk"], 300);
  EXPECT_EQ(second["tokens"], first["tokens"]);
  EXPECT_EQ(second["text"], first["text"]);
}

}  // namespace
}  // namespace shale::testing
