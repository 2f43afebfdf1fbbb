#include <cmath>

#include "trace/formats.h"

namespace shale {
namespace {

constexpr double kTimeMaxS = 1e18;  // differences, and their whole seconds, stay within every type

}  // namespace

Status LineTraceReader::start() {
  SHALE_ASSIGN(has_first_, read(first_));
  if (has_first_) return {};
  return fail(ErrorCode::kInvalidArgument, "{} holds no request; a trace has one at least", lines_.file());
}

Result<bool> LineTraceReader::next(RawRequest& request) {
  if (std::exchange(has_first_, false)) {
    std::swap(request, first_);
    return true;
  }
  request.arrival_s = 0;
  request.input_tokens = request.output_tokens = request.output_blocks = 0;
  request.blocks.clear();
  return read(request);
}

Result<double> LineTraceReader::arrival(double time_s, const char* at) {
  if (!(std::abs(time_s) <= kTimeMaxS)) {
    return lines_.fail_at(at, "the time is more than {:g} seconds from zero", kTimeMaxS);
  }
  if (!std::exchange(has_arrival_, true)) first_s_ = last_s_ = time_s;
  if (time_s < last_s_ && !sort_) {
    return lines_.fail_at(at, "the request comes {:.6g} s before the one above it; sort the file, or ask for sorting",
                          last_s_ - time_s);
  }
  last_s_ = time_s;
  return time_s - first_s_;
}

Status LineTraceReader::check_room(std::uint64_t blocks, const char* at) const {
  if (blocks <= request_blocks_max_) return {};
  return lines_.fail_at(at, "the request has more than {} blocks", request_blocks_max_);
}

}  // namespace shale
