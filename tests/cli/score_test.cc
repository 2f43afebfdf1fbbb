// `shale score` through the program: numbers of the reference library, another file, and files that are wrong.
#include <ggml-cpp.h>
#include <gguf.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "cli/shale_program.h"
#include "scoring/scorer.h"
#include "support/test_data.h"

namespace shale::testing {
namespace {

using ::testing::HasSubstr;

struct Shape {
  std::uint32_t layers = 2, query_heads = 6, kv_heads = 3, tokens = 45, head_dim = 16;
};

class GgufReader {
 public:
  explicit GgufReader(const std::filesystem::path& path) {
    ggml_context* context = nullptr;
    gguf_.reset(gguf_init_from_file(path.c_str(), {.no_alloc = false, .ctx = &context}));
    context_.reset(context);
  }
  std::vector<float> tensor(const std::string& name) const {
    const ggml_tensor* tensor = gguf_ ? ggml_get_tensor(context_.get(), name.c_str()) : nullptr;
    if (!tensor) {
      ADD_FAILURE() << name << " is missing";
      return {};
    }
    const float* data = ggml_get_data_f32(tensor);
    return {data, data + ggml_nelements(tensor)};
  }
  std::int64_t tensors() const { return gguf_get_n_tensors(gguf_.get()); }

 private:
  gguf_context_ptr gguf_;
  ggml_context_ptr context_;
};

class Score : public ShaleProgram {
 protected:
  Outcome score(const std::string& method, const std::filesystem::path& input, Words more = {}) {
    Words words = {"score", "--method", method, "--input", input, "--output", output_};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }

  // Random queries, keys and values; `change` may spoil a tensor before it is added.
  std::filesystem::path made(const Shape& shape, const std::function<bool(ggml_tensor*)>& change = {}) {
    const gguf_context_ptr gguf(gguf_init_empty());
    const ggml_context_ptr context(ggml_init({.mem_size = 1 << 22, .mem_buffer = nullptr, .no_alloc = false}));
    std::mt19937 random(11);
    std::normal_distribution<float> normal;
    for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
      for (const char part : {'q', 'k', 'v'}) {
        ggml_tensor* tensor = ggml_new_tensor_3d(context.get(), GGML_TYPE_F32, shape.head_dim, shape.tokens,
                                                 part == 'q' ? shape.query_heads : shape.kv_heads);
        std::generate_n(ggml_get_data_f32(tensor), ggml_nelements(tensor), [&] { return normal(random); });
        ggml_set_name(tensor, ("l" + std::to_string(layer) + "." + part).c_str());
        if (!change || change(tensor)) gguf_add_tensor(gguf.get(), tensor);
      }
    }
    const auto path = home_.path() / "kv.gguf";
    gguf_write_to_file(gguf.get(), path.c_str(), false);
    return path;
  }

