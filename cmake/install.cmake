# `cmake --install` and `cpack`: the program, libnrl, the plugins (each installs itself, nrl_plugin.cmake), the manual page,
# and for developers headers, a CMake package, a pkg-config file, examples and skeletons. Any prefix works, because all paths
# are relative to the program or to the file that contains them.
#   cmake --install build --prefix DIR               everything
#   cmake --install build --component runtime        only runtime, dev or cuda
#   cpack -G TGZ | cpack -G DEB                       (in the build directory) one tarball; one .deb for each component
include(CMakePackageConfigHelpers)
set(nrl_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/nrl)
set(nrl_data_dir ${CMAKE_INSTALL_DATADIR}/nrl)

# ---- runtime ----
install(TARGETS nrl libnrl libnrl-inference libnrl-profiling libnrl-testing libnrl-operations EXPORT nrl-targets
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT dev)
install(FILES ${PROJECT_BINARY_DIR}/${NRL_PLUGIN_SUBDIR}/MANIFEST DESTINATION ${NRL_PLUGIN_SUBDIR} COMPONENT runtime)
install(FILES cli/data/nrl.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME nrl COMPONENT runtime)
install(FILES cli/data/_nrl DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT runtime)
install(FILES cli/data/nrl.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT runtime)
install(FILES cli/data/other-names.txt DESTINATION ${nrl_data_dir} COMPONENT runtime)
install(DIRECTORY configs DESTINATION ${nrl_data_dir} COMPONENT runtime)
install(DIRECTORY scripts DESTINATION ${nrl_data_dir} COMPONENT runtime FILES_MATCHING PATTERN "*.lua")
# The Python module, in the directory that Debian's python3 searches if the prefix is /usr.
install(DIRECTORY python/nrl DESTINATION lib/python3/dist-packages COMPONENT runtime FILES_MATCHING PATTERN "*.py")
install(FILES LICENSE NOTICE CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)

# The manual pages are the output of `nrl help`. An instrumented program is not run during the build.
if(NOT NRL_SANITIZE AND NOT NRL_FUZZ AND NOT CMAKE_CROSSCOMPILING)
  add_custom_command(OUTPUT ${PROJECT_BINARY_DIR}/man/nrl.1
    COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/man
    COMMAND sh ${PROJECT_SOURCE_DIR}/cmake/man.sh $<TARGET_FILE:nrl> ${PROJECT_VERSION} ${PROJECT_BINARY_DIR}/man/nrl.1
    DEPENDS nrl cmake/man.sh VERBATIM)
  add_custom_target(nrl_man ALL DEPENDS ${PROJECT_BINARY_DIR}/man/nrl.1)
  install(DIRECTORY ${PROJECT_BINARY_DIR}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT runtime OPTIONAL
    FILES_MATCHING PATTERN "*.1")
endif()

# ---- dev ----
install(DIRECTORY core/include/nrl cpp/include/nrl lib/inference/include/nrl lib/profiling/include/nrl lib/testing/include/nrl lib/operations/include/nrl DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev
  FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(DIRECTORY examples DESTINATION ${nrl_data_dir} COMPONENT dev)
# The guide to plugins, and the tutorial with the rules of each kind.
install(DIRECTORY docs/plugins DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT dev FILES_MATCHING PATTERN "*.md")
install(FILES docs/security.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT dev)
install(FILES plugins/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR}/plugins COMPONENT dev)
install(EXPORT nrl-targets NAMESPACE nrl:: DESTINATION ${nrl_package_dir} COMPONENT dev)
configure_package_config_file(cmake/nrl-config.cmake.in ${PROJECT_BINARY_DIR}/installed/nrl-config.cmake
  INSTALL_DESTINATION ${nrl_package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/nrl-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/installed/nrl-config.cmake ${PROJECT_BINARY_DIR}/nrl-config-version.cmake
  cmake/nrl_plugin.cmake DESTINATION ${nrl_package_dir} COMPONENT dev)
# find_package(nrl) also finds the build directory, where `nrl plugins install` and `nrl plugins new` of a program that is not
# installed need it. All headers belong to libnrl there, as in an installed tree.
export(EXPORT nrl-targets NAMESPACE nrl::)
file(GLOB side_headers CONFIGURE_DEPENDS lib/*/include cpp/include)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/nrl-config.cmake CONTENT [[
set(NRL_PLUGIN_SUBDIR "@NRL_PLUGIN_SUBDIR@")
include("${CMAKE_CURRENT_LIST_DIR}/nrl-targets.cmake")
target_include_directories(nrl::libnrl INTERFACE "@side_headers@")
include("@PROJECT_SOURCE_DIR@/cmake/nrl_plugin.cmake")
]] @ONLY)
# The pkg-config file derives the prefix from its own path.
file(RELATIVE_PATH nrl_pc_prefix /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" nrl_pc_prefix "${nrl_pc_prefix}")
configure_file(cmake/nrl.pc.in ${PROJECT_BINARY_DIR}/nrl.pc @ONLY)
set(nrl_pc_inference "models without a run: logits, samples, export")
set(nrl_pc_testing "for tests of plugins: contexts, batches and gradients without a run")
set(nrl_pc_profiling "time and memory of a run")
set(nrl_pc_operations "operations that only some models need")
foreach(folder inference profiling testing operations)
  set(nrl_pc_description ${nrl_pc_${folder}})
  configure_file(cmake/nrl-side.pc.in ${PROJECT_BINARY_DIR}/nrl-${folder}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/nrl-${folder}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
endforeach()
install(FILES ${PROJECT_BINARY_DIR}/nrl.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)

include(cmake/pack.cmake)
