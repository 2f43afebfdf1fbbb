// What a token comes out as depends on the tokens before it and on nothing else.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "support/gguf_writer.h"
#include "support/model_runner.h"
#include "support/run_types.h"
#include "support/temporary_folder.h"

namespace shale {
namespace {

using testing::ModelRunner;
using testing::random_tokens;
using Role = StepSequence::Role;

constexpr std::uint32_t kLayers = 6;           // of a real model: every kind of tensor that it has
constexpr std::uint32_t kAnswersTogether = 8;  // that run in weights of their own where they need not

struct Case {
  const char* model;  // tiny of an architecture, or a real one's name
  RunType type;
};

std::string name_of(const ::testing::TestParamInfo<Case>& each) {
  std::string name = fmt::format("{}_{}", each.param.model, to_string(each.param.type));
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

class ReproducibleTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const std::string name = GetParam().model;
    path_ = folder_.path() / "tiny.gguf";
    if (name.find('-') == std::string::npos) {
      testing::write_tiny_model({.architecture = name}, path_);
    } else {
      const auto whole = testing::real_model(name);
      if (whole.empty()) GTEST_SKIP() << "no " << name << ".gguf below SHALE_MODEL_DIR";
      path_ = folder_.path() / "first_layers.gguf";
      testing::write_layers(whole, kLayers, path_, testing::write_as_it_is);
    }
  }

  // Everything runs in the one type; or prompts do in BF16 and answers in it, which is then the other of both.
  std::unique_ptr<ModelRunner> runner(std::uint32_t threads, bool apart = false) {
    const RunType type = GetParam().type;
    const RunType of_prompts = !apart ? type : type == RunType::kBf16 ? RunType::kBf16Packed : RunType::kBf16;
    const ModelOptions options =
        testing::running_in(of_prompts, type, apart ? kAnswersTogether : 0, path_, folder_.path() / "choices", threads);
    auto made = std::make_unique<ModelRunner>(path_, options);
    const ModelInfo& info = made->model().info();
    EXPECT_TRUE(info.reproducible);
    EXPECT_EQ(made->model().answers_apart(), apart);
    EXPECT_TRUE(info.decode_weights.starts_with(type == RunType::kFile ? "" : to_string(type))) << info.decode_weights;
    return made;
  }

  struct Outcome {
    std::vector<std::byte> pages;
    std::vector<float> logits;  // of the last token of every step
    bool operator==(const Outcome&) const = default;
  };

  // What lies behind windows leaves the sequence's tables.
  static void forget_unseen(Sequence& sequence, const ModelInfo& info) {
    sequence.part();
    const PageShape& shape = sequence.pool().shape();
    std::vector<std::vector<std::uint32_t>> behind(shape.pages_per_block());
    for (std::uint32_t i = 0; i < behind.size(); ++i) {
      const std::uint32_t layer = i / shape.kv_heads, head = i % shape.kv_heads, window = info.windows[layer];
      const auto positions = sequence.positions(layer, head);
      for_each_token(sequence.table(layer, head).pages, shape.block_size, [&](std::uint32_t slot) {
        if (window > 0 && positions[slot] + window <= sequence.length()) behind[i].push_back(slot);
      });
    }
    sequence.drop(behind, false);
  }

