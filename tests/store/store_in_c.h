// What store_in_c.c, which a C compiler compiles, offers its test.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

// Saves a chain, opens the store anew, finds it, loads it layer by layer, sees that a wrong call is refused. NULL when
// all was well, else what was not.
const char* store_in_c(const char* folder);

#ifdef __cplusplus
}
#endif
