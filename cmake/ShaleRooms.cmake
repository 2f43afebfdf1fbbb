# shale_room(NAME [IN_PYTHON] ROOMS lower… LINK libraries…): the static library shale_NAME from src/NAME/*.cc; IN_PYTHON:
# fit to become part of the Python module.
function(shale_room name)
  cmake_parse_arguments(ROOM "IN_PYTHON" "" "ROOMS;LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cc)
  if(sources)
    add_library(shale_${name} STATIC ${sources})
    target_link_libraries(shale_${name} PRIVATE $<BUILD_INTERFACE:shale_warnings>)
    if(ROOM_IN_PYTHON AND SHALE_PYTHON)
      set_target_properties(shale_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    endif()
    set(scope PUBLIC)
  else() # a room of headers only
    add_library(shale_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  list(TRANSFORM ROOM_ROOMS PREPEND shale_)
  target_link_libraries(shale_${name} ${scope} ${ROOM_ROOMS} ${ROOM_LINK})
  target_include_directories(shale_${name} ${scope} $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/src>
    $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<BUILD_INTERFACE:${CMAKE_BINARY_DIR}/generated>
    $<INSTALL_INTERFACE:include>)
endfunction()

# shale_room_tests(NAME): the test program NAME_test from tests/NAME/*_test.cc, registered with ctest case by case.
function(shale_room_tests name)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${name}/*_test.cc)
  if(sources)
    add_executable(${name}_test ${sources})
    target_link_libraries(${name}_test PRIVATE shale_${name} shale_warnings GTest::gmock GTest::gtest_main ${ARGN})
    target_include_directories(${name}_test PRIVATE ${CMAKE_SOURCE_DIR}/tests)
    target_compile_options(${name}_test PRIVATE ${SHALE_QUICK_TO_COMPILE})
    gtest_discover_tests(${name}_test DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 600)
  endif()
endfunction()
