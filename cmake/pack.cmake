# Output of cpack: one tarball with everything, or a .deb for each of the components runtime (nrl), dev (libnrl-dev) and,
# if the cuda backend was built, cuda (nrl-cuda).
set(CPACK_PACKAGE_NAME nrl)
set(CPACK_PACKAGE_VENDOR "the nrl authors")
set(CPACK_PACKAGE_CONTACT "the nrl authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "fine-tune language models from a config or a Lua script")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_GENERATOR TGZ)
set(CPACK_COMPONENTS_ALL runtime dev)
if(TARGET nrl_backends_cuda)
  list(APPEND CPACK_COMPONENTS_ALL cuda)
endif()

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/lib) # libnrl itself
set(CPACK_DEBIAN_PACKAGE_SECTION science)

set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME nrl)
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "fine-tune language models from a config or a Lua script
 The program nrl, the library libnrl, and the plugins that come with nrl: losses,
 models, optimizers, loggers, parallel strategies, and the CPU backend.")

set(CPACK_DEBIAN_DEV_PACKAGE_NAME libnrl-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "nrl (= ${PROJECT_VERSION})")
set(CPACK_COMPONENT_DEV_DESCRIPTION "headers and build files for plugins of nrl
 C headers, a CMake package, a pkg-config file, example plugins, and the skeletons
 that `nrl plugins new` copies.")

set(CPACK_DEBIAN_CUDA_PACKAGE_NAME nrl-cuda)
set(CPACK_DEBIAN_CUDA_PACKAGE_DEPENDS "nrl (= ${PROJECT_VERSION})")
set(CPACK_COMPONENT_CUDA_DESCRIPTION "the CUDA backend of nrl
 Needs NVIDIA's driver, and cuBLAS (and cuDNN where attention is to use it), which it
 opens when it starts.")

# Debian requires the license of a package in share/doc/PACKAGE/copyright.
set(nrl_deb_packages runtime nrl dev libnrl-dev cuda nrl-cuda)
while(nrl_deb_packages)
  list(POP_FRONT nrl_deb_packages component package)
  if(component IN_LIST CPACK_COMPONENTS_ALL)
    install(FILES LICENSE RENAME copyright DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/${package}
      COMPONENT ${component})
  endif()
endwhile()
include(CPack)
