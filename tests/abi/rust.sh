#!/bin/sh
# rust.sh CMAKE CC: the crate in examples/rust has the layouts of the C headers, and its example, built by cargo without a
# network against an installed nrl, keeps the rules of loggers and writes a run's values.
command -v cargo >/dev/null || { echo "skipped: no cargo here"; exit 77; }
. "$(dirname "$0")/installed.sh"
[ "$(getconf LONG_BIT)" = 64 ] || { echo "skipped: layouts.txt is of 64-bit machines"; exit 77; }
cp -r "$prefix/share/nrl/examples/rust" rust
CARGO_TARGET_DIR=$work/target RUSTFLAGS="-L $prefix/lib"
export CARGO_TARGET_DIR RUSTFLAGS
for crate in nrl tally_rs; do
    (cd rust/$crate && cargo build --offline --release) >log 2>&1 || { cat log; exit 1; }
done
target/release/layouts >layouts
grep -vxFf "$source/tests/abi/layouts.txt" layouts >differ
is "layouts that C does not have" "$(cat differ)" ""
[ "$(grep -c . layouts)" -gt 100 ] || is "layouts" few many
mkdir -p plugins/loggers && cp target/release/libtally_rs.so plugins/loggers/tally_rs.so
export NRL_PLUGIN_PATH="$work/plugins" LD_LIBRARY_PATH="$prefix/lib"
run 0 plugins test plugins/loggers/tally_rs.so
run 0 run "$prefix/share/nrl/configs/sft.yaml" train.epochs=0 train.steps=3 eval.every=0 checkpoint.every=0 \
    'loggers=[tally_rs, jsonl]' "$one_thread" out=trained
has trained/tally.txt "at step 3"
exit $failed
