#include "model/sentence_encoder.h"

#include <llama-cpp.h>

#include <cmath>
#include <exception>
#include <numeric>

#include "model/library_log.h"
#include "model/vocabulary_check.h"
#include "model/weights/gguf_file.h"

namespace shale {
namespace {

constexpr std::size_t kSentenceTokensMax = 256;

class LlamaSentenceEncoder final : public SentenceEncoder {
 public:
  LlamaSentenceEncoder(llama_model_ptr model, llama_context_ptr context)
      : model_(std::move(model)), context_(std::move(context)) {}

  Result<std::vector<float>> encode(std::string_view text) override try {
    const llama_vocab* vocabulary = llama_model_get_vocab(model_.get());
    std::vector<llama_token> tokens(text.size() + 4);
    const std::int32_t count =
        llama_tokenize(vocabulary, text.data(), static_cast<std::int32_t>(text.size()), tokens.data(),
                       static_cast<std::int32_t>(tokens.size()), /*add_special=*/true, /*parse_special=*/false);
    if (count <= 0) return fail(ErrorCode::kInternal, "a sentence of {} bytes has no tokens", text.size());
    tokens.resize(static_cast<std::size_t>(count));
    if (tokens.size() > kSentenceTokensMax) {
      tokens.resize(kSentenceTokensMax);
      tokens.back() = llama_vocab_sep(vocabulary);
    }
    if (llama_encode(context_.get(), llama_batch_get_one(tokens.data(), static_cast<std::int32_t>(tokens.size())))) {
      return fail(ErrorCode::kInternal, "libllama could not encode a sentence of {} tokens", tokens.size());
    }
    const float* values = llama_get_embeddings_seq(context_.get(), 0);
    if (!values) return fail(ErrorCode::kInternal, "libllama gave no sentence embedding");
    std::vector<float> embedding(values, values + llama_model_n_embd(model_.get()));
    const double length = std::sqrt(std::inner_product(embedding.begin(), embedding.end(), embedding.begin(), 0.0));
    for (float& value : embedding) value = static_cast<float>(value / length);
    return embedding;
  } catch (const std::exception& error) {
    return fail(ErrorCode::kInternal, "encoding a sentence: {}", error.what());
  }

 private:
  llama_model_ptr model_;
  llama_context_ptr context_;
};

}  // namespace

Result<std::unique_ptr<SentenceEncoder>> SentenceEncoder::load(const std::filesystem::path& path,
                                                               std::uint32_t threads) try {
  silence_libraries();
  SHALE_ASSIGN(const auto file, GgufFile::open(path));
  const std::string where = "model file " + path.string();
  if (auto checked = check_vocabulary(*file); !checked) return fail_in(where, std::move(checked).error());
  llama_model_ptr model(llama_model_load_from_file(path.c_str(), llama_model_default_params()));
  if (!model) return fail(ErrorCode::kCorrupt, "{}: libllama cannot read it", where);
  llama_context_params params = llama_context_default_params();
  params.embeddings = true;
  params.n_ctx = params.n_batch = params.n_ubatch = kSentenceTokensMax;
  params.n_threads = params.n_threads_batch = static_cast<std::int32_t>(threads);
  llama_context_ptr context(llama_init_from_model(model.get(), params));
  if (!context) return fail(ErrorCode::kUnsupported, "{}: libllama cannot run it", where);
  if (llama_pooling_type(context.get()) == LLAMA_POOLING_TYPE_NONE) {
    return fail(ErrorCode::kUnsupported, "{}: no encoder of sentences", where);
  }
  return std::make_unique<LlamaSentenceEncoder>(std::move(model), std::move(context));
} catch (const std::exception& error) {
  return fail(ErrorCode::kCorrupt, "model file {}: {}", path.string(), error.what());
}

double cosine(std::span<const float> a, std::span<const float> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

}  // namespace shale
