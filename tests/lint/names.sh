#!/bin/sh
# names.sh ROOT: core/ holds no name of a plugin of the tree, nor of an axis. Names come from the folders of plugins/,
# so that a new plugin is covered; comments count.
set -u
cd "$1" || exit 1
bad=0

# Kinds whose names are out of core. A kind joins when it is.
kinds='algorithms parallel optimizers backends collectives loggers models datasets tokenizers templates adapters formats frontends stores schedules'
# Ordinary words, and languages: only as a whole string of C.
ordinary=' console cpu tensor pipeline common builtin jinja lua folder txt linear constant polynomial cosine context experts '

# allowed NAME: lines where the word means something else, as an extended regular expression
allowed() {
    case $1 in
    adamw) echo '^core/(tensor/|include/nrl/(backend|optimizer)\.h:)' ;; # the operation of that name
    peft) echo '^core/(config/schema\.[ch]|run/adapters\.c):' ;; # options of the section lora
    llama) echo "LLaMA-Factory|Llama's kind" ;;
    linear) echo '^core/(model/save\.c|tensor/ops/op_linear\.c|include/nrl/format\.h):' ;; # the layer
    *) echo '^$' ;;
    esac
}

for kind in $kinds; do
    for folder in plugins/"$kind"/*/; do
        [ -d "$folder" ] || continue
        name=$(basename "$folder")
        case $ordinary in
        *" $name "*) found=$(grep -rn -e "\"$name\"" core --include='*.[ch]') ;;
        *) found=$(grep -rnwi -e "$name" core --include='*.[ch]') ;;
        esac
        found=$(printf '%s\n' "$found" | grep -vE "$(allowed "$name")" | grep .)
        [ -z "$found" ] && continue
        printf '%s\n  ^ names the plugin %s\n' "$found" "$kind/$name"
        bad=1
    done
done

# Axes, as plugins declare them: a string beside the mesh, an axis or a layout.
axes=$(cat plugins/parallel/*/*.c 2>/dev/null | tr '\n' ' ' | grep -oE 'nrl_mesh_axis [a-z_]+ = \{[^}]*\}' |
    sed -n 's/.*\.name = "\([^"]*\)".*/\1/p' | sort -u)
for axis in $axes; do
    found=$(grep -rnE "(mesh|axis|axes|comm|cut|parallel)[^\"]*\"$axis\"|parallel[.]$axis|axis \\\\?[\"']?$axis\\b" core \
        --include='*.[ch]' | grep .)
    [ -z "$found" ] && continue
    printf '%s\n  ^ names the axis %s\n' "$found" "$axis"
    bad=1
done
exit $bad
