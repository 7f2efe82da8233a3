#!/bin/sh
# gguf.sh: a model as a GGUF file and back: the same values, close ones when quantized, and errors that name the cause.
. "$(dirname "$0")/e2e.sh"

eval_loss() {
    "$nrl" run "$source/configs/sft.yaml" "$one_thread" train.steps=1 train.epochs=0 schedule=constant optimizer.lr=0 \
        eval.every=1 checkpoint.every=0 checkpoint.export=none "loggers=[jsonl]" \
        "model={path: $1, tokenizer: model}" data.cache= out="$2" >log 2>&1 || { tail -n 5 log; return 1; }
    sed -n 's/.*"eval_loss": *\([0-9.e-]*\).*/\1/p' "$2/metrics.jsonl" | tail -n 1
}

run 0 run "$source/configs/sft.yaml" "$one_thread" train.epochs=1 checkpoint.every=0 out=run
cp -r run/model model
run 0 export model gguf --format gguf --dtype f32
is "files of a GGUF directory" "$(ls gguf)" model.gguf
is "the beginning of the file" "$(head -c 4 gguf/model.gguf)" GGUF
run 0 export model plain --dtype f32
run 0 export gguf back --format hf
cmp plain/model.safetensors back/model.safetensors || failed=1
is "config.json" "$(cat back/config.json)" "$(cat plain/config.json)"
run 0 export gguf/model.gguf from-file --format hf
cmp plain/model.safetensors from-file/model.safetensors || failed=1

# round_trip MODEL NAME: as GGUF and back, MODEL has the same weights and config
round_trip() {
    run 0 export "$1" "$2.plain" --dtype f32
    run 0 export "$1" "$2.gguf" --format gguf --dtype f32
    run 0 export "$2.gguf" "$2.back" --format hf --dtype f32
    cmp "$2.plain/model.safetensors" "$2.back/model.safetensors" || is "weights of $2 as GGUF" other "the model's"
    is "config of $2 as GGUF" "$(cat "$2.back/config.json")" "$(cat "$2.plain/config.json")"
}

# The chat template and special tokens of the run are in the file.
grep -aq 'tokenizer.chat_template' gguf/model.gguf || is "the chat template" none some
grep -aq '<|im_start|>' gguf/model.gguf || is "the markers of chatml" none some

# A quantized model has nearly the same loss; its file is smaller.
run 0 export model q8 --format gguf --dtype q8_0
run 0 export model q4 --format gguf --dtype q4_k
has err "are written as Q8_0 or F16 instead of Q4_K" # rows of this model are shorter than a block of 256
exact=$(eval_loss gguf exact) eight=$(eval_loss q8 eight)
is "loss of q8_0 ($eight) beside $exact" "$(echo "$exact $eight" | awk '{ d = $1 - $2; print ($1 != 0 && d < 0.01 && d > -0.01) }')" 1
[ "$(wc -c <q8/model.gguf)" -lt "$(($(wc -c <gguf/model.gguf) / 2))" ] || is "size of q8_0" large small

# A run exports it when it is told to.
run 0 run "$source/configs/sft.yaml" "$one_thread" train.epochs=1 checkpoint.every=0 checkpoint.export_format=gguf out=direct
cmp direct/model/model.gguf gguf/model.gguf || failed=1

