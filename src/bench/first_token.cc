#include "bench/first_token.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <random>
#include <thread>

#include "bench/peers/llama_server.h"
#include "core/interrupt.h"
#include "core/quantile.h"
#include "extents/store_tiers.h"
#include "runtime/engine_stack.h"

namespace shale {
namespace {

// The threads of either side's matrix library go on spinning for some tenths of a second after their work, on the cores
// that the other side is measured on.
void let_threads_rest() { std::this_thread::sleep_for(std::chrono::seconds(1)); }

// An engine whose cache has one tier.
Result<std::unique_ptr<EngineStack>> open_bed(Model& model, const Tokenizer& tokenizer, std::uint32_t tokens,
                                              const TierSpec& tier, const Clock& clock) {
  SHALE_ASSIGN(auto tiers, open_store_tiers(std::vector{tier}, clock));
  const PageShape shape = model.page_shape();
  EngineStackOptions options{.pool_bytes = shape.token_bytes() * (2 * tokens + 64 * shape.block_size)};
  options.cache.load_always = true;
  return EngineStack::open(model, tokenizer, std::move(options), std::move(tiers), nullptr, clock);
}

Result<Response> answer_once(EngineStack& bed, const std::vector<Token>& context, const std::vector<Token>& question,
                             bool use_cache) {
  Request request;
  request.spans = {{context, true, "bench"}, {question, false, {}}};
  request.max_tokens = 1;
  request.policy.exact = true;
  request.use_cache = use_cache;
  Response response = bed.engine().run(std::move(request));
  if (response.error) return std::unexpected(std::move(*response.error));
  bed.cache().drain(bed.engine().model().executor());
  return response;
}

class FirstTokens {
 public:
  FirstTokens(Model& model, const Tokenizer& tokenizer, const FirstTokenOptions& options, const OutputOptions& output)
      : model_(model), tokenizer_(tokenizer), options_(options), progress_(output, "first tokens") {
    context_ = random_tokens(options.context_tokens);
  }

  Status set_up(const std::filesystem::path& model_file) {
    const std::uint32_t tokens = options_.context_tokens + 2 * options_.question_tokens;
    const TierSpec memory{.scheme = "memory", .name = "memory", .place = {}};
    SHALE_ASSIGN(memory_, open_bed(model_, tokenizer_, tokens, memory, clock_));
    const TierSpec disk{.scheme = "file", .name = "disk", .place = options_.scratch / "kv"};
    SHALE_ASSIGN(disk_, open_bed(model_, tokenizer_, tokens, disk, clock_));
    if (options_.peer.empty()) return {};
    for (const bool flash : {false, true}) {
      const auto slots = options_.scratch / (flash ? "slots-flash" : "slots");
      std::filesystem::create_directories(slots);
      SHALE_ASSIGN(LlamaServer server, LlamaServer::start(options_.peer, model_file,
                                                          static_cast<std::uint32_t>(model_.executor().threads()),
                                                          tokens + options_.question_tokens, flash, slots));
      servers_.push_back(std::move(server));
    }
    return {};
  }

  // Everything computed once, and kept where it is to be found later.
  Status warm_up() {
    SHALE_TRY(measure("computed", *memory_, false));
    SHALE_TRY(answer_once(*disk_, context_, question(), false));
    for (const LlamaServer& server : servers_) {
      let_threads_rest();
      SHALE_ASSIGN(seconds_[name("computed", server)].emplace_back(), server.first_token(prompt()));
      SHALE_TRY(server.save_slot());
    }
    return {};
  }

  Status round() {
    SHALE_TRY(measure("pool", *memory_, true));
    memory_->empty_pool();
    SHALE_TRY(measure("memory", *memory_, true));
    disk_->empty_pool();
    SHALE_TRY(measure("disk", *disk_, true));
    for (const LlamaServer& server : servers_) {
      let_threads_rest();
      SHALE_ASSIGN(seconds_[name("same slot", server)].emplace_back(), server.first_token(prompt()));
      SHALE_TRY(server.erase_slot());
      let_threads_rest();
      SHALE_ASSIGN(const double restored, server.restore_slot());
      SHALE_ASSIGN(const double answered, server.first_token(prompt()));
      seconds_[name("restored slot", server)].push_back(restored + answered);
    }
    return check_interrupt();
  }

  Status run() {
    SHALE_TRY(warm_up());
    for (std::uint32_t i = 0; i < options_.rounds; ++i) {
      progress_(i, options_.rounds);
      SHALE_TRY(round());
    }
    return {};
  }

  std::vector<FirstTokenRow> rows() const {
    std::vector<FirstTokenRow> rows;
    for (const auto& [from, theirs] : {std::pair{"computed", "computed"},
                                       {"pool", "same slot"},
                                       {"memory", "restored slot"},
                                       {"disk", "restored slot"}}) {
      rows.push_back({from, quantile(seconds_.at(from), 0.5), theirs, peer(theirs)});
    }
    return rows;
  }

 private:
  std::vector<Token> random_tokens(std::uint32_t count) {
    std::vector<Token> tokens(count);
    for (Token& token : tokens) token = static_cast<Token>(random_() % model_.info().vocabulary);
    return tokens;
  }
  std::vector<Token> question() { return random_tokens(options_.question_tokens); }
  std::vector<Token> prompt() {
    std::vector<Token> tokens = context_;
    const std::vector<Token> asked = question();
    tokens.insert(tokens.end(), asked.begin(), asked.end());
    return tokens;
  }

  std::string name(std::string_view what, const LlamaServer& server) const {
    return fmt::format("{} {}", what, &server - servers_.data());
  }
  double peer(std::string_view what) const {
    double best = 0;
    for (const LlamaServer& server : servers_) {
      const double seconds = quantile(seconds_.at(name(what, server)), 0.5);
      best = best == 0 ? seconds : std::min(best, seconds);
    }
    return best;
  }

  // `from`: where the whole context has to come from when the cache may be used.
  Status measure(const std::string& from, EngineStack& bed, bool use_cache) {
    let_threads_rest();
    SHALE_ASSIGN(const Response response, answer_once(bed, context_, question(), use_cache));
    const std::uint64_t cached = response.cached.from(from);
    if (use_cache && cached != options_.context_tokens) {
      return fail(ErrorCode::kInternal, "{} of {} tokens came from {}", cached, options_.context_tokens, from);
    }
    seconds_[from].push_back(response.ttft_seconds);
    return {};
  }

  Model& model_;
  const Tokenizer& tokenizer_;
  const FirstTokenOptions& options_;
  Progress progress_;
  RealClock clock_;
  std::mt19937 random_{7};
  std::vector<Token> context_;
  std::unique_ptr<EngineStack> memory_, disk_;
  std::vector<LlamaServer> servers_;
  std::map<std::string, std::vector<double>> seconds_;
};

}  // namespace

Result<std::vector<FirstTokenRow>> measure_first_tokens(Model& model, const Tokenizer& tokenizer,
                                                        const std::filesystem::path& model_file,
                                                        const FirstTokenOptions& options, const OutputOptions& output) {
  if (options.context_tokens + options.question_tokens >= model.info().context_max) {
    return fail(ErrorCode::kInvalidArgument, "{} tokens exceed the model's context of {}: give fewer",
                options.context_tokens + options.question_tokens, model.info().context_max);
  }
  FirstTokens bench(model, tokenizer, options, output);
  SHALE_TRY(bench.set_up(model_file));
  SHALE_TRY(bench.run());
  return bench.rows();
}

}  // namespace shale
