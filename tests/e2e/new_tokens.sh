#!/bin/sh
# new_tokens.sh: model.add_tokens gives new tokens ids and embeddings, which are the mean of the model's, and the head rows
# for them; exports, checkpoints, other runs and any number of ranks have them. Mistakes are reported.
. "$(dirname "$0")/e2e.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

cat >config.yaml <<YAML
model: {path: base/model, add_tokens: ["<tool>", {token: "<end tool>", special: true}]}
data: {train: rows.jsonl, max_length: 256, template: chatml, cache: cache}
train: {steps: 6, global_batch: 8, micro_batch_tokens: 512, seed: 3}
optimizer: {name: adamw, lr: 1e-2, clip_norm: 0.5}
checkpoint: {every: 3, export_dtype: f32}
loggers: [console, jsonl]
$one_thread_yaml
YAML
sed 's/"content": "/"content": "<tool>x<end tool> /g' "$source/configs/data/chat.jsonl" >rows.jsonl
# as many rows as the tokenizer has tokens; the first model has a head of its own
sed 's/"vocab_size": 512/"vocab_size": 417/' "$source/configs/models/tiny.json" >tied.json
sed 's/"tie_word_embeddings": true/"tie_word_embeddings": false/' tied.json >model.json
run 0 run config.yaml out=base train.steps=2 \
    "model={config: model.json, tokenizer: $source/configs/models/tiny-tokenizer}"
rows=$(sed -n 's/.*"vocab_size": *\([0-9]*\).*/\1/p' base/model/config.json)

# ---- rows are the mean; the others are those of the base ----

run 0 run config.yaml out=start train.steps=1 optimizer.lr=0
has out "vocabulary $((rows + 2)) rows instead of $rows; each new one is the mean of the others"
has start/model/config.json "\"vocab_size\": $((rows + 2))"
has start/model/tokenizer.json '"content": "<tool>"'
cat >mean.lua <<LUA
local nrl = require "nrl"
local function tensor(dir, name)
  local f = io.open(dir .. "/model.safetensors", "rb")
  local n = string.unpack("<I8", f:read(8))
  local head = nrl.json.decode(f:read(n))[name]
  f:seek("set", 8 + n + head.data_offsets[1])
  return head.shape, f:read(head.data_offsets[2] - head.data_offsets[1])
