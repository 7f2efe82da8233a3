#!/bin/sh
# `nrl check --json` prints the plan as JSON and nothing else, with the facts that `nrl check` prints as text.
. "$(dirname "$0")/e2e.sh"

run 0 check "$source/configs/sft.yaml" "$one_thread" out=none optimizer.lr=0
cp out text
run 0 check "$source/configs/sft.yaml" "$one_thread" out=none optimizer.lr=0 --json
is "first and last character" "$(head -c 1 out)$(tail -n 1 out)" "{}"
has err "warning: optimizer.lr is 0"
truth "plan of sft" 'd.name == "none" and d.out == "none" and d.resumed_step == 0 and d.eval_data.samples == 25'
truth "model" 'd.model.type == "llama" and d.model.parameters == 229952 and d.model.layers == 4 and d.model.seed == 1'
has text "model      llama, 229,952 parameters: 4 layers"
truth "data" 'd.train_data.samples == 128 and d.train_data.tokens == 3816 and d.train_data.lengths[5] == 118'
has text "128 samples (messages), 3,816 tokens"
truth "steps" 'd.train.steps % d.train.steps_per_epoch == 0 and d.train.algorithm == "sft" and d.train.precision == "fp32"'
truth "memory" 'd.memory.total == d.memory.weights + d.memory.masters + d.memory.gradients + d.memory.optimizer and d.memory.weights == 4 * 229952'
truth "activations" 'd.memory.micro_batch > 0 and d.memory.micro_batch_tokens > 0'
truth "one rank" 'd.ranks.n == 1 and #d.parallel == 0 and d.backend.name == "'"$backend"'"'

run 0 check "$source/configs/lora.yaml" "$one_thread" out=none --json
truth "adapter" 'd.adapter.modules == 28 and d.adapter.trained == 77824 and d.adapter.frozen == 229952'

run 0 launch -n 2 -- check "$source/configs/sft.yaml" "$one_thread" out=none --json
sed -i 's/^\[0\] //' out
truth "two ranks" 'd.ranks.n == 2 and d.parallel[1].name == "ddp"'

exit $failed