  // Steps of at most so many tokens at random, beside as many steps of others as `beside`.
  Outcome run(ModelRunner& runner, std::span<const Token> tokens, std::uint32_t chunk_max, std::uint32_t beside,
              std::uint32_t seed, bool forgets = false, Role role = Role::kPrompt) {
    std::mt19937 random(seed);
    Sequence sequence = runner.sequence();
    std::vector<Sequence> others;
    for (std::uint32_t i = 0; i < beside; ++i) others.push_back(runner.sequence());
    Outcome outcome;
    for (std::size_t done = 0; done < tokens.size();) {
      const std::uint32_t vocabulary = runner.model().info().vocabulary;
      const std::size_t few = 1 + random() % chunk_max;
      const auto part = tokens.subspan(done, std::min({few, tokens.size() - done, std::size_t{512 - beside * 9}}));
      done += part.size();
      sequence.append(static_cast<std::uint32_t>(part.size())).value();
      std::vector<std::vector<Token>> theirs;
      for (Sequence& other : others) {
        theirs.push_back(random_tokens(1 + random() % 9, vocabulary, static_cast<std::uint32_t>(random())));
        if (other.length() > 300) other.clear();
        other.append(static_cast<std::uint32_t>(theirs.back().size())).value();
      }
      std::vector<StepSequence> batch;
      for (std::size_t i = 0; i < others.size(); ++i) {
        batch.push_back({.sequence = &others[i],
                         .tokens = theirs[i],
                         .logits_none = done < tokens.size(),
                         .role = i % 2 == 0 ? role : Role::kEither});
      }
      const std::size_t row = random() % (batch.size() + 1);
      batch.insert(batch.begin() + static_cast<std::ptrdiff_t>(row),
                   {.sequence = &sequence, .tokens = part, .logits_none = done < tokens.size(), .role = role});
      const auto logits = runner.model().step(batch).value();
      if (forgets) forget_unseen(sequence, runner.model().info());
      if (done == tokens.size()) {
        const auto ours = logits.subspan(row * vocabulary, vocabulary);
        outcome.logits.assign(ours.begin(), ours.end());
      }
    }
    const PageShape& shape = runner.pool().shape();
    for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
      for (std::uint32_t head = 0; head < shape.kv_heads; ++head) {
        for (const PageSlot slot : sequence.table(layer, head).pages) {
          if (slot.count < shape.block_size) continue;  // the rest of it is undefined
          const auto bytes = runner.pool().host_view().bytes(slot.page);
          outcome.pages.insert(outcome.pages.end(), bytes.begin(), bytes.end());
        }
      }
    }
    return outcome;
  }

  testing::TemporaryFolder folder_;
  std::filesystem::path path_;
};

TEST_P(ReproducibleTest, HoweverItIsCutAndWhateverIsBesideIt) {
  const bool tiny = folder_.path() / "tiny.gguf" == path_;
  const std::size_t count = tiny ? 1300 : 160;
  Outcome whole;
  for (const std::uint32_t threads : {1u, 2u}) {
    const auto model = runner(threads);
    const auto tokens = random_tokens(count, model->model().info().vocabulary, 7);
    if (threads == 1) whole = run(*model, tokens, 512, 0, 1);
    EXPECT_TRUE(run(*model, tokens, 200, 0, 2) == whole) << threads;
    EXPECT_TRUE(run(*model, tokens, 70, 3, 3) == whole) << threads;
    EXPECT_TRUE(run(*model, tokens, 5, 2, 4) == whole) << threads;
    if (tiny) {
      EXPECT_TRUE(run(*model, tokens, 1, 0, 5) == whole) << threads;
      EXPECT_TRUE(run(*model, tokens, 100, 1, 6, true).logits == whole.logits) << threads;
    }
  }
}

TEST_P(ReproducibleTest, AnswersInWeightsOfTheirOwn) {
  const std::size_t count = folder_.path() / "tiny.gguf" == path_ ? 400 : 24;
  Outcome whole;
  for (const std::uint32_t threads : {1u, 2u}) {
    const auto model = runner(threads, true);
    const auto tokens = random_tokens(count, model->model().info().vocabulary, 7);
    const auto answer = [&](std::uint32_t chunk_max, std::uint32_t beside, std::uint32_t seed) {
      return run(*model, tokens, chunk_max, beside, seed, false, Role::kAnswer);
    };
    if (threads == 1) whole = answer(1, 0, 1);
    EXPECT_TRUE(answer(1, 3, 2) == whole) << threads;
    EXPECT_TRUE(answer(50, 0, 3) == whole) << threads;
    EXPECT_TRUE(answer(60, 2, 4) == whole) << threads;
    EXPECT_FALSE(run(*model, tokens, 60, 2, 4) == whole) << "as a prompt";

    Sequence prompt = model->sequence(), other = model->sequence();
    prompt.append(1).value();
    other.append(1).value();
    const StepSequence both[] = {{.sequence = &prompt, .tokens = std::span(tokens).first(1)},
                                 {.sequence = &other, .tokens = std::span(tokens).first(1), .role = Role::kAnswer}};
    EXPECT_EQ(model->model().step(both).error().code, ErrorCode::kInvalidArgument);
  }
}

std::vector<Case> cases() {
  std::vector<Case> each;
  for (const char* model : {"llama", "gemma3", "qwen2", "smollm2-135m"}) {
    for (const RunType type : {RunType::kFile, RunType::kBf16, RunType::kBf16Packed, RunType::kQ8}) {
      if (type == RunType::kQ8 && std::strchr(model, '-') == nullptr) continue;  // these files are not quantized
      each.push_back({model, type});
    }
  }
  return each;
}

INSTANTIATE_TEST_SUITE_P(Weights, ReproducibleTest, ::testing::ValuesIn(cases()), name_of);

}  // namespace
}  // namespace shale
