#include "core/quantile.h"
#include "demo/demo_report.h"

namespace shale {
namespace {

Json to_json(const TierSpeed& speed) {
  return {{"latency_seconds", speed.latency_s},
          {"read_bytes_per_second", speed.read_bytes_per_s},
          {"write_bytes_per_second", speed.write_bytes_per_s}};
}

class JsonReport final : public DemoReport {
 public:
  void begin(const ModelInfo& model, std::span<const DemoTier> tiers,
             std::span<const DemoDocument> documents) override {
    Json line = {{"demo", "setup"},
                 {"model", model.name},
                 {"prefill_weights", model.prefill_weights},
                 {"decode_weights", model.decode_weights},
                 {"documents", documents.size()},
                 {"tiers", Json::array()}};
    for (const DemoTier& tier : tiers) {
      Json one = {{"tier", tier.name}, {"emulated", tier.emulated}, {"own", to_json(tier.own)}};
      if (tier.capacity_bytes != kUnlimited) one["capacity_bytes"] = tier.capacity_bytes;
      line["tiers"].push_back(std::move(one));
    }
    print_json(line);
  }

  void ingested(const IngestedDocument& document) override {
    Json rows = Json::array();
    for (const ProfileRow& row : document.profile.rows) {
      Json held_out = Json::array();
      for (const Divergence& one : row.held_out) held_out.push_back(one.agreement);
      rows.push_back({{"method", row.method.text()},
                      {"keep", row.keep},
                      {"agreement", row.agreement},
                      {"kl", row.kl},
                      {"bytes", row.bytes},
                      {"decode_seconds", row.decode_s},
                      {"request_agreement", std::move(held_out)}});
    }
    print_json({{"demo", "document"},
                {"document", document.name},
                {"tokens", document.tokens},
                {"bytes", document.bytes},
                {"recompute_ttft_seconds", document.recompute_s},
                {"pool_ttft_seconds", document.pool_s},
                {"questions", document.profile.questions},
                {"questions_by_model", document.questions_by_model.value_or(0)},
                {"profile_seconds", document.profile.seconds},
                {"rows", std::move(rows)}});
  }

  void answered(std::string_view planner, const AnsweredRequest& request, const DemoDocument& document,
                const IngestedDocument& ingested) override {
    print_json({{"demo", "request"},
                {"planner", planner},
                {"document", ingested.name},
                {"question", document.requests[request.question]},
                {"at_seconds", request.at_s},
                {"from", request.from},
                {"method", request.method.text()},
                {"keep", request.keep},
                {"bytes", request.bytes},
                {"ttft_seconds", request.ttft_s},
                {"recompute_ttft_seconds", ingested.recompute_s},
                {"agreement", request.agreement}});
  }

  void compared(std::span<const DemoPolicy> policies, double seconds) override {
    for (const DemoPolicy& policy : policies) {
      print_json(
          {{"demo", "policy"},
           {"planner", policy.planner},
           {"ttft_mean_seconds", policy.ttft_mean_s()},
           {"ttft_p50_seconds", quantile(policy.ttft_s, 0.5)},
           {"ttft_p90_seconds", quantile(policy.ttft_s, 0.9)},
           {"agreement", policy.agreement},
           {"hits", {{"memory", policy.hits[0]}, {"disk", policy.hits[1]}, {"remote", policy.hits[2]}}},
           {"computed", policy.computed},
           {"bytes_held",
            {{"memory", policy.bytes_held[0]}, {"disk", policy.bytes_held[1]}, {"remote", policy.bytes_held[2]}}},
           {"bytes_read", policy.bytes_read}});
    }
    print_json({{"demo", "end"}, {"seconds", seconds}});
  }
};

}  // namespace

std::unique_ptr<DemoReport> make_json_report() { return std::make_unique<JsonReport>(); }

}  // namespace shale
