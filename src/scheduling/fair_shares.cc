#include "scheduling/fair_shares.h"

#include <algorithm>
#include <cassert>

namespace shale {

const FairShares::Share* FairShares::least_served() const {
  const Share* least = nullptr;
  for (const auto& [tenant, share] : shares_) {
    if (share.requests > 0 && (!least || share.service < least->service)) least = &share;
  }
  return least;
}

FairShares::Share& FairShares::enter(std::string_view tenant, double weight) {
  assert(weight > 0);
  const auto known = shares_.find(tenant);
  Share& share = known != shares_.end() ? known->second : shares_[std::string(tenant)];
  share.tenant = tenant;
  share.weight = weight;
  if (share.requests == 0) {
    const Share* least = least_served();
    share.service = std::max(share.service, least ? least->service : last_service_);
  }
  ++share.requests;
  return share;
}

void FairShares::leave(Share& share) {
  assert(share.requests > 0);
  if (--share.requests == 0 && !least_served()) last_service_ = share.service;
}

}  // namespace shale
