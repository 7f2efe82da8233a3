#!/bin/sh
# diverged.sh: a run that does not learn fails: a loss that leaves its initial value by orders of magnitude has exit
# code 3, and a first gradient of 0 is an error in the loss. Runs that recover, or that begin near 0, continue.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
set -- run "$source/configs/sft.yaml" checkpoint.every=5 eval.every=0 "$one_thread"

# ---- a loss far from its start ----

run 3 "$@" optimizer.lr=10 out=far
has err "10 steps in a row were above 100 times the first loss, 6.2"
has err "hint: try a lower optimizer.lr or a longer warm-up; train.diverge_factor: 0 disables this check"
[ ! -e far/model ] || is "weights of a run that diverged" exported absent
cp err whole
step=$(sed -n 's/.*step \([0-9]*\):.*/\1/p' whole)

# the count goes on where the run is resumed: the same step, the same words
run 3 "$@" optimizer.lr=10 out=far resume=auto
cmp -s whole err || is "the end after a resume" "$(cat err)" "$(cat whole)"
is "the step it went on from" "$(sed -n 's/^resume .*after step \([0-9]*\).*/\1/p' out)" $(((step - 1) / 5 * 5))

# ranks decide alike
run 3 launch -n 2 -- "$@" optimizer.lr=10 out=two
has err "10 steps in a row were above 100 times the first loss, 6.2"

# too short for ten steps: the last ones decide, before anything is exported
run 3 "$@" optimizer.lr=10 train.epochs=0 train.steps=8 out=short schedule=constant
has err "cannot finish: the last "
[ ! -e short/model ] || is "weights of a short run that diverged" exported absent
run 0 resume short train.diverge_factor=0 # as the message says
has out "exported   short/model"
run 0 "$@" optimizer.lr=10 train.epochs=0 train.steps=8 out=off schedule=constant train.diverge_factor=0
has out "exported   off/model"

# a rate that is far too high, and a loss that comes back from three times its start: no business of this rule
run 0 "$@" optimizer.lr=1 train.epochs=4 out=back
# preferences: a first loss of ln 2 counts as 1
run 0 run "$source/configs/dpo.yaml" optimizer.lr=1e-2 train.epochs=2 checkpoint.every=0 out=pairs "$one_thread"
run 2 check "$source/configs/sft.yaml" train.diverge_factor=0.5
has err "train.diverge_factor: got 0.5, expected 0 or a number above 1"

# ---- a loss that does not reach the model ----

cat >detached.lua <<E2
local nrl = require "nrl"
local cfg = nrl.config "$source/configs/sft.yaml"
cfg.algorithm = nrl.loss {name = "cut", needs = {"logps"},
  weight = function(b) return b:count "answer_tokens" end,
  loss = function(b) return -(b:logps():detach() * b:mask()):sum() end}
local run <close> = nrl.open(cfg)
run:train()
E2
run 2 run detached.lua out=cut "$one_thread"
has err "step 1: the first gradient is 0 for every trained parameter: the loss of 'cut' does not depend on the model"
[ ! -e cut/model ] || is "weights of a loss that reaches none" exported absent
run 0 run detached.lua train.check_gradient=false train.epochs=1 out=on "$one_thread"
exit $failed
