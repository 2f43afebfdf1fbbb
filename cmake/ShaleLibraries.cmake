# The libraries Shale stands on: found, never downloaded (`./shale` installs them). Installed with the CMake package
# too, for whoever links Shale's static libraries needs the same ones.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(ZLIB REQUIRED)
foreach(library liburing libxxhash libhwy)
  pkg_check_modules(${library} REQUIRED IMPORTED_TARGET ${library})
endforeach()
