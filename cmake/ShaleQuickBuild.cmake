# What makes building quick: headers that many files include, compiled once for all with the same options, and sources that
# are compiled several at a time. Both hide an include that a file lacks, so the preset `debug` does without them.

# shale_precompile(NAME [FOR_PROGRAMS] [LINK libraries…] [HEADERS headers…] [OPTIONS compiler options…]): the target NAME,
# whose precompiled headers rooms reuse, or programs.
function(shale_precompile name)
  cmake_parse_arguments(PRECOMPILE "FOR_PROGRAMS" "" "LINK;HEADERS;OPTIONS" ${ARGN})
  set(source ${CMAKE_BINARY_DIR}/generated/${name}.cc)  # a target needs one
  file(CONFIGURE OUTPUT ${source} CONTENT "")
  add_library(${name} OBJECT ${source})
  target_link_libraries(${name} PRIVATE shale_warnings fmt::fmt ${PRECOMPILE_LINK})
  target_compile_options(${name} PRIVATE ${PRECOMPILE_OPTIONS})
  target_precompile_headers(${name} PRIVATE <algorithm> <array> <chrono> <cstdint> <expected> <filesystem> <functional>
    <map> <memory> <optional> <span> <string> <string_view> <unordered_map> <utility> <vector> <fmt/format.h>
    ${PRECOMPILE_HEADERS})
  if(NOT PRECOMPILE_FOR_PROGRAMS)
    shale_fit_anywhere(${name})
  endif()
endfunction()

shale_precompile(shale_precompiled)

# shale_unite(TARGET): its sources sixteen at a time. Names in anonymous namespaces are to be unique in a room for it, or a
# call could find another file's function (tools/check_style.py looks for these in src/); a source whose names are not goes
# alone (SKIP_UNITY_BUILD_INCLUSION). So does what Highway compiles once for each instruction set: it includes itself.
function(shale_unite target)
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    file(STRINGS ${source} includes_itself REGEX "hwy/foreach_target.h" LIMIT_COUNT 1)
    if(includes_itself)
      set_property(SOURCE ${source} PROPERTY SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${SHALE_UNITY} UNITY_BUILD_BATCH_SIZE 16)
  if(SHALE_UNITY) # what a source keeps to itself is taken for a header's
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()
