# Compiler, linker and sanitizer settings that hold for everything built here.
find_program(SHALE_CCACHE ccache)
if(SHALE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER ${SHALE_CCACHE})
  # What ccache has to look away from where headers are precompiled; and these, large as they are, it reads but once.
  # By what a compilation read, byte for byte (DEPEND): a header of which only comments changed is another file, and one that
  # was precompiled before is read twice, for #pragma once does not know it again.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_DEPEND=1 CCACHE_INODECACHE=1 CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
    ${SHALE_CCACHE})
endif()
find_program(SHALE_MOLD mold)
if(SHALE_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# g++ would collect its garbage from 128 MiB on, which takes a tenth of its time.
add_compile_options("$<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=524288>")

# Over the build type's: optimised enough to run the tests in minutes, with lines for stack traces, quick to compile.
if(SHALE_SANITIZE)
  add_compile_options(-fsanitize=${SHALE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -O1 -g1)
  add_link_options(-fsanitize=${SHALE_SANITIZE})
endif()
if(SHALE_BUILD_FUZZERS)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# In releases, for what computes next to nothing, which compiles in half the time; and for what computes nothing (commands,
# tests), in a quarter less than that.
set(SHALE_QUICK_TO_COMPILE $<$<CONFIG:Release>:-O1>)
set(SHALE_QUICKEST_TO_COMPILE $<$<CONFIG:Release>:-Og>)

add_library(shale_warnings INTERFACE)
target_compile_options(shale_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
  # g++ 12 sees overlapping copies in std::string's operator+ that cannot happen (GCC bug 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)

# shale_fit_anywhere(TARGET): objects that serve programs and the Python module alike, so that nothing is compiled twice.
function(shale_fit_anywhere target)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-semantic-interposition>)
endfunction()
