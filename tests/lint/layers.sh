#!/bin/sh
# layers.sh ROOT: who may include whom.
#   base | rows checkpoint | tokens | api config plugin tensor | mesh model text | data optim | run | inference profiling testing cli | tools
# A folder includes folders of layers to its left, and itself. The plugin host may include config (it
# fills options). lib/{base,rows,tokens,checkpoint} are linked statically into everything; cli/ is the program, lib/{inference,profiling,testing} are libraries beside libnrl,
# tools/ the programs behind the other verbs, the other folders are those of core/.
# Plugins include <nrl/...>, base/ and their own folder.
set -u
cd "$1" || exit 1

core_rule() {
    find lib core cli tools -name '*.[ch]' ! -path '*/include/*' 2>/dev/null | xargs grep -nE '^#include "[a-z_]+/' |
        awk -F'[:"]' '
        BEGIN {
            n = split("base|rows checkpoint|tokens|api config plugin tensor|mesh model text|data optim|run|inference profiling testing cli|tools", layers, "|")
            for (i = 1; i <= n; i++) {
                m = split(layers[i], folders, " ")
                for (j = 1; j <= m; j++) level[folders[j]] = i
            }
        }
        {
            split($1, path, "/"); from = path[1] == "core" || path[1] == "lib" ? path[2] : path[1]
            split($4, name, "/"); to = name[1]
            if (!(to in level)) { print $1 ":" $2 ": includes " $4 ", which is no folder of the library"; bad = 1 }
            else if (from == to || level[from] > level[to]) next
            else if (from == "plugin" && to == "config") next
            else { print $1 ":" $2 ": " from " must not include " $4; bad = 1 }
        }
        END { exit bad }'
}

# room_rule FOLDER ROOMS: inside core/FOLDER a room includes those to its left; the files of FOLDER itself include all.
# With "+" before them, rooms also include the files of FOLDER itself.
room_rule() {
    find "core/$1" -name '*.[ch]' 2>/dev/null | xargs grep -nE "^#include \"$1/" /dev/null |
        awk -F'[:"]' -v folder="$1" -v list="$2" '
        BEGIN {
            common = sub(/^\+ /, "", list)
            n = split(list, rooms, " ")
            for (i = 1; i <= n; i++) level[rooms[i]] = i
        }
        {
            from = split($1, path, "/") == 4 ? path[3] : folder
            to = split($4, name, "/") == 3 ? name[2] : folder
            a = from == folder ? n + 1 : level[from]; b = to == folder ? (common ? a : n + 1) : level[to]
            if (a && b && a >= b) next
            print $1 ":" $2 ": " folder "/" from " must not include " $4; bad = 1
        }
        END { exit bad }'
}

# "x.h" without a folder is a neighbour only in plugins.
plugin_rule() {
    find plugins -name '*.[ch]' -o -name '*.cu' -o -name '*.cpp' | xargs grep -nE '^#include "' /dev/null |
        awk -F'[:"]' '
        $4 ~ /^(nrl|core|plugins|rows|tokens|api|config|plugin|tensor|mesh|model|text|data|optim|checkpoint|run|inference|profiling|testing|cli|tools)\// || $4 ~ /\.\.\/\.\./ {
            print $1 ":" $2 ": a plugin must not include " $4; bad = 1
        }
        END { exit bad }'
}

# Public headers know only each other and C.
public_rule() {
    if find core/include lib/inference/include lib/profiling/include lib/testing/include lib/operations/include -name '*.h' 2>/dev/null | xargs grep -nE '^#include "'; then
        echo "public headers include <nrl/...> only"
        return 1
    fi
}

# Programs of tools/ are clients of the public headers: beyond <nrl/...> they only include base/, cli/common/ and
# neighbours, and some the code of another tool.
tool_rule() {
    find tools -name '*.[ch]' | LC_ALL=C sort | xargs grep -nE '^#include "' /dev/null |
        awk -F'[:"]' '
        $4 ~ /^(base|cli\/common|tools\/(bench|download))\// || $4 !~ /\// { next }
        { print $1 ":" $2 ": a program includes " $4; bad = 1 }
        END { exit bad }'
}

core_rule && room_rule run 'walk output weights open step state infer' && room_rule tensor '+ device memory tape ops head' && plugin_rule && tool_rule && public_rule
