// Work that recurses as deeply as its input is long, in libraries that were not written for that.
#pragma once

#include <cstddef>
#include <functional>

namespace shale {

// Runs `work` on a stack of so many bytes, of which only those that it touches take memory, and passes its exception
// on. False, with nothing done, where there is no such stack.
bool run_on_stack(std::size_t bytes, const std::function<void()>& work);

}  // namespace shale
