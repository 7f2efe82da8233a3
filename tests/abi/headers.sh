#!/bin/sh
# headers.sh CC CXX: each public header compiles alone as C11 and as C++17, and an option row whose field has a
# different type does not compile.
set -u
cc=$1 cxx=$2
include=$NRL_TEST_SOURCE/core/include inference=$NRL_TEST_SOURCE/inference/include profiling=$NRL_TEST_SOURCE/profiling/include testing=$NRL_TEST_SOURCE/testing/include operations=$NRL_TEST_SOURCE/operations/include
lie=$NRL_TEST_SOURCE/tests/abi/cases/lie.c
failed=0
for header in "$include"/nrl/*.h "$inference"/nrl/*.h "$profiling"/nrl/*.h "$testing"/nrl/*.h "$operations"/nrl/*.h; do
    line="#include <nrl/$(basename "$header")>"
    echo "$line" | "$cc" -std=c11 -Wall -Wextra -Werror -I"$include" -I"$inference" -I"$profiling" -I"$testing" -I"$operations" -fsyntax-only -x c - || failed=1
    echo "$line" | "$cxx" -std=c++17 -Wall -Wextra -Werror -I"$include" -I"$inference" -I"$profiling" -I"$testing" -I"$operations" -fsyntax-only -x c++ - || failed=1
done
"$cc" -std=c11 -I"$include" -fsyntax-only "$lie" || failed=1
if "$cc" -std=c11 -DLIE -I"$include" -fsyntax-only "$lie" 2>/dev/null; then
    echo "a row that lies about its field compiled"
    failed=1
fi
exit $failed
