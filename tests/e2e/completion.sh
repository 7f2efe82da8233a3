#!/bin/sh
# completion.sh: what shells offer after `nrl`: verbs, flags, keys and values, from the same tables as the help.
. "$(dirname "$0")/e2e.sh"

"$nrl" complete '' | cut -f 1 | sort >offered.txt
{ "$nrl" help | sed -n 's/^  nrl \([a-z]*\).*/\1/p'; "$nrl" help | sed -n 's/^  and nrl //p' | tr ', ' '\n\n' | grep .; echo help; } | sort >verbs.txt
is "verbs that are offered" "$(diff offered.txt verbs.txt)" ""
is "verbs from re" "$("$nrl" complete re | cut -f 1 | tr '\n' ' ')" "resume report "
is "keys from train.prec" "$("$nrl" complete run a.yaml train.prec | cut -f 1)" "train.precision="
is "values of train.precision" "$("$nrl" complete run a.yaml train.precision=b)" "train.precision=bf16"
is "options of plugins" "$("$nrl" complete check a.yaml lora.rank_ | cut -f 1)" "lora.rank_pattern="
is "options of a teacher" "$("$nrl" complete check a.yaml algorithm.teacher_m | cut -f 1)" "algorithm.teacher_model="
is "names of plugins" "$("$nrl" complete run a.yaml optimizer=adamw8 | cut -f 1)" "optimizer=adamw8bit"
is "truth values" "$("$nrl" complete run a.yaml data.packing= | tr '\n' ' ')" "data.packing=true data.packing=false "
is "flags" "$("$nrl" complete check a.yaml --f | cut -f 1)" "--full"
is "second words" "$("$nrl" complete checkpoint v)" "verify"
is "names to describe" "$("$nrl" complete describe adamw8 | cut -f 1)" "adamw8bit"
is "where a file is expected" "$("$nrl" complete run conf)" ""

# Each flag of the usage is offered.
for verb in check sample export launch; do
    for flag in $("$nrl" help $verb | sed -n '/^usage/,/^example/p' | grep -o -- '--[a-z-]*' | grep -v -- '^--$' | sort -u); do
        "$nrl" complete $verb x "$flag" | grep -q -- "^$flag" || is "flag $flag of $verb" absent offered
    done
done

# ---- the shells ----
if command -v bash >dd; then
    cat >try.bash <<'BASH'
source "$1"
compopt() { :; }
COMP_LINE=$2 COMP_POINT=${#2}
_nrl
printf '%s\n' "${COMPREPLY[@]}"
BASH
    PATH=$(dirname "$nrl"):$PATH
    is "bash: a verb" "$(bash try.bash "$source/cli/data/nrl.bash" 'nrl desc')" "describe"
    is "bash: a value" "$(bash try.bash "$source/cli/data/nrl.bash" 'nrl run a.yaml train.precision=b')" "bf16"
    is "bash: a key" "$(bash try.bash "$source/cli/data/nrl.bash" 'nrl run a.yaml train.prec')" "train.precision="
else
    echo "skipped: bash is not installed"
fi
if command -v zsh >dd; then zsh -n "$source/cli/data/_nrl" || is "zsh's syntax" wrong right; else echo "skipped: zsh is not installed"; fi
if command -v fish >dd; then fish -n "$source/cli/data/nrl.fish" || is "fish's syntax" wrong right; else echo "skipped: fish is not installed"; fi
exit $failed
