// Requests as commands run them: cancelled by Ctrl-C, shown on a terminal, reported as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/output.h"
#include "runtime/serving.h"

namespace shale {

// Runs the request to its end with a progress bar until the first token. kCancelled after Ctrl-C; the error of a
// request that failed.
Result<Response> run_request(Engine& engine, Request request, const OutputOptions& output);
// The same, but Ctrl-C ends the answer where it is (StopReason::kCancelled).
Result<Response> run_until_interrupted(Engine& engine, Request request, const OutputOptions& output);

Json to_json(const KvBudgetStats& stats);
// The fields of an answer that every command reports alike; docs/reference/json.md.
Json to_json(const Response& response, const Model& model);

// "4012 tokens of prompt: 3990 from disk, 22 computed; first token 210 ms, then 8.1 ms each; exact".
std::string summary(const Response& response);

// Prints text as it comes. For Request::on_text.
void print_piece(std::string_view piece);

}  // namespace shale
