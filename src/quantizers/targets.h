// Include before Highway. Kernels here work in vectors of eight 16-bit lanes and more, which every x86-64 processor
// since 2006 has (SSSE3): Highway's one-lane fallback is not built.
#pragma once

#if defined(__x86_64__)
#define HWY_BASELINE_TARGETS HWY_SSSE3
#endif