end
for _, name in ipairs {"model.embed_tokens.weight", "lm_head.weight"} do
  local shape, old = tensor("base/model", name)
  local grown, new = tensor("start/model", name)
  assert(grown[1] == shape[1] + 2 and grown[2] == shape[2] and new:sub(1, #old) == old)
  for i = 0, shape[2] - 1 do
    local sum = 0
    for r = 0, shape[1] - 1 do sum = sum + string.unpack("<f", old, (r * shape[2] + i) * 4 + 1) end
    for k = 0, 1 do
      local x = string.unpack("<f", new, #old + (k * shape[2] + i) * 4 + 1)
      assert(math.abs(x - sum / shape[1]) < 1e-7, name)
    end
  end
end
LUA
run 0 run mean.lua
printf 'a<tool>b<end tool>' >text
run 0 tokenizer encode text --tokenizer start/model
has out "$rows"
has out "$((rows + 1))"

# ---- a run, its resume, its exports, a run on it ----

run 0 run config.yaml out=plain
numbers plain/metrics.jsonl >expected.txt
run 0 run config.yaml out=stopped train.steps=3
run 2 run config.yaml out=stopped resume=auto 'model.add_tokens=["<tool>", "<other>"]'
has err "model.add_tokens: was "
run 2 run config.yaml out=stopped resume=auto model.add_tokens=null
has err "model.add_tokens: was "
run 0 run config.yaml out=stopped resume=auto
run 0 checkpoint diff plain/checkpoints/step-00000006 stopped/checkpoints/step-00000006
has out "0 tensors differ"
run 0 export plain exported --dtype f32
for file in model.safetensors tokenizer.json tokenizer_config.json config.json; do
    cmp plain/model/$file exported/$file || failed=1
done
run 0 sample plain --prompt "<tool>x" --max-tokens 8
mv out sampled
run 0 sample exported --prompt "<tool>x" --max-tokens 8
cmp out sampled || failed=1
run 0 eval config.yaml out=none model.path=plain data.eval=rows.jsonl --json
mv out evaluated
run 0 eval config.yaml out=none model.path=exported data.eval=rows.jsonl --json
same() { sed -n 's/.*"eval_loss": *\([^,}]*\).*/\1/p' "$1"; }
is "loss of the export" "$(same out)" "$(same evaluated)"
run 0 run config.yaml out=on model.path=plain model.add_tokens=null train.steps=1 optimizer.lr=0
cmp on/model/model.safetensors plain/model/model.safetensors || failed=1
cmp on/model/tokenizer.json plain/model/tokenizer.json || failed=1
run 2 run config.yaml out=more model.path=plain 'model.add_tokens=["<more>"]' train.steps=1
has err "cannot add rows to the vocabulary of a checkpoint"
run 0 run config.yaml out=more model.path=exported 'model.add_tokens=["<more>", "<tool>"]' train.steps=1
has more/model/config.json "\"vocab_size\": $((rows + 3))"

# ---- rows for a multiple, a tied head, random weights ----

run 0 run config.yaml out=padded model.pad_vocab_to_multiple_of=64 train.steps=1
has padded/model/config.json "\"vocab_size\": $(((rows + 2 + 63) / 64 * 64))"
run 0 run config.yaml out=reserve model.path=null model.config="$source/configs/models/tiny.json" \
    model.tokenizer="$source/configs/models/tiny-tokenizer" train.steps=1
lacks out "rows instead of"
has reserve/model/config.json '"vocab_size": 512'
run 0 run config.yaml out=tied-base model.path=null model.add_tokens=null model.config=tied.json \
    model.tokenizer="$source/configs/models/tiny-tokenizer" train.steps=1
run 0 run config.yaml out=tied model.path=tied-base/model train.steps=2
run 0 export tied tied-exported --dtype f32
cmp tied/model/model.safetensors tied-exported/model.safetensors || failed=1
run 0 run config.yaml out=random model.path=null model.config=tied.json \
    model.tokenizer="$source/configs/models/tiny-tokenizer" train.steps=1
has out "all are random"

# ---- several ranks ----

for how in ddp fsdp '{pipeline: 2}'; do
    rm -rf many
    run 0 launch -n 2 -- run config.yaml out=many parallel="$how"
    compare many 1e-5
done
run 0 run config.yaml out=even model.pad_vocab_to_multiple_of=2
numbers even/metrics.jsonl >expected.txt
run 0 launch -n 2 -- run config.yaml out=divided parallel='{tensor: 2}' model.pad_vocab_to_multiple_of=2
compare divided 1e-5

# ---- adapters: with and without training the new rows ----

run 0 run config.yaml out=frozen lora='{rank: 4}' train.steps=1
has err "the new rows of the vocabulary are not trained: adapter.modules_to_save does not contain the module of lm_head.weight"
run 0 export frozen frozen-merged --dtype f32
cmp frozen/model/model.safetensors frozen-merged/model.safetensors || failed=1
run 0 run config.yaml out=lora lora='{rank: 4, modules_to_save: [embed_tokens, lm_head]}'
lacks err "are not trained"
numbers lora/metrics.jsonl >expected.txt
run 0 export lora lora-merged --dtype f32
cmp lora/model/model.safetensors lora-merged/model.safetensors || failed=1
run 0 export lora adapter --adapter
has adapter/tokenizer.json '"content": "<tool>"'
run 0 run config.yaml out=used lora='{use: adapter}' train.steps=1 optimizer.lr=0
cmp used/model/model.safetensors lora/model/model.safetensors || failed=1
run 0 launch -n 2 -- run config.yaml out=lora-many lora='{rank: 4, modules_to_save: [embed_tokens, lm_head]}' parallel=fsdp
compare lora-many 1e-5

run 0 export lora gguf --format gguf --dtype f32
grep -aqF '<tool>' gguf/model.gguf || is "tokens of the GGUF file" "no <tool>" "<tool>"

# ---- mistakes ----

run 2 check config.yaml out=none 'model.add_tokens=<tool>'
has err "model.add_tokens: expected a list of texts"
run 2 check config.yaml out=none 'model.add_tokens=[{tokn: a}]'
has err "add_tokens: expected a text or {token: TEXT, special: true}"
run 2 check config.yaml out=none model.pad_vocab_to_multiple_of=0
has err "pad_vocab_to_multiple_of"
# ---- an import has them, and the template of the run ----
run 0 import start imported
run 0 export imported from-import
has from-import/tokenizer.json '"content": "<tool>"'
run 0 sample imported --chat --prompt hello --max-tokens 1
exit $failed
