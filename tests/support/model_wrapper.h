// A model that hands everything on to another, for tests that count or time some of it.
#pragma once

#include <optional>
#include <span>

#include "model/model.h"

namespace shale::testing {

// The other must outlive it.
class ModelWrapper : public Model {
 public:
  explicit ModelWrapper(Model& model) : model_(model) {}

  const ModelInfo& info() const override { return model_.info(); }
  PageShape page_shape() const override { return model_.page_shape(); }
  bool answers_apart() const override { return model_.answers_apart(); }
  bool quick(std::span<const StepSequence> batch) const override { return model_.quick(batch); }
  bool has_quick() const override { return model_.has_quick(); }
  Hash128 fingerprint() const override { return model_.fingerprint(); }
  Executor& executor() override { return model_.executor(); }
  Result<std::optional<std::span<const float>>> begin(std::span<const StepSequence> batch, StepHooks* hooks) override {
    return model_.begin(batch, hooks);
  }
  Result<std::optional<std::span<const float>>> resume(StepHooks* hooks) override { return model_.resume(hooks); }

 private:
  Model& model_;
};

}  // namespace shale::testing
