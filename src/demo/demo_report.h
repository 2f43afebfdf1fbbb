// What the demo shows, as it goes: for people, or for programs.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "demo/demo_policies.h"
#include "report/output.h"

namespace shale {

class DemoReport {
 public:
  virtual ~DemoReport() = default;
  virtual void begin(const ModelInfo& model, std::span<const DemoTier> tiers,
                     std::span<const DemoDocument> documents) = 0;
  virtual void ingested(const IngestedDocument& document) = 0;
  virtual void answered(std::string_view planner, const AnsweredRequest& request, const DemoDocument& document,
                        const IngestedDocument& ingested) = 0;
  virtual void compared(std::span<const DemoPolicy> policies, double seconds) = 0;
};

// Tables, one line per document and request of the first planner.
std::unique_ptr<DemoReport> make_text_report();
// One JSON object a line: {"demo": "setup" | "document" | "request" | "policy" | "end", …}.
std::unique_ptr<DemoReport> make_json_report();

}  // namespace shale
