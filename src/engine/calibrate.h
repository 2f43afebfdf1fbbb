// Offline calibration of a model: for scorers that ask where queries point (triattention), and for quantizers that ask
// how keys and values lie (cachegen).
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "model/model.h"
#include "quantizers/cachegen_tables.h"
#include "scoring/calibration.h"

namespace shale {

// Runs plain text through the model, in sequences of its own of at most kCalibrationTokens, and adds up the queries of
// every layer and head. `progress(done, total)` counts tokens; false from it ends with kCancelled. kInvalidArgument for
// no tokens, kFull when memory for a sequence's pages is not to be had. Owns the model meanwhile.
inline constexpr std::uint32_t kCalibrationTokens = 1024;
Result<Calibration> calibrate(Model& model, std::span<const Token> tokens,
                              const std::function<bool(std::size_t done, std::size_t total)>& progress = {});

// The same text's keys and values, for cachegen: in two passes, so it takes twice as long. kUnsupported at once for a
// model whose head dimension cachegen cannot code.
Result<CachegenTables> calibrate_cachegen(
    Model& model, std::span<const Token> tokens, const CachegenWidths& widths,
    const std::function<bool(std::size_t done, std::size_t total)>& progress = {});

}  // namespace shale
