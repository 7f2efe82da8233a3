#!/bin/sh
# hand_over.sh: RUN@best and RUN@STEP wherever a run is named; the dtype of an export.
. "$(dirname "$0")/e2e.sh"

run 0 run "$source/configs/sft.yaml" "$one_thread" train.epochs=0 train.steps=6 train.precision=bf16 optimizer.lr=1e-2 \
    eval.every=2 checkpoint.every=2 checkpoint.keep=0 checkpoint.metric_mode=max out=r

# ---- a checkpoint by its step, and the best one ----
run 0 checkpoint inspect r@4
has out "r/checkpoints/step-00000004"
run 0 checkpoint inspect r@best
has out "r/checkpoints/step-00000002" # metric_mode max: the largest loss
run 0 eval r@4
has out "r/checkpoints/step-00000004, step 4"
run 0 sample r@2 --prompt "What is" --max-tokens 4
mv out at_2
run 0 sample r/checkpoints/step-00000002 --prompt "What is" --max-tokens 4
is "the text of step 2" "$(cat at_2)" "$(cat out)"
run 0 export r@2 two
run 0 run "$source/configs/sft.yaml" "$one_thread" 'model={path: r@2}' train.epochs=0 train.steps=1 out=from_2
has out "weights from r/checkpoints/step-00000002"
run 2 sample r@3 --prompt a
has err "cannot find 'r@3': expected RUN@best or RUN@STEP of an existing checkpoint"
run 2 eval r@4x
has err "cannot find 'r@4x'"
run 0 run "$source/configs/sft.yaml" "$one_thread" train.epochs=0 train.steps=2 eval.every=0 checkpoint.every=2 out=plain
run 2 export plain@best best
has err "no complete checkpoint of the run has a metric"

# ---- the dtype of an export is that of the base model ----
dtype_of() {
    sed -n 's/.*"torch_dtype": "\(.*\)".*/\1/p' "$1/config.json"
}
is "dtype of a float32 base trained in bf16" "$(dtype_of r/model)" float32
is "dtype of its export" "$(dtype_of two)" float32
run 0 export r half --dtype bf16
has out "wrote half (bf16)"
run 0 run "$source/configs/sft.yaml" "$one_thread" 'model={path: half}' train.epochs=0 train.steps=2 out=b
is "dtype of a bf16 base trained in fp32" "$(dtype_of b/model)" bfloat16
is "size of its weights" "$(wc -c <b/model/model.safetensors)" "$(wc -c <half/model.safetensors)"
run 0 export b again
has out "wrote again (bf16)"
run 0 export half copy
has out "wrote copy (bf16)"
run 0 run "$source/configs/sft.yaml" "$one_thread" 'model={path: half}' train.epochs=0 train.steps=2 \
    checkpoint.export_dtype=f32 out=c
is "dtype that was asked for" "$(dtype_of c/model)" float32

# ---- the model card ----
cp -r half licensed
printf -- '---\nlicense: apache-2.0\nlicense_name: "other"\n---\nA model.\n' >licensed/README.md
run 0 run "$source/configs/sft.yaml" "$one_thread" 'model={path: licensed}' train.epochs=0 train.steps=2 eval.every=2 \
    'lora={rank: 2}' out=l
for line in 'license: "apache-2.0"' 'base_model: "licensed"' '| steps | 2 |' '| `eval_loss` |' '| `loss` |' '# l'; do
    has l/model/README.md "$line"
done
lacks l/model/README.md "$work"
lacks l/model/README.md "mem_total_bytes"
run 0 export l card
for line in 'license: "apache-2.0"' 'base_model: "licensed"' 'library_name: "transformers"' '| data.train | `chat.jsonl` |' \
    '| steps | 2 |' '| `eval_loss` |' '| `loss` |' 'Trained by nrl'; do
    has card/README.md "$line"
done
lacks card/README.md "$work"
lacks card/README.md "$source"
run 0 export l card --overwrite --dtype f32
has card/README.md "base_model"
echo mine >card/README.md
run 0 export l card --overwrite
has out "kept card/README.md, which nrl did not write"
is "a card of someone else" "$(cat card/README.md)" mine
run 0 export r random
has random/README.md "Trained from random weights."

# ---- adapters have their tokenizer and chat template beside them ----
run 0 export l beside --adapter
has beside/README.md 'library_name: "peft"'
for name in tokenizer.json tokenizer_config.json chat_template.jinja adapter_config.json; do
    [ -e beside/$name ] || is "beside/$name" missing there
done

# ---- generation_config.json is kept ----
echo '{"max_new_tokens": 7}' >licensed/generation_config.json
run 0 export licensed kept
is "generation_config.json" "$(cat kept/generation_config.json)" '{"max_new_tokens": 7}'

exit $failed
