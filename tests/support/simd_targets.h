// Runs a test body under every instruction set that this machine and this build have.
#pragma once

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <functional>

namespace shale {

inline void for_each_simd_target(const std::function<void()>& body) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace shale
