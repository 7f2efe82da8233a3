#!/bin/sh
# memory_limit.sh: backend.memory_limit, what an allocation beyond it says, and train.on_oom: retry: a step that lacked
# memory is repeated with smaller micro-batches, on one rank and on two of which one lacks memory, with the numbers of a
# run that has enough.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

# config TRAIN ALGORITHM [LINE]
config() {
    cat <<YAML
model: {config: $source/configs/models/tiny.json, tokenizer: $source/configs/models/tiny-tokenizer}
data: {train: $1, max_length: 128, template: chatml, cache: cache}
algorithm: $2
train: {steps: $n_steps, global_batch: 8, micro_batch_tokens: 512, seed: 3}
optimizer: {name: adamw, lr: 1e-3, weight_decay: 0.1, clip_norm: 0.5}
checkpoint: {every: 0, export: none}
loggers: [jsonl]
$one_thread_yaml
${3-}
YAML
}

# limit BYTES: the argument that sets it
limit() {
    echo "backend={name: $backend, threads: 1$cpu_options, memory_limit: $1}"
}

config "$source/configs/data/chat.jsonl" sft >config.yaml
one sft
for good in 0.5 100000000 8GiB '500 MB' cgroup; do
    run 0 run config.yaml out=good overwrite=true train.steps=1 "$(limit "$good")"
done
run 2 run config.yaml out=bad "$(limit 2x)"
has err "memory_limit: cannot read '2x': expected a number of bytes (8GiB), a share of this machine's memory (0.5), or cgroup"
run 6 run config.yaml out=weights "$(limit 1MiB)"
has err "of the 1.0 MiB of backend.memory_limit"
run 6 run config.yaml out=stops "$(limit 7MiB)"
has err "of the 7.0 MiB of backend.memory_limit"
lacks err "is repeated"

# one rank: the first step that lacks memory is repeated, and the numbers are those of enough memory
run 0 run config.yaml out=retry "$(limit 7MiB)" train.on_oom=retry
has err "step 1 is repeated with micro-batches of 128: unit 'layers."
is "repeated steps" "$(grep -c 'is repeated' err)" 2
has err "hint: set train.micro_batch_tokens"
compare retry $exact
run 0 run config.yaml out=samples "$(limit 7MiB)" train.on_oom=retry data.packing=false train.micro_batch=8
has err "is repeated with micro-batches of 4"
compare samples $exact
run 6 run config.yaml out=least "$(limit 5MiB)" train.on_oom=retry
has err "micro-batches of 37 contain one sample and cannot be smaller"

# two ranks, of which one lacks memory
lacks=$NRL_TEST_BUILD/tests/e2e/lacks.so
set -- train.global_batch=16 train.micro_batch_tokens=1024
one large "$@"
large=$*
for strategy in ddp fsdp; do
    [ -e "$lacks" ] || break # instrumented builds preload nothing
    # the pool's segments: ddp takes the first one before the first step; a failed one is asked for again
    first=1 last=1
    [ $strategy = ddp ] && first=2 last=3
    for who in 0 1; do
        next_port
        for rank in 0 1; do
            set -- --
            [ $rank = $who ] && set -- LD_PRELOAD="$lacks" NRL_LACKS_FIRST=$first NRL_LACKS_LAST=$last --
            # shellcheck disable=SC2086
            (hand $rank "$@" config.yaml out=two overwrite=true $large train.on_oom=retry parallel=$strategy) \
                >out$rank 2>err$rank &
            eval "pid$rank=$!"
        done
        finished "$pid0" 0 "rank 0 of $strategy where rank $who lacks memory"
        finished "$pid1" 0 "rank 1 of $strategy where rank $who lacks memory"
        has err$who "step 1 is repeated with micro-batches of 512"
        lacks err$((1 - who)) "is repeated"
        compare two $exact
    done
done
run 2 launch -n 2 -- run config.yaml out=stages 'parallel={pipeline: 2}' train.on_oom=retry
has err "train.on_oom: retry requires whole layers on each rank"
run 2 launch -n 2 -- run config.yaml out=compress "parallel={data: {name: ddp, compress: powersgd}}" train.on_oom=retry
has err "train.on_oom: retry is not supported"
for verb in check run; do
    run 2 $verb config.yaml out=fixed "parallel={data: {name: ddp, reproducible: 4}}" train.on_oom=retry
    has err "train.on_oom: retry is not supported with reproducible"
done

# preferences with a reference model, and adapters with dropout
config "$source/configs/data/pref.jsonl" dpo >config.yaml
one dpo
run 0 run config.yaml out=retry "$(limit 9MiB)" train.on_oom=retry overwrite=true
has err "is repeated"
compare retry $exact
config "$source/configs/data/chat.jsonl" sft 'lora: {rank: 4, dropout: 0.1}' >config.yaml
one lora
run 0 run config.yaml out=retry "$(limit 4MiB)" train.on_oom=retry overwrite=true
has err "is repeated"
compare retry $exact
exit $failed
