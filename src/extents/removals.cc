#include "extents/removals.h"

#include <algorithm>
#include <utility>

namespace shale {

void Removals::note(const Removal& removal, bool is_owed) {
  Known& known = all_[removal.owner.name];
  bytes_ += removal.bytes - known.bytes;
  known = {removal.bytes, is_owed};
}

void Removals::begin(const Removal& removal) {
  forget(removal.owner.name);
  note(removal, false);
}

void Removals::owe(Removal removal, double now_s, std::string why) {
  const bool first = owed() == 0, again = again_ == removal.owner.name;
  if (first) pause_s_ = kPauseS;
  if (first || again) {
    again_s_ = now_s + pause_s_;
    pause_s_ = std::min(2 * pause_s_, kPauseMaxS);
  }
  if (again) again_.reset();
  if (!why.empty()) why_ = std::move(why);
  note(removal, true);
  owed_.push_back(std::move(removal));
}

std::optional<Removal> Removals::begin_again(double now_s) {
  if (owed_.empty() || again_ || now_s < again_s_) return std::nullopt;
  Removal removal = std::move(owed_.front());
  owed_.pop_front();
  again_ = removal.owner.name;
  note(removal, false);
  return removal;
}

void Removals::end(const Hash128& name) {
  const auto known = all_.find(name);
  if (known == all_.end()) return;
  bytes_ -= known->second.bytes;
  all_.erase(known);
  if (again_ != name) return;
  again_.reset();
  again_s_ = 0;
  pause_s_ = kPauseS;
}

void Removals::forget(const Hash128& name) {
  const auto known = all_.find(name);
  if (known == all_.end() || !known->second.is_owed) return;
  std::erase_if(owed_, [&](const Removal& removal) { return removal.owner.name == name; });
  end(name);
}

bool Removals::tries(const Hash128& name) const {
  const auto known = all_.find(name);
  return known != all_.end() && !known->second.is_owed;
}

}  // namespace shale
