# llama.cpp, built once outside the checkout by tools/build_llama: install/ is its CMake package; what it does not
# install, the rendering of chat templates, lies beside it.
if(NOT EXISTS "${SHALE_LLAMA_DIR}/install")
  message(FATAL_ERROR "SHALE_LLAMA_DIR ('${SHALE_LLAMA_DIR}') is not a build of llama.cpp: "
    "run ./shale, or tools/build_llama FOLDER and configure with -DSHALE_LLAMA_DIR=FOLDER")
endif()
find_package(llama REQUIRED PATHS ${SHALE_LLAMA_DIR}/install NO_DEFAULT_PATH)
add_library(llama::llama ALIAS llama)

add_library(llama_templates INTERFACE)
target_include_directories(llama_templates SYSTEM INTERFACE
  ${SHALE_LLAMA_DIR}/source/common ${SHALE_LLAMA_DIR}/source/vendor)
target_link_libraries(llama_templates INTERFACE ${SHALE_LLAMA_DIR}/install/lib/libllama-templates.a llama)
add_library(llama::templates ALIAS llama_templates)
