#include "trace/synthetic_parts.h"
#include "trace/zipf.h"

namespace shale {
namespace {

class DocumentGenerator final : public TraceReader {
 public:
  DocumentGenerator(const DocumentLoad& options, ArrivalProcess arrivals)
      : options_(options),
        arrivals_(std::move(arrivals)),
        random_(options.load.seed),
        zipf_(options.documents, options.zipf),
        first_s_(arrivals_.next()),
        next_s_(first_s_) {}

  std::string_view format() const override { return "synthetic documents"; }
  std::uint32_t block_tokens() const override { return options_.load.block_tokens; }

  Result<bool> next(RawRequest& request) override {
    if (made_ == options_.load.requests) return false;
    const std::uint64_t document = zipf_.draw(random_);
    const std::uint64_t document_tokens = fixed_length(options_.document, options_.load.seed, document);
    const std::uint64_t prompt = document_tokens + draw_length(options_.question, random_);
    const std::uint64_t answer = draw_length(options_.answer, random_);
    const std::uint64_t size = block_tokens();
    request.arrival_s = next_s_ - first_s_;
    request.input_tokens = static_cast<std::uint32_t>(prompt);
    request.output_tokens = static_cast<std::uint32_t>(answer);
    request.output_blocks = static_cast<std::uint32_t>((prompt + answer) / size - prompt / size);
    request.blocks.clear();
    for (std::uint64_t i = 0; i < (prompt + answer) / size; ++i) {
      request.blocks.push_back(block_id(i < document_tokens / size ? document : options_.documents + made_, i));
    }
    ++made_;
    next_s_ = arrivals_.next();
    return true;
  }

 private:
  DocumentLoad options_;
  ArrivalProcess arrivals_;
  Random random_;
  Zipf zipf_;
  double first_s_, next_s_;
  std::uint64_t made_ = 0;
};

}  // namespace

Result<std::unique_ptr<TraceReader>> generate(const DocumentLoad& options) {
  SHALE_TRY(check_load(options.load));
  SHALE_TRY(check_popularity(options.documents, options.zipf, "documents"));
  SHALE_TRY(check_length(options.document, "documents"));
  SHALE_TRY(check_length(options.question, "questions"));
  SHALE_TRY(check_length(options.answer, "answers"));
  SHALE_ASSIGN(ArrivalProcess arrivals, ArrivalProcess::create(options.load.arrivals, options.load.seed));
  return std::make_unique<DocumentGenerator>(options, std::move(arrivals));
}

}  // namespace shale
