// When it is measuring's turn.
//
// A request that comes while the engine measures waits for a part of a step, which is as long as many a first token
// takes. So while requests come, storing and measuring have a share of the time together, however idle the engine is
// between them: measuring has what storing leaves of it, and half at least. Once none has come for a while, it may have
// all of the time.
#pragma once

#include <algorithm>

namespace shale {

class MeasuringTurns {
 public:
  static constexpr double kShare = 0.1;  // of the time, while requests come

  // Without a request for `quiet_s` none is coming.
  explicit MeasuringTurns(double quiet_s) : quiet_s_(quiet_s) {}

  // One came, or ended.
  void note_request(double now_s) { quiet_from_s_ = now_s + quiet_s_; }
  // A piece of work that began then took so many seconds of its own; storing, beside and before it, `stored_s` in all.
  // What storing took while nobody came, or the share had room for, is paid for.
  void note_piece(double begun_s, double seconds, double stored_s) {
    const double unused_s = kShare * std::max(0.0, begun_s - paid_until_s_);
    const double owed_s = begun_s >= quiet_from_s_ ? 0 : std::max(0.0, stored_s - stored_paid_s_ - unused_s);
    const double pays_s = std::min(seconds, owed_s);
    stored_paid_s_ = stored_s - owed_s + pays_s;
    paid_until_s_ = begun_s + (seconds + pays_s) / kShare;
  }
  bool due(double now_s) const { return now_s >= paid_until_s_ || now_s >= quiet_from_s_; }

 private:
  const double quiet_s_;
  double quiet_from_s_ = 0;
  double paid_until_s_ = 0;   // as much as was taken is the share until then
  double stored_paid_s_ = 0;  // of what storing took; the rest is for later pieces to pay
};

}  // namespace shale
