#!/bin/sh
# quickstart.sh: the quickstart of the README in 60 steps of each of its two trainings: the loss falls, and preferences are
# ranked right. With NRL_TEST_WHOLE=1, as `campaign.sh learn` runs it, the whole one: from nearly 0 to more than 90 % of
# problems that were not trained on; then preferences make its right answers brief. The same script with the model that
# came of it.
. "$(dirname "$0")/e2e.sh"

# number PATTERN: what \(..\) of a line of the output matched
number() {
    sed -n "s/$1.*/\1/p" out
}

# most WHAT FOUND LIMIT, least WHAT FOUND LIMIT: whole numbers
most() {
    [ "${2:-x}" -le "$3" ] 2>/dev/null || is "$1" "$2" "$3 at most"
}
least() {
    [ "${2:-x}" -ge "$3" ] 2>/dev/null || is "$1" "$2" "$3 at least"
}

steps=train.steps=60
[ -z "${NRL_TEST_WHOLE:-}" ] || steps=
# shellcheck disable=SC2086
run 0 run "$source/scripts/quickstart.lua" out=quick train.seed="${NRL_TEST_SEED:-1}" $steps
grep -E "^(before|after|held-out|trained|preferences)" out
has out "1000 held out; in both: 0;"
most "best constant answer, percent" "$(number '.*best constant answer: \([0-9]*\)')" 4
most "right before training" "$(number '^before training: \([0-9]*\) of 1000 right')" 10
is "samples of each" "$(grep -c '^  .*  ->' out)" 9
least "held-out pairs ranked right, percent" "$(number '^held-out pairs: \([0-9]*\)[.0-9]* % ranked right')" 95
for name in loss logps/rejected; do # the first is of the fine-tuning, the second of the preferences
    folder=quick
    [ $name = loss ] || folder=quick/preferred
    values $folder $name | awk -v name=$name '{ last = $1 } NR == 1 { first = $1 }
        END { exit !(name == "loss" ? last < first / 2 : last < 1.5 * first) }' || is "$name" "$(values $folder $name)" falling
done

if [ -n "${NRL_TEST_WHOLE:-}" ]; then
    least "right after training" "$(number '^after training: \([0-9]*\) of 1000 right')" 901
    most "right and brief before preferences" "$(number '^after training: .*, \([0-9]*\) right and brief')" 250
    least "right and brief after preferences" "$(number '^after preferences: .*, \([0-9]*\) right and brief')" 900
    least "right after preferences" "$(number '^after preferences: \([0-9]*\) of 1000 right')" 901
fi

# its config alone, and a model that exists
run 0 check "$source/configs/quickstart.yaml" data.train=quick/data/train.jsonl \
    data.eval=quick/data/test.jsonl model.config=quick/start/config.json model.tokenizer=quick/start out=checked
run 0 run "$source/scripts/quickstart.lua" model.path=quick/model out=quick2 train.steps=2
has out "weights from quick/model"
exit $failed
