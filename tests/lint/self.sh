#!/bin/sh
# self.sh ROOT: tests the rules themselves: a small tree that obeys them passes, and each single violation is found.
set -u
here=$1/tests/lint
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

fresh() {
    rm -rf "$work/tree"
    mkdir -p "$work/tree/lib/base" "$work/tree/lib/tokens" "$work/tree/lib/testing" "$work/tree/cli" "$work/tree/tools/eval" "$work/tree/core/run/walk" "$work/tree/core/tensor/tape" "$work/tree/core/include/nrl" \
        "$work/tree/plugins/loggers/x" "$work/tree/tests"
    echo '/* a.h */' >"$work/tree/lib/base/a.h"
    echo '/* b.c */' >"$work/tree/core/run/b.c"
    echo '/* e.c */' >"$work/tree/tools/eval/e.c"
    echo '/* nrl.h */' >"$work/tree/core/include/nrl/nrl.h"
    echo '/* x.c */' >"$work/tree/plugins/loggers/x/x.c"
    echo '#include "base/a.h"' >>"$work/tree/core/run/b.c"
    echo '#include "x.h"' >>"$work/tree/plugins/loggers/x/x.c"
}

# sin RULE FILE LINE [FOLDER [SOURCE]]: the rule must fail once the line is added; with such a plugin's folder in the tree.
sin() {
    fresh
    if [ $# -gt 3 ]; then
        mkdir -p "$work/tree/$4"
        [ $# -gt 4 ] && cp "$5" "$work/tree/$4"
        sh "$here/$1.sh" "$work/tree" || { echo "$1 refuses $4 alone"; failed=1; }
    fi
    echo "$3" >>"$work/tree/$2"
    if sh "$here/$1.sh" "$work/tree" >/dev/null 2>&1; then
        echo "$1 does not see '$3' in $2"
        failed=1
    fi
}

fresh
for rule in layers homes names style docs; do
    sh "$here/$rule.sh" "$work/tree" || { echo "$rule refuses what is right"; failed=1; }
done
sin layers lib/base/a.h '#include "run/b.h"'
sin layers core/run/b.c '#include "cli/verbs.h"'
sin layers core/run/b.c '#include "nowhere/n.h"'
sin layers lib/tokens/t.c '#include "text/chat.h"'
sin layers core/run/walk/w.c '#include "run/step/s.h"'
sin layers core/tensor/tape/t.c '#include "tensor/ops/o.h"'
sin layers lib/base/a.h '#include "config/c.h"'
sin layers core/run/b.c '#include "tools/eval/e.h"'
sin layers core/run/b.c '#include "testing/t.h"'
sin layers plugins/loggers/x/x.c '#include "run/b.h"'
sin layers plugins/loggers/x/x.c '#include "testing/t.h"'
sin layers plugins/loggers/x/x.c '#include "../../loggers/y/y.h"'
sin layers core/include/nrl/nrl.h '#include "base/a.h"'
sin layers tools/eval/e.c '#include "run/b.h"'
sin homes core/run/b.c '#include <dlfcn.h>'
sin homes lib/base/a.h '#include <yaml.h>'
sin homes core/run/b.c '# include <lua.h>'
sin homes plugins/loggers/x/x.c '#include <oneapi/dnnl/dnnl.h>'
sin homes core/run/b.c '    exit(1);'
sin homes plugins/loggers/x/x.c '    const char *home = getenv("HOME");'
sin homes lib/base/a.h '#ifdef NRL_CUDA'
sin names core/run/b.c '/* as quux does */' plugins/optimizers/quux
sin names core/run/b.c '    if (!strcmp(name, "console")) return;' plugins/loggers/console
sin names core/include/nrl/nrl.h '/* Quux, for one */' plugins/models/quux
mkdir "$work/axis"
echo 'static const nrl_mesh_axis quux_axis = {.size = 1, .name = "ring"};' >"$work/axis/quux.c"
sin names core/run/b.c '    int32_t n = nrl_mesh_size(mesh, "ring");' plugins/parallel/quux "$work/axis/quux.c"
sin style core/run/b.c "$(printf '\tint x;')"
sin style core/run/b.c 'int x; '
sin style core/run/b.c '/* TODO: more */'
sin style core/run/b.c "$(printf '%0150d' 0)"
sin docs core/run/b.c '/* see /home''/somebody/notes */'
sin docs plugins/loggers/x/README.md 'It begins in `y.c`.'
exit $failed
