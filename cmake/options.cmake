# Warnings and sanitizers, for everything that is built here; not for outsiders.
add_library(nrl_options INTERFACE)
target_compile_definitions(nrl_options INTERFACE $<$<COMPILE_LANGUAGE:C>:_GNU_SOURCE=>) # C++ has it
target_compile_options(nrl_options INTERFACE
  $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wshadow -Wstrict-prototypes -Wconversion -Wno-sign-conversion>
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra>
  # A status says whether an out parameter was set; gcc cannot see that and guesses wrong at -O3.
  $<$<AND:$<C_COMPILER_ID:GNU>,$<COMPILE_LANGUAGE:C,CXX>>:-Wno-maybe-uninitialized>
  "$<$<COMPILE_LANGUAGE:C,CXX>:-fno-semantic-interposition;-fno-math-errno>"
  # __FILE__ is relative to the source tree, so that what is installed does not name the folder it was built in.
  "$<$<COMPILE_LANGUAGE:C,CXX>:-fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=>")
# Instrumented code makes gcc warn of what cannot happen, so there warnings stay warnings.
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
