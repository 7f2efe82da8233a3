#!/bin/sh
# download.sh: `nrl download` from a server on this machine: the layout of the cache, interruptions, wrong hashes, refusals,
# redirects, a full disk; models and data from the cache. `nrl upload` to it: branches, subdirectories.
. "$(dirname "$0")/e2e.sh"
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
[ -x "$NRL_TEST_BUILD/libexec/nrl/nrl-download" ] || { echo "skipped: built without libcurl"; exit 77; }

# ---- a server with a model and a data set ----
mkdir -p hub/models/org hub/datasets/org/set/data
run 0 run "$source/configs/sft.yaml" "$one_thread" train.epochs=0 train.steps=1 eval.every=0 out=first
cp -r first/model hub/models/org/tiny
printf 'a pickle' >hub/models/org/tiny/pytorch_model.bin
cp "$source/configs/data/chat.jsonl" hub/datasets/org/set/data/train.jsonl
: >hub/datasets/org/set/empty
mkfifo keep
python3 "$source/tests/support/hub_server.py" hub <keep &
server=$!
exec 9>keep
trap 'exec 9>&-; wait $server; rm -rf "$work"' EXIT
await test -s hub/port
export HF_ENDPOINT="http://127.0.0.1:$(cat hub/port)" HF_HOME="$work/cache"
unset HF_HUB_CACHE HUGGINGFACE_HUB_CACHE HF_TOKEN HUGGING_FACE_HUB_TOKEN HF_TOKEN_PATH HF_HUB_DOWNLOAD_TIMEOUT
control() { printf '%s' "$1" >hub/control.tmp && mv hub/control.tmp hub/control.json; }
requests() { grep -c "$1" hub/log; }
cache=cache/hub/models--org--tiny

# ---- a model ----
run 0 download org/tiny
has out "skipped 1 files with weights in other formats"
commit=$(cat $cache/refs/main)
is "a file" "$(cmp $cache/snapshots/"$commit"/model.safetensors hub/models/org/tiny/model.safetensors && echo same)" same
is "a link" "$(readlink $cache/snapshots/"$commit"/config.json | cut -c 1-12)" ../../blobs/
is "a large blob's name" "$(basename "$(readlink $cache/snapshots/"$commit"/model.safetensors)")" \
    "$(sha256sum hub/models/org/tiny/model.safetensors | cut -d ' ' -f 1)"
is "partial files" "$(find cache -name '*.incomplete')" ""
[ ! -e $cache/snapshots/"$commit"/pytorch_model.bin ] || is "pytorch_model.bin" fetched skipped
n=$(requests GET)
run 0 download org/tiny --json
truth "nothing is fetched twice" "d.fetched_bytes == 0 and d.commit == '$commit' and d.path:match '/snapshots/$commit$' and d.skipped == 1"
is "requests of the second time" "$(($(requests GET) - n))" 1
run 0 sample org/tiny --prompt "What is" --max-tokens 2
run 0 sample org/tiny@main --prompt "What is" --max-tokens 2
run 0 sample "org/tiny@$commit" --prompt "What is" --max-tokens 2
run 2 sample org/tiny@other --prompt a
has err "hint: if this is its name on the Hub: nrl download org/tiny --revision other"
run 0 run "$source/configs/sft.yaml" "$one_thread" 'model={path: org/tiny}' train.epochs=0 \
    train.steps=1 checkpoint.export=none out=r
run 0 download org/tiny --include '*.bin' --include config.json
has out "2 files"
run 0 download org/tiny --revision refs/pr/1 --include config.json
is "the commit of another branch" "$(cat $cache/refs/refs/pr/1)" "$commit"
run 2 download org/tiny --include '*.nothing'
has err "none of its"

# ---- interruptions: continued by itself, and by the next command ----
rm -r cache
control '{"drop": 2}'
run 0 download org/tiny
has hub/log "bytes="
is "a file in three parts" "$(cmp $cache/snapshots/"$commit"/model.safetensors hub/models/org/tiny/model.safetensors && echo same)" same
rm -r cache
control '{"stall": 1}'
HF_HUB_DOWNLOAD_TIMEOUT=2 run 0 download org/tiny --include '*.safetensors'
rm -r cache
control '{"drop": 3, "no_ranges": true}'
run 0 download org/tiny --include '*.safetensors'
is "a file from its start" "$(cmp $cache/snapshots/"$commit"/model.safetensors hub/models/org/tiny/model.safetensors && echo same)" same
blob=$cache/blobs/$(sha256sum hub/models/org/tiny/model.safetensors | cut -d ' ' -f 1)
head -c 1000 "$blob" >"$blob.incomplete" && rm "$blob"
: >hub/log
control '{}'
run 0 download org/tiny --include '*.safetensors'
has hub/log "bytes=1000-"
is "a continued file" "$(cmp "$blob" hub/models/org/tiny/model.safetensors && echo same)" same
control '{"busy": 1}'
run 0 download org/tiny --include config.json

