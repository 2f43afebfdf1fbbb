// What answers of a placement benchmark are worth, found out after it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "engine/engine.h"
#include "loadtest/placement/placement_cells.h"
#include "loadtest/serve/serve_load.h"

namespace shale {

// Adds to the file what is missing there: for every question that was asked its exact answer, alone on the engine, and
// for every lossy form over which it was answered how far that answer is still given over the form, teacher-forced
// (`agreement`). Each context is computed once. Owns the engine meanwhile. kCancelled after Ctrl-C.
Status measure_quality(Engine& engine, std::span<const LoadContext> contexts, std::uint32_t answer_tokens,
                       PlacementFile& file, const std::function<void(std::size_t, std::size_t)>& progress);

// The agreement of one answer: 1 over exact keys and values, else the least of its forms'. Requires measure_quality.
double agreement_of(const PlacementAnswer& answer, const PlacementFile& file);

}  // namespace shale
