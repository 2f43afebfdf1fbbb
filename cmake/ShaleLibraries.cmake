# The libraries that the store stands on: found, never downloaded (`./shale` installs them). Installed with the CMake
# package too, for whoever links the store's static libraries needs the same ones.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(fmt REQUIRED)
find_package(OpenSSL REQUIRED)
foreach(library liburing libxxhash libhwy libcurl)
  pkg_check_modules(${library} REQUIRED IMPORTED_TARGET ${library})
endforeach()
