# What Shale needs of llama.cpp beside ggml, added to llama.cpp's own project by tools/build_llama: tokenizers and the
# rendering of chat templates.
function(shale_finish_llama)
  if(LLAMA_BUILD_COMMON) # by llama.cpp's own programs, which are built as their users have them
    return()
  endif()

  # The kernels are ggml's. The graphs of a hundred architectures take minutes to optimise, and Shale runs none of them; it
  # reads vocabularies and makes tokens of texts.
  target_compile_options(llama PRIVATE -O0)
  set(used llama-vocab.cpp llama-model-loader.cpp unicode.cpp unicode-data.cpp)
  list(TRANSFORM used PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/src/)
  set_property(SOURCE ${used} TARGET_DIRECTORY llama APPEND PROPERTY COMPILE_OPTIONS -O1)

  set(common ${CMAKE_CURRENT_SOURCE_DIR}/common)
  file(GLOB jinja ${common}/jinja/*.cpp)
  add_library(llama-templates STATIC ${jinja} ${common}/json.cpp ${common}/unicode.cpp)
  target_include_directories(llama-templates PRIVATE ${common} vendor)
  target_compile_features(llama-templates PRIVATE cxx_std_17)
  target_compile_options(llama-templates PRIVATE -O1)
  target_link_libraries(llama-templates PRIVATE ggml)
  install(TARGETS llama-templates ARCHIVE)
endfunction()

cmake_language(DEFER CALL shale_finish_llama)
