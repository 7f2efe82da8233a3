#!/bin/sh
# optimizer_bytes.sh: the bytes of a parameter that a run holds, for each optimizer and encoding (tests/bench/optimizer_bytes.py).
# Norms, and matrices that are too small for 8 bits, count more in this little model than in the table of docs/plugins/optimizers.md.
. "$(dirname "$0")/e2e.sh"

command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
cat >expected <<'WORDS'
adamw 16 18 16 15.5
adamw8bit 10.45 12.45 10.45 9.95
adafactor 8.1 10.1 8.1 7.6
lion 12 14 12 11.5
muon 13.05 15.05 13.05 12.55
sgd 12 14 12 11.5
sgd-without-momentum 8 10 8 7.5
adamw-elsewhere 8 6 6 5.5
WORDS
python3 "$source/tests/bench/optimizer_bytes.py" "$nrl" --model tiny --layers 2 --table >out 2>err || { cat err; exit 1; }
sed '1,2d; s/ without momentum/-without-momentum/; s/, `[^|]*` |/-elsewhere |/; s/|//g' out >found
paste expected found | awk '{ bad = $1 != $6
    for (i = 2; i < 6; i++) if ($(i + 5) - $i > 0.05 || $i - $(i + 5) > 0.05) bad = 1
    if (bad) { print; failed = 1 } } END { exit failed }' || is "bytes of a parameter" "those above" "the first five words"
is "rows of the table" "$(wc -l <found)" 8
exit $failed
