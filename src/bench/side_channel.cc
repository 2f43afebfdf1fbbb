#include "bench/side_channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <span>
#include <string_view>
#include <utility>

#include "core/clock.h"
#include "core/interrupt.h"
#include "core/random.h"
#include "core/sha256.h"
#include "core/text_file.h"
#include "loadtest/serve/serve_child.h"
#include "loadtest/serve/serve_client.h"
#include "runtime/serving.h"

namespace shale {
namespace {

constexpr std::uint32_t kWarmUp = 4;  // rounds that do not count
constexpr double kWaitS = 120;
constexpr std::array<std::string_view, 16> kWords = {"river", "stone", "light", "paper", "green", "house",
                                                     "water", "night", "table", "music", "field", "glass",
                                                     "horse", "bread", "cloud", "metal"};

// In hexadecimal, as a tenants file has it.
std::string hash_of(std::string_view key) {
  std::string hex;
  for (const std::byte byte : sha256(std::as_bytes(std::span(key)))) hex += fmt::format("{:02x}", byte);
  return hex;
}

class Attack {
 public:
  Attack(const SideChannelOptions& options, ServeChild server, std::string victim, std::string other)
      : options_(options), server_(std::move(server)), victim_(std::move(victim)), other_(std::move(other)) {}

  Status run();
  const std::vector<SideChannelRow>& rows() const { return rows_; }

 private:
  std::string new_prompt();
  Result<ServedAnswer> ask(const std::string& prompt, const std::string& key) const;
  Status guess(SideChannelRow& row, const std::string& key, bool right, bool counts);

  const SideChannelOptions& options_;
  ServeChild server_;
  std::string victim_, other_;  // keys
  RealClock clock_;
  std::mt19937_64 random_{options_.seed};
  std::vector<SideChannelRow> rows_ = {{.attacker = "another tenant"}, {.attacker = "the same tenant"}};
};

// All of the same words equally often, so that they have the same length in tokens, or nearly.
std::string Attack::new_prompt() {
  std::vector<std::string_view> words(options_.words);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = kWords[i % kWords.size()];
  std::ranges::shuffle(words, random_);
  std::string prompt;
  for (const std::string_view word : words) prompt.append(word).append(" ");
  return prompt;
}

Result<ServedAnswer> Attack::ask(const std::string& prompt, const std::string& key) const {
  SHALE_TRY(check_interrupt());
  ServedAnswer answer =
      ask_server(server_.port(), chat_body(prompt, {"Go on."}, 2, false), clock_, clock_.now_s(), kWaitS, key);
  if (!answer.error.empty()) return fail(ErrorCode::kIo, "the server: {}", answer.error);
  return answer;
}

Status Attack::guess(SideChannelRow& row, const std::string& key, bool right, bool counts) {
  const std::string secret = new_prompt(), another = new_prompt();
  SHALE_TRY(ask(secret, victim_));
  SHALE_ASSIGN(const ServedAnswer answer, ask(right ? secret : another, key));
  if (!counts) return {};
  std::uint64_t cached = 0;
  for (const auto& [source, tokens] : answer.cached_tokens) cached += tokens;
  SideChannelGuesses& guesses = right ? row.right : row.wrong;
  guesses.ttft_s.push_back(answer.pieces_s.front());
  guesses.cached_tokens.push_back(static_cast<double>(cached));
  guesses.found += 2 * cached > answer.prompt_tokens;
  return {};
}

Status Attack::run() {
  for (std::uint32_t round = 0; round < kWarmUp + options_.tries / 2; ++round) {
    std::array<std::pair<std::size_t, bool>, 4> guesses = {{{0, true}, {0, false}, {1, true}, {1, false}}};
    std::ranges::shuffle(guesses, random_);
    for (const auto& [row, right] : guesses) {
      SHALE_TRY(guess(rows_[row], row == 0 ? other_ : victim_, right, round >= kWarmUp));
    }
  }
  return {};
}

}  // namespace

Result<std::vector<SideChannelRow>> measure_side_channel(const SideChannelOptions& options) {
  SHALE_ASSIGN(const ScratchFolder folder, ScratchFolder::create(cache_folder({}).parent_path()));
  const std::string victim = fmt::format("{:016x}", random_number()), other = fmt::format("{:016x}", random_number());
  const std::string tenants = folder.path() / "tenants";
  SHALE_TRY(write_file(tenants, fmt::format("victim {}\nother {}\n", hash_of(victim), hash_of(other))));
  std::vector<std::string> words = {"--model=" + options.model, "--tenants=" + tenants,
                                    "--cache-dir=" + (folder.path() / "kv").string(), "--profile=never"};
  if (options.threads > 0) words.push_back(fmt::format("--threads={}", options.threads));
  SHALE_ASSIGN(ServeChild server, ServeChild::start(words, folder.path()));
  Attack attack(options, std::move(server), victim, other);
  SHALE_TRY(attack.run());
  return attack.rows();
}

}  // namespace shale
