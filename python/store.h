// The store of the Python module.
#pragma once

#include <nanobind/nanobind.h>

namespace shale {

// Adds View, Load, Save, Store, StoreError and block_keys, over the store's C interface.
void bind_store(nanobind::module_& module);

}  // namespace shale
