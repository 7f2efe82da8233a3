# What an outsider gets: the program, libnrl.so.0, the headers, the plugins (each installs itself),
# examples, skeletons, and a CMake package for plugins of their own. Any prefix works: paths are relative.
include(CMakePackageConfigHelpers)
set(nrl_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/nrl)

install(TARGETS nrl libnrl EXPORT nrl-targets
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY core/include/nrl DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
foreach(folder scripts configs examples)
  if(IS_DIRECTORY ${PROJECT_SOURCE_DIR}/${folder})
    install(DIRECTORY ${folder} DESTINATION ${CMAKE_INSTALL_DATADIR}/nrl)
  endif()
endforeach()

install(EXPORT nrl-targets NAMESPACE nrl:: DESTINATION ${nrl_package_dir})
configure_package_config_file(cmake/nrl-config.cmake.in ${PROJECT_BINARY_DIR}/nrl-config.cmake
  INSTALL_DESTINATION ${nrl_package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/nrl-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/nrl-config.cmake ${PROJECT_BINARY_DIR}/nrl-config-version.cmake
  cmake/nrl_plugin.cmake DESTINATION ${nrl_package_dir})
