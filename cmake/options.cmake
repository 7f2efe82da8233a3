# Warnings and sanitizers for everything in this tree; they are not exported.
add_library(nrl_options INTERFACE)
target_compile_definitions(nrl_options INTERFACE $<$<COMPILE_LANGUAGE:C>:_GNU_SOURCE=>) # C++ has it
target_compile_options(nrl_options INTERFACE
  $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wshadow -Wstrict-prototypes -Wconversion -Wno-sign-conversion>
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra>
  # A status says whether an output parameter was set; gcc does not know that, and warns without reason at -O3.
  $<$<AND:$<C_COMPILER_ID:GNU>,$<COMPILE_LANGUAGE:C,CXX>>:-Wno-maybe-uninitialized>
  "$<$<COMPILE_LANGUAGE:C,CXX>:-fno-semantic-interposition;-fno-math-errno>"
  # __FILE__ is relative to the source tree, so that installed files do not contain the path of the build.
  "$<$<COMPILE_LANGUAGE:C,CXX>:-fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=>")
# gcc has false warnings about instrumented code, so they are not errors there.
option(NRL_WERROR "warnings are errors" ON)
if(NRL_WERROR AND NOT NRL_SANITIZE)
  target_compile_options(nrl_options INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-Werror>)
endif()
if(NRL_SANITIZE)
  target_compile_options(nrl_options INTERFACE
    "$<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${NRL_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=undefined>")
  target_link_options(nrl_options INTERFACE -fsanitize=${NRL_SANITIZE})
endif()
# Everything is instrumented for coverage; only the targets in tests/fuzz link the fuzzer's main.
if(NRL_FUZZ)
  target_compile_options(nrl_options INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=fuzzer-no-link>)
endif()
