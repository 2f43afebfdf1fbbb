# The libraries that the store stands on: found, never downloaded (`./shale` installs them). Installed with the CMake
# package too, for whoever links the store's static libraries needs the same ones.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(fmt REQUIRED)
find_package(OpenSSL REQUIRED)
foreach(library liburing libxxhash libhwy libcurl)
  pkg_check_modules(${library} REQUIRED IMPORTED_TARGET ${library})
endforeach()

# SIMD kernels are compiled for SSSE3, which every x86-64 processor since 2006 has, AVX2 and AVX-512. Between the first
# two nothing is gained that would be worth compiling, and kernels need more than Highway's one-lane fallback.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_definitions(PkgConfig::libhwy INTERFACE HWY_BASELINE_TARGETS=HWY_SSSE3 HWY_DISABLED_TARGETS=HWY_SSE4)
endif()
