#include "bench/peers/llama_server.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/clock.h"
#include "core/interrupt.h"
#include "loadtest/loopback_http.h"

namespace shale {
namespace {

constexpr double kStartMaxS = 60, kPollS = 0.05;

}  // namespace

Result<LlamaServer> LlamaServer::start(const std::filesystem::path& folder, const std::filesystem::path& model,
                                       std::uint32_t threads, std::uint32_t context_tokens, bool flash_attention,
                                       const std::filesystem::path& slots) {
  SHALE_ASSIGN(const std::uint16_t port, free_loopback_port());
  SHALE_ASSIGN(ChildProcess process,
               ChildProcess::start({folder / "llama-server", "-m", model, "-t", std::to_string(threads), "-c",
                                    std::to_string(context_tokens), "-np", "1", "-fa", flash_attention ? "on" : "off",
                                    "--slot-save-path", slots.string() + "/", "--cache-ram", "0", "--host", "127.0.0.1",
                                    "--port", std::to_string(port)}));
  LlamaServer server(std::move(process), port);
  const RealClock clock;
  const double start_s = clock.now_s();
  while (!loopback_request(port, "GET", "/health", "")) {
    SHALE_TRY(check_interrupt());
    if (!server.process_.running() || clock.now_s() - start_s > kStartMaxS) {
      return fail(ErrorCode::kIo, "{} does not start", (folder / "llama-server").string());
    }
    clock.sleep_until_s(clock.now_s() + kPollS);
  }
  return server;
}

Result<double> LlamaServer::first_token(std::span<const Token> prompt) const {
  const nlohmann::json body = {{"prompt", std::vector<Token>(prompt.begin(), prompt.end())},
                               {"n_predict", 1},
                               {"temperature", 0},
                               {"cache_prompt", true},
                               {"id_slot", 0}};
  const std::string text = body.dump();
  const RealClock clock;
  const double start_s = clock.now_s();
  SHALE_TRY(loopback_request(port_, "POST", "/completion", text));
  return clock.now_s() - start_s;
}

Status LlamaServer::slot_action(std::string_view action) const {
  SHALE_TRY(loopback_request(port_, "POST", fmt::format("/slots/0?action={}", action), R"({"filename":"slot.bin"})"));
  return {};
}

Status LlamaServer::save_slot() const { return slot_action("save"); }
Status LlamaServer::erase_slot() const { return slot_action("erase"); }

Result<double> LlamaServer::restore_slot() const {
  const RealClock clock;
  const double start_s = clock.now_s();
  SHALE_TRY(slot_action("restore"));
  return clock.now_s() - start_s;
}

}  // namespace shale
