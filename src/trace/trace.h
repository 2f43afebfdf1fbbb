// A request trace: when requests came, and which blocks of tokens each one's prompt is made of.
//
// A block is `block_tokens` consecutive tokens after one particular prefix; only a prompt's last block may hold fewer.
// Readers of files are streams of RawRequest (trace_reader.h), whose ids are as the file gives them. A Trace holds the
// whole in memory with dense ids: a block's number is made once from (the block before it, its raw id), so that an id
// stands for its whole prefix whatever the file's ids meant.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/block_id.h"

namespace shale {

struct TraceRequest {
  double arrival_s = 0;  // from the trace's start; never goes back
  std::uint32_t input_tokens = 0;
  std::uint32_t output_tokens = 0;
  std::uint64_t first_block = 0;  // into Trace::blocks
  std::uint32_t prompt_blocks = 0;
  std::uint32_t output_blocks = 0;  // right after the prompt's: blocks of the answer, where the trace tells them
};

struct Trace {
  std::string name;  // the file's name without folders
  std::uint32_t block_tokens = 512;
  std::vector<TraceRequest> requests;
  std::vector<BlockId> blocks;   // of all requests, one after another
  std::vector<BlockId> parents;  // by BlockId: the block before it, kNoBlock for a first one

  std::uint64_t unique_blocks() const { return parents.size(); }
  std::span<const BlockId> prompt(const TraceRequest& request) const {
    return std::span(blocks).subspan(request.first_block, request.prompt_blocks);
  }
  // The prompt's blocks and the answer's.
  std::span<const BlockId> conversation(const TraceRequest& request) const {
    return std::span(blocks).subspan(request.first_block, request.prompt_blocks + request.output_blocks);
  }
  bool last_is_partial(const TraceRequest& request) const {
    return std::uint64_t{request.prompt_blocks} * block_tokens > request.input_tokens;
  }
};

}  // namespace shale
