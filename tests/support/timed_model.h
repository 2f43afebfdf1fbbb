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
    ++begun;
    layer_s_ = (step_s + static_cast<double>(tokens) * token_s) / info().layers;
    EachLayer each(*this, hooks);
    return ModelWrapper::begin(batch, &each);
  }
  Result<std::optional<std::span<const float>>> resume(StepHooks* hooks) override {
    EachLayer each(*this, hooks);
    return ModelWrapper::resume(&each);
  }

  bool apart = false;
  double step_s = kStepS, token_s = kTokenS;
  int begun = 0;  // steps

 private:
  class EachLayer final : public StepHooks {
   public:
    EachLayer(TimedModel& model, StepHooks* hooks) : model_(model), hooks_(hooks) {}
    bool ready(std::uint32_t layer) override { return !hooks_ || hooks_->ready(layer); }
    Status before_attention(std::uint32_t layer) override {
      return hooks_ ? hooks_->before_attention(layer) : Status();
    }
    void after_layer(std::uint32_t layer) override {
      model_.clock_.sleep_until_s(model_.clock_.now_s() + model_.layer_s_);
      if (hooks_) hooks_->after_layer(layer);
    }

   private:
    TimedModel& model_;
    StepHooks* hooks_;
  };

  std::unique_ptr<Model> model_;
  VirtualClock& clock_;
  double layer_s_ = 0;  // of the step at hand
};

}  // namespace shale::testing
