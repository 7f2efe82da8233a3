#!/bin/sh
# pipeline_nccl.sh: pipelines on the emulated GPU over the nccl plugin, with stand-ins for NCCL and the driver whose
# messages match in their order and block their stream (tests/support/nccl). Every schedule on 2 and 4 stages has the
# bits of a run over gloo; so have gpipe with more micro-batches than messages may wait, preferences whose reference
# passes through the same stages, and stages replicated by ddp. A schedule that cannot go on is found to be a deadlock.
# Without stages, ddp and fsdp in memory that NCCL has registered, or has not, give the bits of gloo; the buckets of a model
# of a billion parameters are few.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

emulated_cuda || exit 77
LD_LIBRARY_PATH=$NRL_TEST_BUILD/tests/nccl${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
FAKE_NCCL_FOLDER=$work/exchanged
export LD_LIBRARY_PATH FAKE_NCCL_FOLDER
mkdir exchanged

rows 64 >train.jsonl
cat >model.json <<JSON
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 96, "hidden_size": 16,
 "intermediate_size": 16, "num_hidden_layers": 6, "num_attention_heads": 2, "num_key_value_heads": 1,
 "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": true, "bos_token_id": 1, "eos_token_id": 2}
JSON
cat >config.yaml <<YAML
model: {config: model.json}
data: {train: train.jsonl, max_length: 8, overlong: truncate, cache: cache}
algorithm: sft
train: {steps: 1, global_batch: 8, micro_batch_tokens: 8, seed: 3}
optimizer: {name: adamw, lr: 1e-3}
loggers: [jsonl]
backend: {name: cuda, device: 0}
launch: {timeout_step: 120}
YAML

# over NAME COLLECTIVE N ARGUMENT...: losses, norms and weights of a run on N ranks
over() {
    name=$1 collective=$2 n=$3
    shift 3
    run 0 launch -n "$n" -- run config.yaml out="$name" overwrite=true collective="$collective" "$@"
    numbers "$name/metrics.jsonl" >"$name.txt"
    cp "$name/model/model.safetensors" "$name.safetensors"
    rm -rf "$name"
}
# equal NAME N ARGUMENT...: a run over nccl has the bits of the last one over gloo
equal() {
    what=$1
    shift
    over nccl '{name: nccl, device: 0}' "$@"
    [ -s gloo.txt ] && cmp gloo.txt nccl.txt && cmp gloo.safetensors nccl.safetensors && return
    is "$what over nccl" "$(cat nccl.txt)" "$(cat gloo.txt)"
}
# same NAME N ARGUMENT...: the same bits with both
same() {
    what=$1
    shift
    over gloo gloo "$@"
    equal "$what" "$@"
}

# schedules differ in no bit on the same stages
for n in 2 4; do
    same "1f1b, $n ranks" $n "parallel={pipeline: {size: $n, schedule: 1f1b}}"
    for schedule in gpipe zero_bubble; do
        equal "$schedule, $n ranks" $n "parallel={pipeline: {size: $n, schedule: $schedule}}"
    done
    same "interleaved, $n ranks" $n "parallel={pipeline: {size: $n, schedule: interleaved}}"
    equal "zero_bubble with two stages on each of $n ranks" $n \
        "parallel={pipeline: {size: $n, schedule: zero_bubble, stages_per_rank: 2}}"
done
same "one micro-batch after another" 2 'parallel={pipeline: {size: 2, schedule: gpipe}}' train.global_batch=48
same "three stages, a ring of odd length" 3 'parallel={pipeline: {size: 3, schedule: 1f1b}}'
same ddp 4 'parallel={data: ddp, pipeline: {size: 2, schedule: interleaved}}'

same "ddp alone" 2 parallel=ddp 'loggers=[jsonl, console]'
has out ", registered buffers"
same fsdp 2 parallel=fsdp
over nccl '{name: nccl, device: 0, register_buffers: false}' 2 parallel=fsdp 'loggers=[jsonl, console]'
is "fsdp without registered buffers" "$(cat nccl.txt)" "$(cat gloo.txt)"
lacks out "registered buffers"

sed 's/96, "hidden_size": 16/128256, "hidden_size": 2048/; s/_size": 16/_size": 8192/; s/layers": 6/layers": 16/
     s/heads": 2/heads": 32/; s/heads": 1/heads": 8/' model.json >large.json
for collective in gloo nccl; do
    run 0 check config.yaml model.config=large.json out=large 'parallel={data: {name: ddp, size: 2}}' collective=$collective
    is "calls for gradients, $collective" "$(sed -n 's/.*ranks, \([0-9]* buckets\),.*/\1/p' out)" \
        "$([ $collective = gloo ] && echo 145 buckets || echo 34 buckets)"
done

# the reference passes through the stages in the step
awk 'BEGIN { for (i = 0; i < 16; i++) printf "{\"prompt_input_ids\": [5, %d], \"chosen_input_ids\": [%d, 7, 2], \"rejected_input_ids\": [%d, 2]}\n", 3 + i, 9 + i, 40 + i }' >pairs.jsonl
same preferences 2 'parallel={pipeline: {size: 2, schedule: 1f1b}}' algorithm=dpo data.train=pairs.jsonl data.cache=pairs \
    train.global_batch=4 train.micro_batch_tokens=16

# a schedule whose ranks wait for each other: the rank that finds it says what it waits for
mkdir -p plugins/parallel
cp "$NRL_TEST_BUILD/tests/conformance/wrong/parallel/waiting.so" plugins/parallel
NRL_PLUGIN_PATH=$work/plugins:$NRL_PLUGIN_PATH
"$nrl" launch -n 3 -- run config.yaml out=stuck 'collective={name: nccl, device: 0}' \
    'parallel={pipeline: {size: 3, name: waiting}}' >out 2>err && is "a schedule that cannot go on" ended failed
has err "stand-in for NCCL: deadlock: rank "
exit $failed
