# Headers that many files include, compiled once for all with the same options. They hide an include that a file lacks,
# so the preset `debug` compiles without them.

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
