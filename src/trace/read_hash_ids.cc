// JSON Lines with ids of blocks.
//
//   {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 48, …]}
//
// Mooncake's traces (github.com/kvcache-ai/Mooncake, FAST '25 release: 512 tokens a block, milliseconds), NVIDIA
// Dynamo's in the same form, Qwen-Bailian's (github.com/alibaba-edu/qwen-bailian-usagetraces-anon: 16 tokens a block,
// seconds, known by `chat_id`), and anybody's. Three fields are ours: `block_size`; `output_hash_ids`, the blocks of
// the answer, each full and following the prompt's, which then are full ones only; and `unnamed_length`, tokens at the
// prompt's end that are in no block.
#include <cmath>

#include "trace/formats.h"
#include "trace/json_line.h"

namespace shale {
namespace {

enum Field : std::size_t { kTimestamp, kInput, kOutput, kIds, kOutputIds, kBlockSize, kChatId, kUnnamed };
constexpr std::array<std::string_view, 8> kNames = {"timestamp", "input_length",    "output_length",
                                                    "hash_ids",  "output_hash_ids", "block_size",
                                                    "chat_id",   "unnamed_length"};

// The block size of which `blocks` fit `tokens`: 512 where it fits, else the smallest power of two that does; 0 for
// none.
std::uint32_t guess_block_tokens(std::uint64_t blocks, std::uint64_t tokens) {
  if (block_count_fits(blocks, tokens, kBlockTokensDefault)) return kBlockTokensDefault;
  for (std::uint32_t size = 1; size <= kBlockTokensMax; size *= 2) {
    if (blocks == blocks_of(tokens, size)) return size;
  }
  return 0;
}

class HashIdReader final : public LineTraceReader {
 public:
  HashIdReader(LineSource lines, const TraceOptions& options)
      : LineTraceReader(std::move(lines), options),
        json_(lines_),
        block_tokens_(options.block_tokens),
        unit_(options.timestamps) {}

  std::string_view format() const override { return "mooncake"; }
  std::uint32_t block_tokens() const override { return block_tokens_; }

 private:
  Result<bool> read(RawRequest& request) override {
    SHALE_ASSIGN(const bool more, lines_.next());
    if (!more) return false;
    output_.clear();
    double time = 0;
    std::uint32_t block_size = 0, unnamed = 0;
    const auto on_field = [&](std::size_t field, JsonValue value) -> Status {
      switch (field) {
        case kTimestamp:
          return json_.number(value, time);
        case kInput:
          return json_.count(value, request.input_tokens);
        case kOutput:
          return json_.count(value, request.output_tokens);
        case kIds:
          return read_ids(value, request.blocks);
        case kOutputIds:
          return read_ids(value, output_);
        case kBlockSize:
          return json_.count(value, block_size);
        case kUnnamed:
          return json_.count(value, unnamed);
        default:
          return json_.skip(value);
      }
    };
    SHALE_ASSIGN(const JsonPlaces places, json_.object(kNames, on_field));
    for (const Field field : {kTimestamp, kInput, kIds}) {
      if (!places[field]) return json_.fail_at(lines_.line().data(), "\"{}\" is missing", kNames[field]);
    }
    if (unnamed > request.input_tokens) {
      return json_.fail_at(places[kUnnamed], "{} tokens in no block, of {} in all", unnamed, request.input_tokens);
    }
    SHALE_TRY(check_block_size(request, block_size, request.input_tokens - unnamed, places));
    if (unnamed > 0) SHALE_TRY(check_unnamed(request, request.input_tokens - unnamed, places));
    SHALE_TRY(add_output(request, places));
    const bool seconds =
        unit_ == TimestampUnit::kByFormat ? places[kChatId] != nullptr : unit_ == TimestampUnit::kSeconds;
    SHALE_ASSIGN(request.arrival_s, arrival(seconds ? time : time / 1000, places[kTimestamp]));
    return true;
  }

  Status read_ids(JsonValue value, std::vector<std::uint64_t>& ids) {
    return json_.array(value, [&](JsonValue element) -> Status {
      SHALE_TRY(check_room(ids.size() + 1, JsonLine::place(element)));
      return json_.id(element, ids.emplace_back());
    });
  }

  // `tokens` are in blocks, and others are not.
  Status check_unnamed(const RawRequest& request, std::uint64_t tokens, const JsonPlaces& places) {
    if (request.blocks.size() * block_tokens_ != tokens) {
      return json_.fail_at(places[kUnnamed], "tokens in no block follow full blocks: {} tokens are no {} of {}", tokens,
                           request.blocks.size(), block_tokens_);
    }
    if (output_.empty()) return {};
    return json_.fail_at(places[kUnnamed], "the answer's blocks cannot follow tokens that are in none");
  }

  // `tokens` are in blocks.
  Status check_block_size(const RawRequest& request, std::uint32_t block_size, std::uint64_t tokens,
                          const JsonPlaces& places) {
    if (places[kBlockSize] && (block_size == 0 || block_size > kBlockTokensMax)) {
      return json_.fail_at(places[kBlockSize], "a block has 1 to {} tokens", kBlockTokensMax);
    }
    if (places[kBlockSize] && block_tokens_ != 0 && block_size != block_tokens_) {
      return json_.fail_at(places[kBlockSize], "blocks of {} tokens among blocks of {}", block_size, block_tokens_);
    }
    const std::uint64_t blocks = request.blocks.size();
    if (block_tokens_ == 0) block_tokens_ = block_size ? block_size : guess_block_tokens(blocks, tokens);
    if (block_tokens_ == 0) {
      return json_.fail_at(places[kIds], "{} blocks do not tell the size of one in {} tokens; say how many a block has",
                           blocks, tokens);
    }
    if (block_count_fits(blocks, tokens, block_tokens_)) return {};
    return json_.fail_at(places[kIds],
                         "{} blocks for {} tokens, where {} of {} tokens are expected; is that the size of a block?",
                         blocks, tokens, blocks_of(tokens, block_tokens_), block_tokens_);
  }

  Status add_output(RawRequest& request, const JsonPlaces& places) {
    request.output_blocks = static_cast<std::uint32_t>(output_.size());
    if (output_.empty()) return {};
    const std::uint64_t tokens = std::uint64_t{request.input_tokens} + request.output_tokens;
    if (request.blocks.size() > request.input_tokens / block_tokens_) {
      return json_.fail_at(places[kIds],
                           "the prompt's last block is not full, so the answer's cannot follow it; leave it out");
    }
    if (request.blocks.size() + output_.size() > tokens / block_tokens_) {
      return json_.fail_at(places[kOutputIds], "{} blocks of answer, but {} tokens fill only {}", output_.size(),
                           tokens, tokens / block_tokens_ - request.blocks.size());
    }
    request.blocks.insert(request.blocks.end(), output_.begin(), output_.end());
    return {};
  }

  JsonLine json_;
  std::uint32_t block_tokens_;
  TimestampUnit unit_;
  std::vector<std::uint64_t> output_;
};

}  // namespace

ReaderResult read_hash_ids(LineSource lines, const TraceOptions& options) {
  return start_reader<HashIdReader>(std::move(lines), options);
}

}  // namespace shale
