// llama-server as the peer for first tokens: one slot, over loopback HTTP.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "core/child_process.h"
#include "core/error.h"
#include "model/model.h"

namespace shale {

class LlamaServer {
 public:
  // Starts `folder`/llama-server on a free port and waits until it answers. `slots`: where it may save its slot's
  // cache.
  static Result<LlamaServer> start(const std::filesystem::path& folder, const std::filesystem::path& model,
                                   std::uint32_t threads, std::uint32_t context_tokens, bool flash_attention,
                                   const std::filesystem::path& slots);

  // Seconds from sending the prompt until its first token has arrived, connection included. What its slot holds of the
  // prompt is not computed again.
  Result<double> first_token(std::span<const Token> prompt) const;
  Status save_slot() const;
  // Seconds.
  Result<double> restore_slot() const;
  Status erase_slot() const;

 private:
  LlamaServer(ChildProcess process, std::uint16_t port) : process_(std::move(process)), port_(port) {}
  Status slot_action(std::string_view action) const;

  ChildProcess process_;
  std::uint16_t port_;
};

}  // namespace shale
