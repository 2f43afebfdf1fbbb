# `cmake --install` and `cpack`, in two components: `program`, with its model fetcher; and `development`, the store as a
# library: include/shale/, static libraries and the CMake package `shale`, whose target is shale::store. Nothing that is
# installed knows where it lies, so that a prefix may be moved.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# All that is installed; a first answer needs less.
add_custom_target(installable DEPENDS shale shale-lab shale_c_api)

set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME program)
install(TARGETS shale shale-lab)
install(PROGRAMS tools/fetch_model.py tools/pip_download DESTINATION ${CMAKE_INSTALL_DATADIR}/shale)
install(FILES tools/models.json tools/sentence_model.py DESTINATION ${CMAKE_INSTALL_DATADIR}/shale)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)

set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME development)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/libshale-dev RENAME copyright)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/shale)
set(exported core io paging scoring quantizers tier codec tiers placement extents store c_api)
foreach(room ${exported})
  set_target_properties(shale_${room} PROPERTIES EXPORT_NAME ${room})
endforeach()
# What another program calls is the C interface, over the room that it calls.
set_target_properties(shale_store PROPERTIES EXPORT_NAME store_room)
set_target_properties(shale_c_api PROPERTIES EXPORT_NAME store)
list(TRANSFORM exported PREPEND shale_)
install(TARGETS ${exported} EXPORT shale-targets)
install(EXPORT shale-targets NAMESPACE shale:: DESTINATION ${package})
install(DIRECTORY include/shale DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
configure_package_config_file(cmake/shale-config.cmake.in shale-config.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(shale-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/shale-config.cmake ${CMAKE_BINARY_DIR}/shale-config-version.cmake
  cmake/ShaleLibraries.cmake DESTINATION ${package})
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME program)

# `cpack --config BUILD/CPackConfig.cmake -G DEB`: the packages shale and libshale-dev. What the program is linked with
# says what it depends on (dpkg-shlibdeps); a static library has to be told.
set(CPACK_PACKAGE_NAME shale)
set(CPACK_PACKAGE_VENDOR "The Shale authors")
set(CPACK_PACKAGE_CONTACT "The Shale authors <shale@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "KV caches of language models, kept in tiers and compressed")
set(CPACK_COMPONENTS_ALL program development)
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "Shale's store for the KV caches of other engines, to be linked with")
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION
  "A server with OpenAI's API and a command line. They load the KV caches of contexts that were read before.")
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME shale)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_DEPENDS python3)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_RECOMMENDS python3-pip)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION science)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libshale-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
  "g++, pkg-config, libcurl4-openssl-dev, libfmt-dev, libhwy-dev, libssl-dev, liburing-dev, libxxhash-dev")
include(CPack)
