#include "demo/demo.h"

#include <algorithm>
#include <utility>

#include "core/interrupt.h"

namespace shale {
namespace {

constexpr std::string_view kProfiledBy = "shale";

class Demo {
 public:
  Demo(std::vector<DemoDocument> documents, const DemoWorkload& workload, DemoReport& report,
       const OutputOptions& output)
      : documents_(std::move(documents)), workload_(workload), report_(report), output_(output) {}

  const std::vector<DemoDocument>& documents() const { return documents_; }
  Status ingest(DemoStack& stack, const DemoForms& forms);
  // As a cache would that has ingested them.
  Status store(DemoStack& stack, const std::string& planner);
  Result<DemoPolicy> answer(DemoStack& stack, const std::string& planner);

 private:
  std::vector<DemoDocument> documents_;
  const DemoWorkload& workload_;
  DemoReport& report_;
  const OutputOptions& output_;
  std::vector<IngestedDocument> ingested_;
};

Status Demo::ingest(DemoStack& stack, const DemoForms& forms) {
  for (DemoDocument& document : documents_) {
    SHALE_TRY(check_interrupt());
    Progress progress(output_, document.name);
    if (document.requests.empty()) SHALE_TRY(ask_for_questions(stack.engine(), document));
    SHALE_ASSIGN(IngestedDocument one,
                 ingest_document(stack, document, forms, workload_.answer_tokens,
                                 [&](std::size_t done, std::size_t total) { progress(done, total); }));
    ingested_.push_back(std::move(one));
    report_.ingested(ingested_.back());
  }
  return {};
}

Status Demo::store(DemoStack& stack, const std::string& planner) {
  Progress progress(output_, planner + ": storing");
  for (std::size_t i = 0; i < documents_.size(); ++i) {
    SHALE_TRY(check_interrupt());
    SHALE_TRY(store_document(stack, documents_[i]));
    progress(i + 1, documents_.size());
  }
  return {};
}

Result<DemoPolicy> Demo::answer(DemoStack& stack, const std::string& planner) {
  Progress progress(output_, planner + ": answering");
  std::vector<AnsweredRequest> answered;
  const double first_s = stack.clock().now_s();
  for (const DemoRequest& request : zipf_requests(documents_, workload_.requests, workload_.seed)) {
    SHALE_TRY(check_interrupt());
    const DemoDocument& document = documents_[request.document];
    const IngestedDocument& ingested = ingested_[request.document];
    SHALE_ASSIGN(AnsweredRequest one, answer_request(stack, document, ingested, request, workload_.answer_tokens));
    one.at_s -= first_s;
    answered.push_back(std::move(one));
    report_.answered(planner, answered.back(), document, ingested);
    progress(answered.size(), workload_.requests);
  }
  return policy_of(planner, stack, answered);
}

}  // namespace

Status run_demo(const OpenDemoStack& open, std::span<const std::string> planners, std::vector<DemoDocument> documents,
                const DemoWorkload& workload, DemoReport& report, const OutputOptions& output) {
  SHALE_ASSIGN(const DemoForms forms, forms_of(planners));
  SHALE_ASSIGN(std::unique_ptr<DemoStack> stack, open(std::string(kProfiledBy)));
  const RealClock clock;
  const double start_s = clock.now_s();
  Demo demo(std::move(documents), workload, report, output);
  report.begin(stack->engine().model().info(), stack->tiers(), demo.documents());
  SHALE_TRY(demo.ingest(*stack, forms));

  std::vector<std::size_t> order(planners.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_partition(order, [&](std::size_t i) { return planners[i] == kProfiledBy; });
  std::vector<DemoPolicy> policies(planners.size());
  for (const std::size_t i : order) {
    if (planners[i] != kProfiledBy || !stack) {
      stack.reset();  // its memory first
      SHALE_ASSIGN(stack, open(planners[i]));
      SHALE_TRY(demo.store(*stack, planners[i]));
    }
    SHALE_ASSIGN(policies[i], demo.answer(*stack, planners[i]));
    stack.reset();
  }
  report.compared(policies, clock.now_s() - start_s);
  return {};
}

}  // namespace shale