# Mistakes.
run 2 export model bad --format gguf --dtype q5
has err "format 'gguf' cannot write weights as 'q5'; expected f32, bf16, f16, q8_0, q6_k, q4_k"
run 2 export model bad --dtype q4_k
has err "format 'hf' cannot write weights as 'q4_k'; expected f32, bf16, f16"
run 2 export model model.gguf
has err "'model.gguf' would be a Hugging Face directory"
run 2 export model gguf --format gguf
has err "'model.gguf' already exists"
has err "hint: choose another directory, remove the file, or let nrl export --overwrite replace it"
run 2 sample gguf --prompt "Hi"
has err "hint: put the tokenizer.json of its Hugging Face directory there"
lacks out "Hi"
run 0 export model gguf --format gguf --overwrite
mkdir odd && cp model/* odd/
sed '1s/{/{"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64},/' model/config.json \
    >odd/config.json
round_trip odd yarn
grep -aq 'llama.rope.scaling.original_context_length' yarn.gguf/model.gguf || is "the scaling of positions" none some
sed -i 's/"factor": 2.0/"truncate": false, &/' odd/config.json
run 2 export odd bad --format gguf
has err "YaRN with truncate: false; llama.cpp always truncates"
sed -i 's/"truncate": false, //; s/"factor": 2.0/"attention_factor": 2.0, &/' odd/config.json
run 2 export odd bad --format gguf
has err "YaRN with an explicit attention_factor or mscale"

# llama.cpp has the scaling of Llama 3.1 as a tensor alone. Without a config of nrl it is refused, not ignored.
sed '1s/{/{"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32},/' \
    model/config.json >odd/config.json
round_trip odd llama3
mkdir foreign && sed 's/nrl\.config/nrl.xonfig/' llama3.gguf/model.gguf >foreign/model.gguf
run 2 sample foreign --prompt "Hi"
has err "cannot derive the config: rotary scaling is not supported"

# A matrix of all experts of a layer is one tensor of the file, and comes back as one for each expert.
experts=$source/tests/data/experts
round_trip "$experts/mixtral" mixtral

# A config without the keys that have the defaults of transformers, as the published ones of Gemma 3.
cat >defaults.json <<'JSON'
{"model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], "hidden_size": 32, "intermediate_size": 64,
 "num_hidden_layers": 2, "num_attention_heads": 8, "vocab_size": 512}
JSON
run 0 run "$source/configs/sft.yaml" "$one_thread" train.steps=1 train.epochs=0 schedule=constant optimizer.lr=0 data.eval= eval.every=0 \
    "model={config: defaults.json, tokenizer: $source/configs/models/tiny-tokenizer}" checkpoint.every=0 out=defaults
round_trip defaults/model defaults
# number KEY TYPE: of 4 bytes, which follow the key and its type in the file; TYPE as of od
number() {
    at=$(grep -abo "gemma3.$1" defaults.gguf/model.gguf | head -n 1 | cut -d: -f1)
    od -An -t"$2" -j $((at + ${#1} + 11)) -N 4 defaults.gguf/model.gguf | tr -d ' '
}
is "key and value heads" "$(number attention.head_count_kv u4)" 4
is "width of heads" "$(number attention.key_length u4)" 256
is "context" "$(number context_length u4)" 131072
is "epsilon" "$(number attention.layer_norm_rms_epsilon f4)" 1e-06
grep -aq 'blk.1.ffn_down_exps.weight' mixtral.gguf/model.gguf || is "tensors of experts" none some
mkdir olmoe && cp "$experts/olmoe/model.safetensors" olmoe
grep -v clip_qkv "$experts/olmoe/config.json" >olmoe/config.json
round_trip olmoe olmoe
tr -d '\n' <"$experts/qwen3_moe/config.json" | sed 's/"mlp_only_layers": *\[ *0 *\]/"mlp_only_layers": []/
    s/"vocab_size": *48/"vocab_size": 512/' >qwen3_moe.json
run 0 run "$source/configs/sft.yaml" "$one_thread" model.config=qwen3_moe.json data.max_length=64 data.overlong=truncate \
    checkpoint.every=0 train.steps=1 train.epochs=0 out=qwen3
round_trip qwen3/model qwen3_moe
run 0 export mixtral.gguf mixtral.q8 --format gguf --dtype q8_0
run 2 export "$experts/qwen3_moe" bad --format gguf
has err "some layers have no experts (mlp_only_layers, decoder_sparse_step); for qwen3moe llama.cpp expects experts in every layer"
run 2 export "$experts/olmoe" bad --format gguf
has err "clip_qkv is set; llama.cpp does not clip for olmoe"
sed 's/"norm_topk_prob": *true/"norm_topk_prob": false/' qwen3/model/config.json >norm.json
cp norm.json qwen3/model/config.json
run 2 export qwen3/model bad --format gguf
has err "norm_topk_prob is false; for qwen3moe llama.cpp expects true"

# gpt-oss: a joined matrix of gate and up becomes two tensors, and those are joined when they are read
round_trip "$experts/gpt_oss" gpt_oss
for name in blk.1.attn_sinks.weight blk.1.post_attention_norm.weight blk.1.ffn_gate_inp.bias blk.1.ffn_gate_exps.weight blk.1.ffn_up_exps.bias \
    blk.1.ffn_down_exps.bias blk.1.attn_output.bias gpt-oss.attention.sliding_window gpt-oss.expert_used_count; do
    grep -aq "$name" gpt_oss.gguf/model.gguf || is "$name in the file" none some
done
run 0 export "$experts/gpt_oss_mxfp4" mxfp4 --format gguf --dtype bf16 # which has all values of MXFP4
has err "YaRN with truncate: false, but llama.cpp always truncates"
run 0 export mxfp4 mxfp4.back --format hf --dtype bf16
run 0 export "$experts/gpt_oss_mxfp4" mxfp4.plain --dtype bf16
cmp mxfp4.back/model.safetensors mxfp4.plain/model.safetensors || is "MXFP4 as GGUF" other "the model's"
run 0 export gpt_oss.gguf gpt_oss.q8 --format gguf --dtype q8_0
run 0 export gpt_oss.q8 gpt_oss.q8.back --format hf
run 0 export gpt_oss.q8.back gpt_oss.q8.again --format gguf --dtype q8_0
cmp gpt_oss.q8/model.gguf gpt_oss.q8.again/model.gguf || is "Q8_0 of values of Q8_0" other "the same"
mkdir limit && cp "$experts/gpt_oss/model.safetensors" limit
sed 's/"swiglu_limit": 7.0/"swiglu_limit": 8.0/' "$experts/gpt_oss/config.json" >limit/config.json
run 2 export limit bad --format gguf
has err "swiglu_limit is 8 and swiglu_alpha 1.702; llama.cpp always uses 7 and 1.702"
sed 's/ffn_up_exps.bias/ffn_up_exps.blas/' gpt_oss.gguf/model.gguf >half.gguf
run 65 export half.gguf bad --format hf
head -c 2000 gguf/model.gguf >cut.gguf
run 65 export cut.gguf bad --format hf
has err cut.gguf
[ -e bad ] && is "a directory after an error" left none
# An export replaces a model in another format, and what accompanied it: nrl would read the old one.
run 0 export model again --format gguf
run 2 export model again --format hf
has err "already exists"
run 0 export model again --format hf --overwrite
is "files of the other format" "$(ls again | grep -c gguf)" 0
echo old >again/chat_template.jinja
cp -r "$source/tests/data/models/llama" plain-model
run 0 export plain-model again --overwrite
[ ! -e again/chat_template.jinja ] || is "the template of the model before" kept removed
# numbers that f16 does not have
cp -r plain huge
python3 - huge/model.safetensors <<'END' || { echo "skipped: numbers beyond f16: no python3"; exit $failed; }
import struct, sys
with open(sys.argv[1], "r+b") as f:
    header = struct.unpack("<Q", f.read(8))[0]
    f.seek(8 + header)
    f.write(struct.pack("<f", 1e5))
END
run 2 export huge half --dtype f16
has err "has the value 100000, which is too large for f16; expected bf16 or f32"
run 0 export huge half --dtype bf16
exit $failed
