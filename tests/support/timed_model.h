// A model whose steps take so much of a virtual clock's time.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "core/clock.h"
#include "support/model_wrapper.h"

namespace shale::testing {

class TimedModel final : public ModelWrapper {
 public:
  static constexpr double kStepS = 0.01, kTokenS = 0.0005;

  TimedModel(std::unique_ptr<Model> model, VirtualClock& clock)
      : ModelWrapper(*model), model_(std::move(model)), clock_(clock) {}

  bool answers_apart() const override { return apart; }
  Result<std::optional<std::span<const float>>> begin(std::span<const StepSequence> batch, StepHooks* hooks) override {
    std::size_t tokens = 0;
    bool prompt = false, answer = false;
    for (const StepSequence& each : batch) {
      tokens += each.tokens.size();
      prompt = prompt || each.role == StepSequence::Role::kPrompt;
      answer = answer || each.role == StepSequence::Role::kAnswer;
    }
    EXPECT_FALSE(apart && prompt && answer) << "as models with weights of their own for answers refuse";
    clock_.sleep_until_s(clock_.now_s() + step_s + static_cast<double>(tokens) * token_s);
    return ModelWrapper::begin(batch, hooks);
  }

  bool apart = false;
  double step_s = kStepS, token_s = kTokenS;

 private:
  std::unique_ptr<Model> model_;
  VirtualClock& clock_;
};

}  // namespace shale::testing
