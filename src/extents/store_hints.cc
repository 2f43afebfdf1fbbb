#include "extents/store_hints.h"

#include <limits>
#include <utility>

#include "codec/extent.h"

namespace shale {

Status StoreHints::check(const KvGeometry& geometry) const {
  SHALE_TRY(method.check());
  SHALE_TRY(check_encodable(geometry, method));
  if (!(keep > 0 && keep <= 1)) {
    return fail(ErrorCode::kInvalidArgument, "keep {}: give more than 0 and at most 1", keep);
  }
  if (!(quality >= 0 && quality <= 1)) return fail(ErrorCode::kInvalidArgument, "quality {}: give 0 to 1", quality);
  for (const auto& [name, seconds] :
       {std::pair("recompute_s", recompute_s), std::pair("time_to_live_s", time_to_live_s)}) {
    if (!(seconds >= 0 && seconds <= std::numeric_limits<float>::max())) {
      return fail(ErrorCode::kInvalidArgument, "{} {}: give seconds, 0 for none", name, seconds);
    }
  }
  return {};
}

}  // namespace shale
