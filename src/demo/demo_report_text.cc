#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <string>

#include "core/quantile.h"
#include "core/units.h"
#include "core/utf8.h"
#include "demo/demo_report.h"

namespace shale {
namespace {

std::string in_ms(double seconds) { return fmt::format("{:.0f} ms", seconds * 1e3); }

std::string shortened(std::string_view text, std::size_t width) {
  return text.size() <= width ? std::string(text) : fmt::format("{}~", utf8_front(text, width - 1));
}

std::string configuration(const Method& method, double keep) {
  return keep < 1 ? fmt::format("{} keep {}", method.text(), keep) : method.text();
}

std::string speed(const TierSpeed& speed) {
  return fmt::format("{} after {}", format_rate(speed.read_bytes_per_s), format_duration(speed.latency_s));
}

std::string title(std::string name) {
  name.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(name.front())));
  return name;
}

class TextReport final : public DemoReport {
 public:
  void begin(const ModelInfo& model, std::span<const DemoTier> tiers, std::span<const DemoDocument> documents) override;
  void ingested(const IngestedDocument& document) override;
  void answered(std::string_view planner, const AnsweredRequest& request, const DemoDocument& document,
                const IngestedDocument& ingested) override;
  void compared(std::span<const DemoPolicy> policies, double seconds) override;

 private:
  std::string shown_;  // the planner whose requests are
  std::size_t requests_ = 0;
};

void TextReport::begin(const ModelInfo& model, std::span<const DemoTier> tiers,
                       std::span<const DemoDocument> documents) {
  fmt::print("Model      {}, prefill in {}, decode in {}\n", model.name, model.prefill_weights, model.decode_weights);
  fmt::print("Documents  {}, cut at a paragraph\n", documents.size());
  for (const DemoTier& tier : tiers) {
    std::string line =
        tier.capacity_bytes == kUnlimited ? "unlimited" : "room for " + format_bytes(tier.capacity_bytes);
    if (!tier.emulated.empty()) {
      line += fmt::format(", emulates \"{}\"; this machine's own reads {}", tier.emulated, speed(tier.own));
    }
    fmt::print("{:<10} {}\n", title(tier.name), line);
  }
  fmt::print(
      "\nEvery document is read once with nothing cached, then once with its pages still in the pool; then each\n"
      "compression's answers to profiling questions are compared with the full cache's.\n\n");
  fmt::print("{:<14} {:>6} {:>10} {:>10} {:>10}   {}\n", "DOCUMENT", "TOKENS", "KV CACHE", "RECOMPUTED", "FROM POOL",
             "AGREEMENT: int8, half of the tokens kept by the best scorer");
}

void TextReport::ingested(const IngestedDocument& document) {
  double int8 = 0;
  const ProfileRow* half = nullptr;
  for (const ProfileRow& row : document.profile.rows) {
    if (row.method.text() == "int8") int8 = row.agreement;
    if (row.keep == 0.5 && (!half || row.agreement > half->agreement)) half = &row;
  }
  const std::string written =
      document.questions_by_model ? fmt::format(" ({} questions by the model)", *document.questions_by_model) : "";
  fmt::print("{:<14} {:>6} {:>10} {:>10} {:>10}   {:.2f}, {}{}\n", shortened(document.name, 14), document.tokens,
             format_bytes(document.bytes), in_ms(document.recompute_s), in_ms(document.pool_s), int8,
             half ? fmt::format("{:.2f} {}", half->agreement, half->method.text()) : "-", written);
  std::fflush(stdout);
}

void TextReport::answered(std::string_view planner, const AnsweredRequest& request, const DemoDocument& document,
                          const IngestedDocument& ingested) {
  if (shown_.empty()) shown_ = planner;
  if (planner != shown_) return;
  if (requests_ == 0) {
    fmt::print("\nPlanner {}\n\n{:>3} {:<14} {:<34} {:<8} {:<20} {:>8} {:>10} {:>9}\n", planner, "#", "DOCUMENT",
               "QUESTION", "FROM", "STORED AS", "TTFT", "RECOMPUTED", "AGREEMENT");
  }
  const std::string stored = request.from == kComputed ? "-" : configuration(request.method, request.keep);
  fmt::print("{:>3} {:<14} {:<34} {:<8} {:<20} {:>8} {:>10} {:>9.2f}\n", ++requests_, shortened(ingested.name, 14),
             shortened(document.requests[request.question], 34), request.from, stored, in_ms(request.ttft_s),
             in_ms(ingested.recompute_s), request.agreement);
  std::fflush(stdout);
}

void TextReport::compared(std::span<const DemoPolicy> policies, double seconds) {
  std::size_t width = 8;
  for (const DemoPolicy& policy : policies) width = std::max(width, policy.planner.size());
  fmt::print("\nThe same {} requests by planner, each live on a cache of its own\n\n", requests_);
  fmt::print("{:<{}} {:>9} {:>8} {:>8} {:>9}  {:>6} {:>5} {:>6} {:>8}  {:>9} {:>9} {:>9}\n", "PLANNER", width,
             "TTFT mean", "p50", "p90", "AGREEMENT", "MEMORY", "DISK", "REMOTE", "COMPUTED", "IN MEMORY", "ON DISK",
             "READ");
  for (const DemoPolicy& policy : policies) {
    fmt::print("{:<{}} {:>9} {:>8} {:>8} {:>9.3f}  {:>6} {:>5} {:>6} {:>8}  {:>9} {:>9} {:>9}\n", policy.planner, width,
               in_ms(policy.ttft_mean_s()), in_ms(quantile(policy.ttft_s, 0.5)), in_ms(quantile(policy.ttft_s, 0.9)),
               policy.agreement, policy.hits[0], policy.hits[1], policy.hits[2], policy.computed,
               format_bytes(policy.bytes_held[0]), format_bytes(policy.bytes_held[1]), format_bytes(policy.bytes_read));
  }
  fmt::print(
      "\nAGREEMENT  share of the full cache's own answer that is still the model's first choice, token by token, on "
      "the\n"
      "           request's own question; measured once per document, question and compression.\n"
      "RECOMPUTED time to first token of this document with nothing cached, measured in this run.\n"
      "MEMORY to COMPUTED: requests, by the slowest tier that they read. IN MEMORY and ON DISK: what lies there at "
      "the\n"
      "           end, READ: by all requests.\n");
  fmt::print("\nAll of it took {}.\n", format_duration(seconds));
}

}  // namespace

std::unique_ptr<DemoReport> make_text_report() { return std::make_unique<TextReport>(); }

}  // namespace shale