# ---- wrong contents are never kept ----
rm -r cache
control '{"corrupt": "model.safetensors"}'
run 5 download org/tiny
has err "has the SHA-256"
is "a wrong file" "$(find cache -name 'model.safetensors' -o -name '*.incomplete')" ""
[ ! -e $cache/refs/main ] || is "the branch of an incomplete model" there missing
for file in config.json model.safetensors; do
    rm -r cache
    control "{\"longer\": \"$file\"}"
    run 5 download org/tiny --include $file
    has err "the server sends more than the $(wc -c <hub/models/org/tiny/$file) bytes that it lists"
    is "a file that is too long" "$(find cache -type f -size +$(($(wc -c <hub/models/org/tiny/$file) / 512 + 1)) | wc -l)" 0
done
rm -r cache
control '{"size": 9223372036854775807}'
run 7 download org/tiny
has err "MiB free"
control '{}'
run 0 download org/tiny

# ---- refusals ----
run 2 download org/nothing
has err "model 'org/nothing': not found at http://127.0.0.1"
has err "Repository not found"
run 2 download org/tiny --revision v9
has err "model 'org/tiny' at v9: not found"
run 2 download tiny
has err "'tiny' is not a name on the Hub; expected ORG/NAME"
run 2 download ../tiny
control '{"gated": true}'
run 2 download org/tiny
has err "its terms may have to be accepted at $HF_ENDPOINT/org/tiny"
control '{"token": "hf_secret"}'
run 2 download org/tiny
has err "set HF_TOKEN"
HF_TOKEN=hf_wrong run 2 download org/tiny
has err "asks for another token"
lacks err hf_wrong
rm -r cache/hub
HF_TOKEN=hf_secret run 0 download org/tiny # the server refuses a token that a redirect takes along
rm -r cache/hub
echo hf_secret >cache/token
run 0 download org/tiny

# ---- the names that huggingface_hub still reads, after the present ones ----
HUGGING_FACE_HUB_TOKEN=hf_wrong run 2 download org/tiny
has err "hint: the token is that of HUGGING_FACE_HUB_TOKEN; create one with read access, and set HF_TOKEN"
HUGGING_FACE_HUB_TOKEN=hf_wrong HF_TOKEN=hf_secret run 0 download org/tiny
echo hf_wrong >cache/token
run 2 download org/tiny
has err "hint: the token is that of $work/cache/token;"
HUGGING_FACE_HUB_TOKEN=hf_secret run 0 download org/tiny
rm cache/token
control '{}'
HUGGINGFACE_HUB_CACHE=former run 0 download org/tiny --include config.json
HUGGINGFACE_HUB_CACHE=other HF_HUB_CACHE=present run 0 download org/tiny --include config.json
is "caches" "$(ls -d former/models--org--tiny other/models--org--tiny present/models--org--tiny 2>dd | tr '\n' ' ')" \
    "former/models--org--tiny present/models--org--tiny "

# ---- where requests may go ----
control '{"elsewhere": "http://example.com/x"}'
rm -r cache
run 2 download org/tiny --include config.json
has err "the server refers to 'http://example.com/x'; expected https"
HF_ENDPOINT=http://example.com run 2 download org/tiny
has err "expected https://HOST, or http://HOST for a server on this machine"
HF_ENDPOINT=http://127.0.0.1.example.com run 2 download org/tiny
has err "expected https://HOST"
HF_ENDPOINT=ftp://127.0.0.1 run 2 download org/tiny
next_port
HF_ENDPOINT=http://127.0.0.1:$port run 1 download org/tiny
has err "error: model 'org/tiny': "
control '{}'

# ---- no space ----
if command -v prlimit >/dev/null; then
    size=$(wc -c <hub/models/org/tiny/model.safetensors)
    prlimit --fsize=$((size / 2)) "$nrl" download org/tiny --include '*.safetensors' >out 2>err
    is "exit code of a full disk" $? 7
    is "what is left" "$(find cache -name '*.incomplete' -size +0 | wc -l)" 1
    run 0 download org/tiny --include '*.safetensors'
