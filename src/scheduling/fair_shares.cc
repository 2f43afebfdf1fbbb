#include "scheduling/fair_shares.h"

#include <algorithm>
#include <cassert>

namespace shale {

const FairShares::Share* FairShares::least_served() const {
  const Share* least = nullptr;
  for (const auto& [tenant, share] : shares_) {
    if (share.waiting > 0 && (!least || share.service < least->service)) least = &share;
  }
  return least;
}

FairShares::Share& FairShares::enter(std::string_view tenant, double weight) {
  assert(weight > 0);
  const auto known = shares_.find(tenant);
  Share& share = known != shares_.end() ? known->second : shares_[std::string(tenant)];
  share.tenant = tenant;
  share.weight = weight;
  if (share.waiting == 0) {
    const Share* least = least_served();
    if (!least) least = last_;
    if (least) share.service = std::max(share.service, least->service);
  }
  ++share.waiting;
  return share;
}

void FairShares::leave(Share& share) {
  assert(share.waiting > 0);
  --share.waiting;
  last_ = &share;
}

}  // namespace shale
