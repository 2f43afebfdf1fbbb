// When it is measuring's turn.
//
// A request that comes while the engine measures waits for a part of a step, which is as long as many a first token
// takes. So while requests come, measuring has its share of the time and no more, however idle the engine is between
// them; once none has come for a while, it may have all of it.
#pragma once

namespace shale {

class MeasuringTurns {
 public:
  static constexpr double kShare = 0.1;  // of the time, while requests come

  // Without a request for `quiet_s` none is coming.
  explicit MeasuringTurns(double quiet_s) : quiet_s_(quiet_s) {}

  // One came, or ended.
  void note_request(double now_s) { quiet_from_s_ = now_s + quiet_s_; }
  // A piece of work that began then took so many seconds of its own.
  void note_piece(double begun_s, double seconds) { paid_until_s_ = begun_s + seconds / kShare; }
  bool due(double now_s) const { return now_s >= paid_until_s_ || now_s >= quiet_from_s_; }

 private:
  const double quiet_s_;
  double quiet_from_s_ = 0;
  double paid_until_s_ = 0;  // as much as measuring took is its share until then
};

}  // namespace shale
