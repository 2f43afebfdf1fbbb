#include "cli/demo.h"

#include <algorithm>

#include "cli/interrupt.h"

namespace shale {

Status run_demo(DemoStack& stack, std::vector<DemoDocument> documents, const DemoWorkload& workload, DemoReport& report,
                const OutputOptions& output) {
  const double start_s = stack.clock().now_s();
  report.begin(stack.engine().model().info(), stack.tiers(), documents);

  std::vector<MetDocument> met;
  std::size_t questions = std::string::npos;
  for (DemoDocument& document : documents) {
    SHALE_TRY(check_interrupt());
    Progress progress(output, document.name);
    if (document.requests.empty()) SHALE_TRY(ask_for_questions(stack.engine(), document));
    SHALE_ASSIGN(MetDocument one, meet_document(stack, document, workload.answer_tokens,
                                                [&](std::size_t done, std::size_t total) { progress(done, total); }));
    questions = std::min(questions, document.requests.size());
    met.push_back(std::move(one));
    report.met(met.back());
  }

  std::vector<AnsweredRequest> answered;
  const double first_s = stack.clock().now_s();
  for (const DemoRequest& request : zipf_requests(met.size(), questions, workload.requests, workload.seed)) {
    SHALE_TRY(check_interrupt());
    const DemoDocument& document = documents[request.document];
    SHALE_ASSIGN(AnsweredRequest one,
                 answer_request(stack, document, met[request.document], request, workload.answer_tokens));
    one.at_s -= first_s;
    answered.push_back(std::move(one));
    report.answered(answered.back(), document, met[request.document]);
  }

  SHALE_ASSIGN(const std::vector<DemoPolicy> policies, compare_policies(stack, met, answered));
  report.compared(policies, stack.clock().now_s() - start_s);
  return {};
}

}  // namespace shale
