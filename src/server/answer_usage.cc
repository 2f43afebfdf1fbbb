#include "server/answer_usage.h"

#include <algorithm>
#include <iterator>

namespace shale {
namespace {

void count_prompt(AnswerUsage& usage, const Response& response) {
  usage.prompt_tokens += response.prompt_tokens;
  usage.computed_tokens += response.computed_tokens();
  usage.cached.add(response.cached);
}

void count_choice(AnswerUsage& usage, const Response& response) {
  ++usage.choices;
  usage.completion_tokens += response.drawn();
  usage.lossy = usage.lossy || response.lossy;
  const auto quality = response.expected_quality();
  if (usage.expected_quality && (!quality || *quality < *usage.expected_quality)) usage.expected_quality = quality;
  std::ranges::copy_if(response.sources, std::back_inserter(usage.compressed), &SourceUsed::lossy);
}

void note_times(AnswerUsage& usage, std::span<const Response* const> responses) {
  double later_s = 0, later = 0;
  bool spoken = false;
  usage.queue_seconds = responses.front()->queue_seconds;
  for (const Response* response : responses) {
    usage.queue_seconds = std::min(usage.queue_seconds, response->queue_seconds);
    if (response->drawn() == 0) continue;
    usage.ttft_seconds = spoken ? std::min(usage.ttft_seconds, response->ttft_seconds) : response->ttft_seconds;
    spoken = true;
    const auto tokens = static_cast<double>(response->drawn() - 1);
    later += tokens;
    later_s += tokens * response->tpot_seconds;
    for (const float gap : response->gaps_seconds) {
      usage.longest_gap_seconds = std::max(usage.longest_gap_seconds, static_cast<double>(gap));
    }
  }
  if (later > 0) usage.tpot_seconds = later_s / later;
}

}  // namespace

AnswerUsage usage_of(std::span<const Response* const> responses, std::size_t of_prompt) {
  AnswerUsage usage{.metric = responses.front()->metric};
  for (std::size_t first = 0; first < responses.size(); first += of_prompt) {
    const auto choices = responses.subspan(first, std::min(of_prompt, responses.size() - first));
    count_prompt(usage, **std::ranges::max_element(choices, {}, &Response::computed_tokens));
  }
  for (const Response* response : responses) count_choice(usage, *response);
  note_times(usage, responses);
  return usage;
}

}  // namespace shale
