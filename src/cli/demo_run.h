// The demo's measured part: meets every document, profiles it, and answers requests from the cache.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/demo_documents.h"
#include "cli/demo_stack.h"
#include "profile/profile.h"

namespace shale {

struct MetDocument {
  std::string name;
  std::uint32_t tokens = 0;                         // of the cached entry: template head and text
  std::uint64_t bytes = 0;                          // uncompressed
  double recompute_s = 0;                           // time to first token with nothing cached
  double pool_s = 0;                                // time to first token with all of it in the pool
  ContextProfile profile;                           // with the requests' questions held out
  std::optional<std::uint32_t> questions_by_model;  // as in DemoDocument
};

// One request as it was answered.
struct AnsweredRequest {
  std::size_t document = 0;
  std::size_t question = 0;
  double at_s = 0;   // since the first request
  std::string from;  // a tier's name, or "computed"
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
std::vector<DemoRequest> zipf_requests(std::size_t documents, std::size_t questions, std::size_t count,
                                       std::uint64_t seed);

// Answers a question about the document with nothing cached, again with its pages in the pool, stores it, and measures
// every configuration. `progress(done, total)` counts configurations.
Result<MetDocument> meet_document(DemoStack& stack, const DemoDocument& document, std::uint32_t answer_tokens,
                                  const std::function<void(std::size_t, std::size_t)>& progress);

// Empties the pool, answers one request, and finishes background work.
Result<AnsweredRequest> answer_request(DemoStack& stack, const DemoDocument& document, const MetDocument& met,
                                       const DemoRequest& request, std::uint32_t answer_tokens);

}  // namespace shale
