#!/bin/sh
# shapes.sh: each row in the tables of docs/data-shapes.md works, or is refused with the text that the table names; an
# option in the hint, or a command (where jq is installed), makes the row work.
. "$(dirname "$0")/e2e.sh"

echo 'return function() return 1 end' >reward.lua
check() {
    cat "$2" "$2" "$2" "$2" "$2" "$2" "$2" "$2" >rows.jsonl # the loss of labelled answers takes groups of 8
    config=$1 loss=
    [ "$1" != grpo ] || config=sft loss='algorithm={name: grpo, reward: reward.lua}'
    shift 2
    run "$@" "$source/configs/$config.yaml" ${loss:+"$loss"} data.train=rows.jsonl data.eval= eval.every=0 train.global_batch=8 \
        data.max_length=400 train.micro_batch_tokens=4000 ${columns:+"data.columns=$columns"}
}

grep '^| .*`{' "$source/docs/data-shapes.md" | sed 's/^| //; s/ |$//' >lines
n=$(wc -l <lines)
[ "$n" -ge 45 ] || is "rows of the tables" "$n" "45 or more"
have_jq=$(command -v jq) || echo "skipped: the filters of the hints: jq is not installed"
while IFS= read -r line; do
    columns=
    algorithm=$(printf '%s' "$line" | sed 's/^[^|]*| *//; s/ *|.*//')
    printf '%s\n' "$line" | sed 's/^[^|]*|[^|]*| `//; s/` | [a-z].*$//' >row.jsonl
    result=$(printf '%s' "$line" | sed 's/.*` | \([a-z]*\)/\1/')
    case $result in
    works)
        check "$algorithm" row.jsonl 0 check
        continue
        ;;
    esac
    check "$algorithm" row.jsonl 65 check
    text=$(printf '%s' "$line" | sed 's/.* | refused: `\(.*\)`$/\1/')
    has err "$text"
    columns=$(sed -n 's/.*data\.columns: *\({.*}\)$/\1/p' err)
    filter=$(sed -n "s/.*jq -c '\(.*\)' FILE.*/\1/p" err)
    if [ -n "$columns" ]; then
        check "$algorithm" row.jsonl 0 check
    elif [ -n "$filter" ] && [ -n "$have_jq" ]; then
        case $filter in *ANSWER* | *NAME*) continue ;; esac
        jq -c "$filter" row.jsonl >converted.jsonl || is "jq" "failed on $filter" "rows"
        check "$algorithm" converted.jsonl 0 check
    fi
done <lines
exit $failed
