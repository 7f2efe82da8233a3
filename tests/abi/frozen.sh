#!/bin/sh
# frozen.sh: structs of the public headers may grow at their ends. So a struct that another one contains, and a struct of
# an array without a stride, must be frozen: NRL_STATIC_ASSERT(sizeof(TYPE) == N, ...) stands behind it.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
cat "$root"/core/include/nrl/*.h "$root"/lib/*/include/nrl/*.h | awk '
    { text = text $0 "\n" }
    END {
        rest = text
        while (match(rest, /NRL_STATIC_ASSERT\(sizeof\(nrl_[a-z0-9_]+\)/)) {
            frozen[substr(rest, RSTART + 25, RLENGTH - 26)] = 1
            rest = substr(rest, RSTART + RLENGTH)
        }
        rest = text
        while (match(rest, /typedef struct( nrl_[a-z0-9_]+)? \{/)) { # bodies have no nested braces
            rest = substr(rest, RSTART + RLENGTH)
            body = substr(rest, 1, index(rest, "}") - 1)
            rest = substr(rest, index(rest, "}"))
            name = substr(rest, 3, index(rest, ";") - 3)
            bodies[name] = body
        }
        for (name in bodies) {
            comments = bodies[name]
            n = split(bodies[name], lines, "\n")
            for (i = 1; i <= n; i++) {
                line = lines[i]
                if (match(line, /^    (const )?nrl_[a-z0-9_]+ /) == 0) continue
                type = substr(line, 5, RLENGTH - 5)
                sub(/^const /, "", type)
                if (!(type in bodies) || type in frozen) continue
                member = line
                sub(/;.*$/, "", member)
                if (line !~ /\*/ || member ~ /\[/ && member !~ /\*/) {
                    print name ": contains " type ", which is not frozen: " member
                    bad = 1
                } else if (line ~ /\/\* \[/ && comments !~ /stride/) {
                    print name ": an array of " type ", which is not frozen, without a stride: " member
                    bad = 1
                }
            }
        }
        for (name in frozen) found++
        if (found < 10) { print "only " found + 0 " frozen structs were found"; bad = 1 }
        exit bad
    }'