else
    echo "skipped: a full disk: prlimit is not installed"
fi

# ---- a data set ----
run 0 download org/set --dataset
set=cache/hub/datasets--org--set
is "a row file" "$(cmp $set/snapshots/*/data/train.jsonl "$source/configs/data/chat.jsonl" && echo same)" same
is "an empty file" "$(wc -c <$set/snapshots/"$(cat $set/refs/main)"/empty)" 0
run 0 run "$source/configs/sft.yaml" "$one_thread" 'data={train: "hf://org/set/data/train.jsonl", template: chatml, max_length: 128}' \
    train.epochs=0 train.steps=2 eval.every=0 out=set
has out "128 samples"
cat >set.yaml <<YAML
defaults: $source/configs/sft.yaml
data: {train: hf://org/set@main/data, eval: "hf://org/set/data/*.jsonl"}
YAML
run 0 check set.yaml
has out "128 samples"
run 2 check set.yaml data.train=hf://org/other/x.jsonl
has err "command line: 'hf://org/other/x.jsonl': not in the local cache"
has err "hint: nrl download org/other --dataset"
run 0 check set.yaml data.train=hf://datasets/org/set/data/train.jsonl
run 2 check set.yaml data.train=org/set
has err "data.train: org/set: No such file or directory"
has err "hint: a data set of the Hub is hf://org/set"
run 2 check set.yaml data.train=hf://org
has err "expected hf://ORG/NAME"
run 2 check set.yaml data.train=hf://org/set/data/none.jsonl
has err none.jsonl

# ---- upload ----
control '{"token": "hf_secret"}'
run 2 export first out1 --push me/mine
has err "set HF_TOKEN"
export HF_TOKEN=hf_secret
run 0 export first out2 --push me/mine
has out "uploaded 6 files of out2"
is "the uploaded files" "$(diff -r out2 hub/models/me/mine && echo same)" same
is "the message" "$(cat hub/summary)" "Upload model with nrl"
lacks hub/log "PUT /put/$(sha256sum out2/config.json | cut -d ' ' -f 1)"
n=$(requests PUT)
run 0 upload out2 me/mine --message again
is "files that the server has" "$(requests PUT)" "$n"
is "the message" "$(cat hub/summary)" again
run 0 download me/mine
rm -r hub/lfs
control '{"token": "hf_secret", "part_size": 400000}'
run 0 upload out2 me/parts --private
is "the files in parts" "$(diff -r out2 hub/models/me/parts && echo same)" same
is "private" "$(cat hub/private)" True
run 2 upload nowhere me/mine
run 2 upload hub me/mine
has err "hub: it contains no model"
run 2 upload out2 mine
HF_TOKEN=hf_wrong run 2 upload out2 me/mine
has err "the token is that of HF_TOKEN"

# another branch, which is created from main; subdirectories, without hidden ones
cp -r out2 out3
mkdir -p out3/sub/deeper out3/.git
echo 1 >out3/sub/deeper/notes.txt
echo 2 >out3/.git/config
ln -s deeper out3/sub/linked
run 0 upload out3 me/mine --revision trial
has out "uploaded 8 files of out3"
is "the files of the branch" "$(diff -r -x .git out3 hub/branches/me/mine/trial && echo same)" same
is "the files of main" "$(diff -r out2 hub/models/me/mine && echo same)" same
run 0 upload out3 me/mine --revision trial
is "requests that create the branch" "$(requests 'POST /api/models/me/mine/branch/trial')" 1
run 0 upload out2 me/first --revision trial
is "the files of a new model's branch" "$(diff -r out2 hub/branches/me/first/trial && echo same)" same
control '{"token": "hf_secret", "hidden": true}' # the answers to the requests that create say that both exist
run 0 upload out3 me/mine --revision trial
is "requests that create the branch" "$(requests 'POST /api/models/me/mine/branch/trial')" 2

# what cannot be uploaded as a whole
ln -s .. out3/sub/up
run 2 upload out3 me/mine
has err "more than 32 directories inside each other"
rm out3/sub/up
ln -s nowhere out3/sub/gone
run 1 upload out3 me/mine
has err "out3/sub/gone: No such file or directory; expected a file, a directory or a link to one"
mkdir many
(cd many && touch config.json && seq 4096 | xargs touch)
run 2 upload many me/mine
has err "many: it contains more than 4096 files"
unset HF_TOKEN
control '{}'

exit $failed
