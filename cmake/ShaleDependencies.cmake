# Everything Shale stands on, found, never downloaded: `./shale` installs it.
find_package(PkgConfig REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(SQLite3 REQUIRED)
pkg_check_modules(liburing REQUIRED IMPORTED_TARGET liburing)
pkg_check_modules(libxxhash REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(libhwy REQUIRED IMPORTED_TARGET libhwy)
add_library(xxHash::xxhash ALIAS PkgConfig::libxxhash)
add_library(hwy::hwy ALIAS PkgConfig::libhwy)

# llama.cpp, built once outside the checkout: the folder has install/ and, for chat templates, source/common and
# build/common/libllama-common.a.
set(SHALE_LLAMA_DIR "" CACHE PATH "Where ./shale built the pinned llama.cpp")
find_package(llama REQUIRED PATHS ${SHALE_LLAMA_DIR}/install NO_DEFAULT_PATH)
find_package(ZLIB)
find_package(OpenSSL)
add_library(llama_chat INTERFACE)
target_include_directories(llama_chat SYSTEM INTERFACE
  ${SHALE_LLAMA_DIR}/source/common ${SHALE_LLAMA_DIR}/source/vendor)
target_link_libraries(llama_chat INTERFACE
  ${SHALE_LLAMA_DIR}/build/common/libllama-common.a ${SHALE_LLAMA_DIR}/build/common/libllama-common-base.a llama)
add_library(llama::common ALIAS llama_chat)
if(NOT TARGET llama::llama)
  add_library(llama::llama ALIAS llama)
endif()
