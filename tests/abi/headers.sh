#!/bin/sh
# headers.sh CC CXX: each public header compiles alone as C11 and as C++17, nrl.hpp with the examples in C++, and an option
# row whose field has a different type compiles in neither language.
set -u
cc=$1 cxx=$2
include=$NRL_TEST_SOURCE/core/include inference=$NRL_TEST_SOURCE/lib/inference/include profiling=$NRL_TEST_SOURCE/lib/profiling/include testing=$NRL_TEST_SOURCE/lib/testing/include operations=$NRL_TEST_SOURCE/lib/operations/include
lie=$NRL_TEST_SOURCE/tests/abi/cases/lie.c
failed=0
for header in "$include"/nrl/*.h "$inference"/nrl/*.h "$profiling"/nrl/*.h "$testing"/nrl/*.h "$operations"/nrl/*.h; do
    line="#include <nrl/$(basename "$header")>"
    echo "$line" | "$cc" -std=c11 -Wall -Wextra -Werror -I"$include" -I"$inference" -I"$profiling" -I"$testing" -I"$operations" -fsyntax-only -x c - || failed=1
    echo "$line" | "$cxx" -std=c++17 -Wall -Wextra -Werror -I"$include" -I"$inference" -I"$profiling" -I"$testing" -I"$operations" -fsyntax-only -x c++ - || failed=1
done
# lies COMPILER FLAGS: option rows compile, and one whose field has a different type does not
lies() {
    "$@" -I"$include" -fsyntax-only "$lie" || failed=1
    if "$@" -DLIE -I"$include" -fsyntax-only "$lie" 2>/dev/null; then
        echo "a row that lies about its field compiled: $*"
        failed=1
    fi
}
lies "$cc" -std=c11
lies "$cxx" -std=c++17 -Wall -Wextra -Werror -x c++
for source in "$NRL_TEST_SOURCE"/examples/*_cpp/*.cpp; do # nrl.hpp
    "$cxx" -std=c++17 -Wall -Wextra -Werror -I"$include" -I"$NRL_TEST_SOURCE/cpp/include" -fsyntax-only "$source" || failed=1
done
exit $failed
