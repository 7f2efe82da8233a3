# The libraries of the core and of plugins; each is used by one directory only.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(SODIUM REQUIRED IMPORTED_TARGET libsodium)
pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)
pkg_check_modules(LZMA QUIET IMPORTED_TARGET liblzma) # optional: data files compressed by xz
pkg_check_modules(CURL QUIET IMPORTED_TARGET libcurl) # optional: `nrl download`, `nrl upload`
pkg_check_modules(MICROHTTPD QUIET IMPORTED_TARGET libmicrohttpd) # optional: `nrl serve`, the page of `nrl watch`
add_library(nrl_base_libraries INTERFACE)
target_link_libraries(nrl_base_libraries INTERFACE PkgConfig::JANSSON PkgConfig::YAML PkgConfig::XXHASH PkgConfig::SODIUM
  PkgConfig::ZSTD Threads::Threads m)
add_library(nrl_core_libraries INTERFACE)
target_link_libraries(nrl_core_libraries INTERFACE nrl_base_libraries ${CMAKE_DL_LIBS})
