#!/bin/sh
# config_mistakes.sh: one error lists all mistakes of a config with their positions: sections, components, options of
# plugins, variables and the command line.
. "$(dirname "$0")/e2e.sh"

cat >bad.yaml <<'E2'
model: {path: nowhere, conifg: x}
data: {train: t.jsonl, max_length: "5"}
algorithm: {name: sft, prompt_wieght: 0.5}
train: {steps: 5, epochs: 2}
optimizer: {name: adamw, lr: -1, betas: 3}
schedule: {name: cosinus}
loggers: [console, {name: jsonll}]
name: ${env:NRL_TEST_UNSET}
out: runs/a
E2
run 2 check bad.yaml train.precision=fp12 nonsense
for text in \
    "mistakes in the config" \
    "bad.yaml:1:24: model.conifg: unknown key; did you mean 'config'?" \
    "bad.yaml:2:24: data.max_length: expected a whole number, found text '5'" \
    "bad.yaml:3:24: algorithm.prompt_wieght: unknown key; did you mean 'prompt_weight'?" \
    "bad.yaml:4:19: train: give steps or epochs, not both" \
    "bad.yaml:5:26: optimizer.lr: -1 is out of range" \
    "bad.yaml:6:1: schedule: no schedule 'cosinus'" \
    "did you mean 'cosine'?" \
    "bad.yaml:7:20: loggers: no logger 'jsonll'; did you mean 'jsonl'?" \
    "bad.yaml:8:1: environment variable NRL_TEST_UNSET is not set" \
    "command line: train.precision: 'fp12' is not one of: fp32, bf16, fp16" \
    "command line: 'nonsense': expected key=value"; do
    has err "$text"
done
[ -e runs ] && is "output of a refused run" present absent

printf 'a: [1\n' >broken.yaml
run 2 check broken.yaml
has err "broken.yaml:2:1"
run 2 run nowhere.yaml
has err "nowhere.yaml: No such file"
run 2 check "$work"
has err "Is a directory"
exit $failed
