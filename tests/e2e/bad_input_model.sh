#!/bin/sh
# bad_input_model.sh: mistakes in a model's directory; `nrl check` reports each with its message and exit code before
# it reads a row of data.
. "$(dirname "$0")/e2e.sh"

rows 8 >train.jsonl
experiment >run.yaml

# check CODE FOLDER WORDS...
check() {
    expected=$1 folder=$2
    shift 2
    run "$expected" check run.yaml "model.path=$folder"
    for words in "$@"; do has err "$words"; done
}

# edited FOLDER SED-COMMAND: the tiny model with another config.json
edited() {
    golden "$1" && sed "$2" "$source/tests/data/models/llama/config.json" >"$1/config.json"
}

# begins FOLDER BYTES: the tiny model whose weights begin with these bytes
begins() {
    golden "$1" && printf "$2" | dd of="$1/model.safetensors" conv=notrunc 2>dd
}

# ---- the weight file ----
golden cut && truncate -s 5000 cut/model.safetensors
check 65 cut "cut/model.safetensors: tensor '" "the file is truncated"
golden cut_header && truncate -s 100 cut_header/model.safetensors
check 65 cut_header "cut_header/model.safetensors: a header of " " bytes in a file of 100: the file is truncated"
golden no_bytes && : >no_bytes/model.safetensors
check 65 no_bytes "no_bytes/model.safetensors: 0 bytes are too few for a safetensors file"
begins huge '\377\377\377\377\377\377\377\177'
check 65 huge "a header of 9223372036854775807 bytes, expected at most 100000000: not a safetensors file"
begins larger '\000\000\000\005\000\000\000\000'
check 65 larger "a header of 83886080 bytes in a file of " "the file is truncated"
begins not_json '\020\000\000\000\000\000\000\000@@'
check 65 not_json "not_json/model.safetensors:1:1"
golden tail && printf 'more' >>tail/model.safetensors
check 65 tail "4 unused bytes after the last tensor"
golden pointer && printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0\n' >pointer/model.safetensors
check 65 pointer "a Git LFS pointer, not the file itself" "git lfs pull"
golden pipe && rm pipe/model.safetensors && mkfifo pipe/model.safetensors
check 1 pipe "pipe/model.safetensors: not a regular file"
golden without && rm without/model.safetensors
check 65 without "without: no model.safetensors and no model.safetensors.index.json"

# ---- weights and config.json disagree ----
edited wider 's/"intermediate_size": 72/"intermediate_size": 80/'
check 65 wider "the weights do not fit config.json (llama), 6 differences:" \
    "model.layers.0.mlp.gate_proj.weight: has shape [72, 32], expected [80, 32] as in config.json"
edited deeper 's/"num_hidden_layers": 2/"num_hidden_layers": 3/'
check 65 deeper "model.layers.2.input_layernorm.weight: is missing"
edited flatter 's/"num_hidden_layers": 2/"num_hidden_layers": 1/'
check 65 flatter "model.layers.1.input_layernorm.weight: is not a parameter of this model"

# ---- config.json ----
edited kind 's/"model_type": "llama"/"model_type": "mamba2"/'
check 65 kind "kind/config.json: no model plugin supports model_type 'mamba2'; expected one of: " "llama"
edited classifier 's/LlamaForCausalLM/LlamaForSequenceClassification/'
check 2 classifier "command line: algorithm 'sft' reads logits, but the model has a score head instead of an output layer"
edited encoder 's/LlamaForCausalLM/LlamaForTokenClassification/'
check 65 encoder "architecture 'LlamaForTokenClassification' is not a causal language model"
edited headless '/num_attention_heads/d'
check 65 headless "'num_attention_heads' is missing; expected an integer"
edited vocabulary 's/"vocab_size": 96/"vocab_size": 99999999999/'
check 65 vocabulary "'vocab_size' is 99999999999; expected 1 to 2147483647"
golden half && truncate -s 300 half/config.json
check 65 half "half/config.json:15:15"
golden none && rm none/config.json
check 65 none "none: no config.json; expected a Hugging Face model directory, a run or a checkpoint"
check 2 nowhere "model 'nowhere': no such directory"
HF_HOME=$work run 2 check run.yaml model.path=someone/nowhere
has err "hint: if this is its name on the Hub: nrl download someone/nowhere"

# ---- the tokenizer ----
golden words && cp "$source"/configs/models/tiny-tokenizer/* words
check 65 words "the tokenizer of 'words' has ids up to 416, but the model's vocabulary has 96: they do not match"
golden pieces && echo '{"model": {"type": "WordPiece"}}' >pieces/tokenizer.json
check 65 pieces "pieces/tokenizer.json: model type 'WordPiece' is not supported, expected BPE"
golden half_tokenizer && printf '{"model": ' >half_tokenizer/tokenizer.json
check 65 half_tokenizer "half_tokenizer/tokenizer.json:"
# a mistake inside has the line of the file
for wrong in '{"model": {"vocab": {"a": 0},\n"merges": [\n["a", b]]}}' '{"model": {"vocab": {"a": 0},\n\n"b": x, "merges": []}}' \
    '{"model": {"vocab": {"a": 0}, "merges": []},\n"normalizer":\n {"a": x}}' '{"model":\n{"vocab": {\n"a": 0, "b": x}, "merges": []}}'; do
    printf "$wrong" >half_tokenizer/tokenizer.json
    check 65 half_tokenizer "half_tokenizer/tokenizer.json:3:"
done
printf '{"bos_token":\n\n{"a": x}}' >half_tokenizer/tokenizer_config.json
check 65 half_tokenizer "half_tokenizer/tokenizer_config.json:3:"
run 2 check run.yaml model.tokenizer=nowhere
has err "nowhere"

# a run is refused alike, before it makes tokens of the data
run 65 run run.yaml model.path=cut
has err "the file is truncated"
[ -e result/cache ] && is "token cache of a run that did not start" present absent

# more than any machine holds: planned by check, refused by run
sed 's/"vocab_size": 96/"vocab_size": 2000000000/; s/"hidden_size": 32/"hidden_size": 4096/' \
    "$source/tests/data/models/llama/config.json" >vast.json
run 0 check run.yaml model.path= model.config=vast.json
has out "memory     238.4 TiB"
run 6 run run.yaml model.path= model.config=vast.json
has err "TiB of host memory"
sed 's/"hidden_size": 32/"hidden_size": 2147483640/; s/"intermediate_size": 72/"intermediate_size": 2147483640/' \
    "$source/tests/data/models/llama/config.json" >vast.json
run 65 check run.yaml model.path= model.config=vast.json
has err "is too large"

# random weights need a config.json alone
run 0 check run.yaml model.path= "model.config=$source/tests/data/models/llama/config.json"
has out "random weights, seed 1"
run 2 check run.yaml model.path=
has err "model"
run 65 check run.yaml model.path= model.config=half/config.json
has err "half/config.json:15:15"
exit $failed
