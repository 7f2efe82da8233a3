#!/bin/sh
# skeletons.sh CMAKE CC: the output of `nrl plugins new` of an installed nrl builds without warnings, passes its own
# test, and trains; it overwrites nothing and refuses invalid names.
. "$(dirname "$0")/installed.sh"

# train WORD...: two steps with what the words choose
train() {
    run 0 run "$prefix/share/nrl/configs/sft.yaml" train.epochs=0 train.steps=2 eval.every=0 \
        checkpoint.every=0 "$one_thread" out=trained overwrite=true "$@"
}

for kind in algorithm optimizer logger adapter dataset format frontend tokenizer template store schedule parallel collective model backend; do
    name=my_$kind
    run 0 plugins new $kind $name $kind
    has out "$kind/$name.c"
    build $kind $kind/build
    if grep -r '@NAME@\|@KIND@' $kind/*.*; then is "$kind" "a place left" none; fi
    export NRL_PLUGIN_PATH=$work/$kind/build/plugins
    run 0 describe $name
    case $kind in
    algorithm) train algorithm="{name: $name, strength: 0.5}" ;;
    backend) train backend=$name && has trained/config.yaml $name ;; # its delegate computes what it lacks
    model)
        echo '{"model_type": "my_model", "vocab_size": 512, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}' >mine.json
        train "model={config: mine.json, tokenizer: $prefix/share/nrl/configs/models/tiny-tokenizer}"
        ;;
    adapter) train adapter="{name: $name, rank: 2}" ;;
    schedule) train schedule="{name: $name, stages: 2}" && has trained/config.yaml $name ;;
    optimizer) train optimizer="{name: $name, lr: 0.1, momentum: 0.5}" ;;
    frontend)
        configs=$prefix/share/nrl/configs
        printf '%s\n' "model.config=$configs/models/tiny.json" "model.tokenizer=$configs/models/tiny-tokenizer" \
            "data.train=$configs/data/chat.jsonl" data.template=chatml data.max_length=128 optimizer.lr=1e-3 train >mine.$name
        run 0 run mine.$name train.steps=2 train.global_batch=8 checkpoint.every=0 "$one_thread" out=trained overwrite=true
        ;;
    logger)
        mkdir own && echo mine >own/my_logger.txt
        run 2 run "$prefix/share/nrl/configs/sft.yaml" loggers="[$name]" out=own
        is "a file that no run has written" "$(cat own/my_logger.txt)" mine
        train loggers="[$name, jsonl]" && is "lines of the logger" "$(grep -c . trained/my_logger.txt)" 2
        ;;
    dataset)
        for i in 1 2 3 4 5 6 7 8; do printf 'question %d\tanswer %d\n' $i $i; done >rows.$name
        run 0 plugins test $kind/build/plugins/datasets/$name.so --path rows.$name
        has out "  ok       threads read the same rows in the same order"
        train data.train=rows.$name data.eval=
        ;;
    format) train ;;
    store)
        run 0 launch -n 2 --store "$name:$work/meeting" -- run "$prefix/share/nrl/configs/sft.yaml" train.epochs=0 train.steps=2 \
            eval.every=0 checkpoint.every=0 "$one_thread" out=trained overwrite=true
        ;;
    parallel)
        run 0 launch -n 2 -- run "$prefix/share/nrl/configs/sft.yaml" train.epochs=0 train.steps=2 "parallel={$name: 2}" \
            eval.every=0 checkpoint.every=0 "$one_thread" out=trained overwrite=true
        ;;
    collective)
        run 0 launch -n 2 -- run "$prefix/share/nrl/configs/sft.yaml" train.epochs=0 train.steps=2 collective=$name \
            eval.every=0 checkpoint.every=0 "$one_thread" out=trained overwrite=true
        ;;
    tokenizer)
        { echo $name; printf '%s\n' '<unk>' '</s>' '\n' ' ' . , '?' : User Assistant the is; echo a b c d e f g h i j k l m n o p q r s t u v w x y z | tr ' ' '\n'; } >words.$name
        run 0 plugins test $kind/build/plugins/tokenizers/$name.so --path words.$name
        has out " rules, 0 failed ("
        train model.tokenizer=words.$name data.template=plain
        ;;
    template) train data.template=$name && has trained/config.yaml $name ;;
    esac
    is "steps with the $kind" "$(grep -c grad_norm trained/metrics.jsonl)" 2
done

echo mine >kept && mkdir half && cp kept half/CMakeLists.txt
run 2 plugins new algorithm mine half
has err "'half/CMakeLists.txt' already exists; nothing was written"
is "what was there" "$(cat half/CMakeLists.txt; ls half)" "$(cat kept; echo CMakeLists.txt)"
run 2 plugins new gizmo mine there
has err "'gizmo' is not a kind of plugin; expected one of: "
"$nrl" plugins --help | tr '\n' ' ' >help
for kind in algorithm parallel collective optimizer backend logger model tokenizer template dataset format frontend adapter store schedule; do
    grep -q "[ ,]$kind\(,\|$\)" err || is "the kinds" "without $kind" "all"
    grep -q "KIND is [a-z, ]*\<$kind\>" help || is "the kinds of plugins --help" "without $kind" "all"
done
for name in '' 9lives ../up a-b A nrl_mine "$(printf '%061d' 0 | tr 0 a)"; do
    run 2 plugins new algorithm "$name" there
    has err "name '"
done
run 1 plugins new algorithm mine no/such/folder
run 2 plugins new algorithm mine
[ ! -e there ] || is "a refused folder" made "not made"
exit $failed
