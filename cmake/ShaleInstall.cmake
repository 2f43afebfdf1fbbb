# `cmake --install`: the program with its model fetcher; and the store as a library: include/shale/, static libraries and
# the CMake package `shale`, whose target is shale::store.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS shale)
install(PROGRAMS tools/fetch_model.py DESTINATION ${CMAKE_INSTALL_DATADIR}/shale)
install(FILES tools/models.json tools/sentence_model.py DESTINATION ${CMAKE_INSTALL_DATADIR}/shale)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/shale)
set(exported core paging scoring codec tier placement store)
foreach(room ${exported})
  set_target_properties(shale_${room} PROPERTIES EXPORT_NAME ${room})
endforeach()
list(TRANSFORM exported PREPEND shale_)
install(TARGETS ${exported} EXPORT shale-targets)
install(EXPORT shale-targets NAMESPACE shale:: DESTINATION ${package})
install(DIRECTORY include/shale DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
configure_package_config_file(cmake/shale-config.cmake.in shale-config.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(shale-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/shale-config.cmake ${CMAKE_BINARY_DIR}/shale-config-version.cmake
  cmake/ShaleLibraries.cmake DESTINATION ${package})
