#!/bin/sh
# embed.sh CMAKE CC: builds the examples of the public run API against an installed nrl alone. A C program, built with
# CMake and with pkg-config, trains and samples; a frontend built out of tree passes its suite and runs a script.
set -eu
cmake=$1 cc=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$cmake" --install "$NRL_TEST_BUILD" --prefix "$work/nrl" >"$work/log" || { cat "$work/log"; exit 1; }
unset LD_LIBRARY_PATH NRL_PLUGIN_PATH || true
share=$work/nrl/share/nrl nrl=$work/nrl/bin/nrl
cd "$work"

build() {
    "$cmake" -S "$share/examples/$1" -B "$1" -DCMAKE_PREFIX_PATH="$work/nrl" -DCMAKE_C_COMPILER="$cc" \
        -DCMAKE_C_FLAGS="-Wall -Wextra -Werror" >log 2>&1 && "$cmake" --build "$1" >>log 2>&1 || { cat log; exit 1; }
}

# the same numbers, whichever way it was built, and the same as the program's own
build embed
embed/embed "$share/configs" first >first.txt
test "$(grep -c '^step [1-3] loss [0-9.]*$' first.txt)" -eq 3
grep -q '^What is two plus two? ' first.txt
flags=$(PKG_CONFIG_PATH=$work/nrl/lib/pkgconfig pkg-config --cflags --libs nrl-inference)
# shellcheck disable=SC2086
"$cc" -Wall -Wextra -Werror "$share/examples/embed/embed.c" $flags -Wl,-rpath,"$work/nrl/lib" -o embed_pc
./embed_pc "$share/configs" second >second.txt
cmp first.txt second.txt
"$nrl" run "$share/configs/sft.yaml" train='{steps: 3, global_batch: 8}' optimizer='{name: adamw, lr: 0.003}' schedule=null \
    eval=null data.eval=null checkpoint=null algorithm=sft loggers='[jsonl]' out=third >log 2>&1 || { cat log; exit 1; }
losses() { sed -n 's/.*"step": \([0-9]*\),.*"loss": \([0-9.]*\),.*/\1 \2/p' "$1/metrics.jsonl"; }
test "$(losses first | wc -l)" -eq 3
test "$(losses first)" = "$(losses third)" || { losses first; losses third; exit 1; }

# mistakes are told, not printed by the library
if embed/embed nowhere fourth >out.txt 2>err.txt; then exit 1; fi
grep -q "^error: .*nowhere/" err.txt

# a frontend
build plain_frontend
(cd plain_frontend && "$(dirname "$cmake")/ctest" --output-on-failure >../log 2>&1) || { cat log; exit 1; }
export NRL_PLUGIN_PATH=$work/plain_frontend/plugins
"$nrl" plugins | grep "^  plain .*lines key=value and train"
"$nrl" describe plain | grep "opens a run and trains it"
"$nrl" plugins test "$work/plain_frontend/plugins/frontends/plain.so" >log || { cat log; exit 1; }
cat >small.plain <<PLAIN
# as the C program
model.config=$share/configs/models/tiny.json
model.tokenizer=$share/configs/models/tiny-tokenizer
data.train=$share/configs/data/chat.jsonl
data.template=chatml
data.max_length=128
train.steps=1
train.global_batch=8
optimizer.lr=3e-3
out=fifth
train
PLAIN
"$nrl" check small.plain | grep "nothing was trained"
"$nrl" run small.plain train.steps=3 >log 2>&1 || { cat log; exit 1; }
test "$(losses first)" = "$(losses fifth)" || { losses first; losses fifth; exit 1; }
grep -rq '"frontend": "plain 1.0, [0-9a-f]*"' fifth/checkpoints/*/manifest.json || { echo "the checkpoint does not name the frontend"; exit 1; }
cp small.plain small.txt
"$nrl" run small.txt --frontend plain out=sixth >log 2>&1 || { cat log; exit 1; }
test "$(losses sixth | wc -l)" -eq 1
echo 'what is this' >wrong.plain
if "$nrl" run wrong.plain 2>err.txt; then exit 1; else test $? -eq 2; fi
grep -q "^error: wrong.plain:1: cannot read 'what is this'" err.txt
if NRL_NO_SCRIPTS=1 "$nrl" run small.plain 2>err.txt; then exit 1; else test $? -eq 2; fi
grep -q "scripts are disabled" err.txt
