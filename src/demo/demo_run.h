// The demo's measured part: ingests every document, profiles it, and answers requests from the cache.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "demo/demo_documents.h"
#include "demo/demo_stack.h"
#include "profile/profile.h"

namespace shale {

struct IngestedDocument {
  std::string name;
  std::uint32_t tokens = 0;                         // of the cached prefix: template head and text
  std::uint64_t bytes = 0;                          // uncompressed
  double recompute_s = 0;                           // time to first token with nothing cached
  double pool_s = 0;                                // time to first token with all of it in the pool
  ContextProfile profile;                           // with the requests' questions held out
  std::optional<std::uint32_t> questions_by_model;  // as in DemoDocument
};

inline constexpr std::string_view kComputed = "computed";

// One request as it was answered.
struct AnsweredRequest {
  std::size_t document = 0;
  std::size_t question = 0;
  double at_s = 0;   // since the first request
  std::string from;  // the slowest tier that was read, or kComputed
  Method method = Method::full();
  double keep = 1;
  std::uint64_t bytes = 0;  // read
  double ttft_s = 0;
  double agreement = 1;  // of this configuration with the full cache, on this question of this document
};

struct DemoRequest {
  std::size_t document, question;
};
// `count` requests: the document of popularity rank r with probability proportional to 1/r (ranks shuffled by the
// seed), one of its questions evenly. The same on every machine.
std::vector<DemoRequest> zipf_requests(std::span<const DemoDocument> documents, std::size_t count, std::uint64_t seed);

// Forms that planners fix for everything: measured beside those that the cache may choose.
struct DemoForms {
  std::vector<std::string> methods;
  std::vector<double> keeps;  // the default ones among them
};
// kInvalidArgument as of parse_planner.
Result<DemoForms> forms_of(std::span<const std::string> planners);

// Answers a question about the document with nothing cached, again with its pages in the pool, stores it, and measures
// every configuration. `progress(done, total)` counts configurations.
Result<IngestedDocument> ingest_document(DemoStack& stack, const DemoDocument& document, const DemoForms& forms,
                                         std::uint32_t answer_tokens,
                                         const std::function<void(std::size_t, std::size_t)>& progress);

// Answers a question about the document with nothing cached, and stores what the planner makes of it.
Status store_document(DemoStack& stack, const DemoDocument& document);

// Empties the pool, answers one request, and finishes background work.
Result<AnsweredRequest> answer_request(DemoStack& stack, const DemoDocument& document, const IngestedDocument& ingested,
                                       const DemoRequest& request, std::uint32_t answer_tokens);

}  // namespace shale