  const std::filesystem::path golden_ = test_data() / "golden" / "scorers.gguf";
  const std::filesystem::path output_ = home_.path() / "scores.gguf";
};

TEST_F(Score, MatchesTheReferenceLibrary) {
  const GgufReader golden(golden_);
  for (const std::string method : {"knorm", "keydiff", "snapkv", "tova", "observed_attention"}) {
    ASSERT_EQ(score(method, golden_).status, 0) << method;
    const GgufReader scored(output_);
    EXPECT_EQ(scored.tensors(), 3);
    for (int layer = 0; layer < 3; ++layer) {
      const std::string name = "l" + std::to_string(layer) + ".score." + method;
      const std::vector<float> expected = golden.tensor(name), scores = scored.tensor(name);
      ASSERT_EQ(scores.size(), expected.size());
      const float largest = std::abs(*std::ranges::max_element(expected, {}, [](float x) { return std::abs(x); }));
      for (std::size_t i = 0; i < scores.size(); ++i) ASSERT_NEAR(scores[i], expected[i], 1e-4 * largest) << name;
    }
  }
}

TEST_F(Score, KeepsWhatTheReferenceLibraryKeeps) {
  const GgufReader golden(golden_);
  ASSERT_EQ(score("streaming", golden_, {"--keep", "0.5"}).status, 0);
  const GgufReader streaming(output_);
  for (int layer = 0; layer < 3; ++layer) {
    const std::string name = "l" + std::to_string(layer);
    EXPECT_EQ(streaming.tensor(name + ".kept.streaming.0.5"), golden.tensor(name + ".score.streaming"));
  }
  for (const std::string keep : {"0.5", "0.75"}) {
    ASSERT_EQ(score("adakv:snapkv", golden_, {"--keep", keep}).status, 0);
    const GgufReader adakv(output_);
    for (int layer = 0; layer < 3; ++layer) {
      const std::string name = "l" + std::to_string(layer);
      const auto kept = adakv.tensor(name + ".kept.adakv:snapkv." + keep);
      const auto expected = golden.tensor(name + ".kept.adakv_snapkv." + keep);
      const auto scores = adakv.tensor(name + ".score.adakv:snapkv");
      for (std::size_t head = 0; head < 2; ++head) {  // ties may fall either way
        double worth = 0, expected_worth = 0;
        const auto begin = static_cast<std::ptrdiff_t>(head * 200);
        EXPECT_EQ(std::count(kept.begin() + begin, kept.begin() + begin + 200, 1.0f),
                  std::count(expected.begin() + begin, expected.begin() + begin + 200, 1.0f));
        for (std::size_t i = head * 200; i < (head + 1) * 200; ++i) {
          worth += kept[i] * scores[i];
          expected_worth += expected[i] * scores[i];
        }
        EXPECT_NEAR(worth, expected_worth, 1e-4 * expected_worth);
      }
    }
  }
}

TEST_F(Score, PyramidKeepsWhatTheReferenceLibraryKeeps) {
  ASSERT_EQ(score("pyramid:snapkv", golden_, {"--keep", "0.5", "--window", "8"}).status, 0);
  const GgufReader scored(output_);
  for (int layer = 0; const int count : {192, 100, 8}) {
    const auto kept = scored.tensor("l" + std::to_string(layer++) + ".kept.pyramid:snapkv.0.5");
    EXPECT_EQ(std::ranges::count(kept, 1.0f), 2 * count);
  }
}

TEST_F(Score, TakesEveryScorerOverAnotherShape) {
  const Shape shape;
  const auto input = made(shape);
  for (const std::string_view scorer : scorer_names()) {
    if (scorer == "kvzip") continue;
    for (const std::string& method : {std::string(scorer), "adakv:" + std::string(scorer)}) {
      const Outcome outcome =
          score(method, input, {"--keep", "0.3", "--window", "5", "--rope-pairing", "neighbours", "--json"});
      ASSERT_EQ(outcome.status, 0) << method << outcome.err;
      EXPECT_EQ(outcome.object()["kept"], 2 * 3 * 13) << method;
      const GgufReader scored(output_);
      for (const std::string layer : {"l0", "l1"}) {
        EXPECT_EQ(scored.tensor(layer + ".score." + method).size(), 3u * 45);
        const auto kept = scored.tensor(layer + ".kept." + method + ".0.3");
        EXPECT_EQ(std::ranges::count(kept, 1.0f), 3 * 13);
        EXPECT_EQ(std::ranges::count(kept, 0.0f), 3 * 32);
      }
    }
  }
}

TEST_F(Score, TakesOneToken) {
  const auto input = made({.layers = 1, .tokens = 1});
  for (const std::string_view scorer : scorer_names()) {
    if (scorer == "kvzip") continue;
    ASSERT_EQ(score(std::string(scorer), input, {"--keep", "0.1"}).status, 0) << scorer;
    EXPECT_EQ(GgufReader(output_).tensor("l0.kept." + std::string(scorer) + ".0.1"), std::vector<float>(3, 1.0f));
  }
}

TEST_F(Score, SaysWhatIsWrongWithAFile) {
  const auto expect_error = [&](const std::filesystem::path& input, const std::string& message) {
    const Outcome outcome = score("snapkv", input);
    EXPECT_NE(outcome.status, 0);
    EXPECT_THAT(outcome.err, HasSubstr(message));
    EXPECT_FALSE(std::filesystem::exists(output_));
  };
  const auto named = [](const ggml_tensor* tensor, std::string_view name) { return tensor->name == name; };
  const auto shorten = [](ggml_tensor* tensor) {
    --tensor->ne[1];
    tensor->nb[2] = tensor->nb[1] * 44;
    tensor->nb[3] = tensor->nb[2] * 3;
  };
  expect_error(made({.layers = 0}), "tensor l0.k is missing");
  expect_error(made({}, [&](auto* t) { return !named(t, "l1.v"); }), "tensor l1.v is missing");
  expect_error(made({},
                    [&](auto* t) {
                      if (named(t, "l1.q")) t->type = GGML_TYPE_I32;
                      return true;
                    }),
               "tensor l1.q is i32; F32 is wanted");
  expect_error(made({},
                    [&](auto* t) {
                      if (named(t, "l0.v")) shorten(t);
                      return true;
                    }),
               "tensor l0.v is 3 x 44 x 16; beside the others 3 x 45 x 16 is wanted");
  expect_error(made({.query_heads = 4}), "4 query heads of l0.q do not share 3 KV heads");
  expect_error(made({.head_dim = 15}), "head dimension of l0.k is odd");
  expect_error(home_.path() / "absent.gguf", "absent.gguf");
  expect_error(file("garbage.gguf", "GGUF, not really, but long enough"), "garbage.gguf");
}

TEST_F(Score, RefusesWhatItCannotDo) {
  const auto input = made({});
  const auto expect_error = [&](const std::string& method, Words more, const std::string& message) {
    const Outcome outcome = score(method, input, std::move(more));
    EXPECT_EQ(outcome.status, 2) << method;
    EXPECT_THAT(outcome.err, HasSubstr(message));
  };
  expect_error("kvzip", {}, "shale profile");
  expect_error("nope", {}, "unknown scorer 'nope'");
  expect_error("nope:snapkv", {}, "unknown budget 'nope'");
  expect_error("snapkv+int8", {}, "give [budget:]scorer");
  expect_error("full", {}, "give [budget:]scorer");
  expect_error("snapkv", {"--keep", "1.5"}, "--keep 1.5");
  expect_error("snapkv", {"--keep", "0"}, "--keep 0");
  expect_error("snapkv", {"--keep", "nan"}, "'nan' is not a number");
  expect_error("snapkv", {"--window", "0"}, "window of 0");
  expect_error("snapkv", {"--keep", "0." + std::string(70, '5')}, "too long");
}

}  // namespace
}  // namespace shale::testing
