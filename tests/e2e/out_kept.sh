#!/bin/sh
# out_kept.sh: a run overwrites neither files that it reads nor files that no run wrote, whatever the path; it
# completely replaces those of an earlier run.
. "$(dirname "$0")/e2e.sh"

rows 32 >train.jsonl
experiment >run.yaml
golden base

# kept FOLDER...: it has the bytes that it had when it was remembered
remember() { for folder; do rm -rf "seen/$folder" && mkdir -p "seen/$folder" && cp -a "$folder/." "seen/$folder"; done; }
kept() { for folder; do diff -r "$folder" "seen/$folder" >differences || is "$folder" changed "as it was"; done; }

# ---- the base model, and whatever else a run reads ----
mkdir p && cp -r base p/model
ln -s p/model linked
remember p base
for verb in check run; do
    for path in p/model "$work/p/model" p/../p/model linked; do
        run 2 $verb run.yaml "model.path=$path" out=p
        has err "out: cannot replace 'p/model': it is"
        has err "read as model.path"
        has err "choose another out, or checkpoint.export=none"
    done
done
run 2 run run.yaml model.tokenizer=p/model out=p
has err "read as model.tokenizer"
run 2 run run.yaml model.path= model.config=p/model/config.json out=p
has err "'p/model/config.json' in it is read as model.config"
cp train.jsonl p/model/train.jsonl
remember p
run 2 run run.yaml data.train=p/model/train.jsonl out=p
has err "read as data.train"
run 2 run run.yaml data.eval=p/model/train.jsonl out=p
has err "read as data.eval"
echo 'return function(s) return 1 end' >p/model/reward.lua
remember p
run 2 run run.yaml 'algorithm={name: grpo, reward: p/model/reward.lua, max_tokens: 2}' out=p
has err "read as algorithm.reward"
run 2 run run.yaml out=p
has err "out: cannot write 'p/model': it already exists and was not written by a run"
kept p base
mkdir q && ln -s ../base q/model # an export would go through the link
run 2 run run.yaml model.path=base out=q
has err "out: cannot replace 'q/model'"
run 0 run run.yaml model.path=p/model out=p checkpoint.export=none
cmp -s p/model/model.safetensors seen/p/model/model.safetensors || is "the base of a run that exports nothing" changed "as it was"

# what killed processes left of an export goes with the next one, unless it may be another's or is being written
for left in 1-0 2-0 3-7 mine; do
    mkdir -p swept/model.tmp-$left && cp base/* swept/model.tmp-$left
done
echo mine >swept/model.tmp-1-0/notes.txt
flock swept/model.tmp-2-0 "$nrl" run run.yaml out=swept >out 2>err || is "exit code" $? 0
has err "left in place: 'swept/model.tmp-1-0/notes.txt'"
is "what is left of exports" "$(cd swept && echo model.tmp-*)" "model.tmp-1-0 model.tmp-2-0 model.tmp-mine"
is "of the first one" "$(ls swept/model.tmp-1-0)" notes.txt
for left in 2-0 mine; do
    diff -r base swept/model.tmp-$left >differences || is "model.tmp-$left" changed "as it was"
done

# a run as its own start: what it would remove is what it reads
run 0 run run.yaml out=r
remember r
for change in model.path=r model.path=r/model model.path=r/checkpoints/step-00000004; do
    run 2 run run.yaml $change out=r overwrite=true
    has err "out: cannot replace 'r/"
    has err "read as model.path"
done
run 2 run run.yaml model.path=r out=r resume=auto
has err "'r/checkpoints/step-00000006' in it is read as model.path"
run 2 run run.yaml lora.use=r/model out=r overwrite=true
kept r

# preferences: the reference model
cat >pairs.jsonl <<E2
{"prompt_input_ids": [3, 4, 5], "chosen_input_ids": [6, 7], "rejected_input_ids": [8]}
{"prompt_input_ids": [5, 4], "chosen_input_ids": [9], "rejected_input_ids": [10, 11]}
E2
for verb in check run; do
    run 2 $verb run.yaml 'algorithm={name: dpo, reference_model: r}' data.train=pairs.jsonl out=r overwrite=true
    has err "read as algorithm.reference_model"
done
kept r

# reinforcement learning: the reward model
for verb in check run; do
    run 2 $verb run.yaml 'algorithm={name: grpo, reward_model: r, max_tokens: 2}' out=r overwrite=true
    has err "read as algorithm.reward_model"
done
kept r

# a checkpoint of another run does not go on over this one
run 0 run run.yaml out=other
remember other
run 2 run run.yaml out=other resume=r/checkpoints/step-00000002
has err "out: 'other' already contains a run, and resume names a checkpoint of another run"
kept r other
run 0 run run.yaml out=other resume=r/checkpoints/step-00000002 overwrite=true
kept r
is "checkpoints of what replaced it" "$(ls other/checkpoints)" "step-00000004
step-00000006"
run 0 run run.yaml out=r resume=r/checkpoints/step-00000004

# ---- export, import, scripts, tokenizers ----
run 2 export base base --overwrite
has err "cannot replace 'base': it is read as the source"
run 0 run run.yaml model.path=base 'lora={rank: 2}' out=adapters checkpoint.export=none
run 2 export adapters base --overwrite # what they are added to
has err "cannot replace 'base': it is the same as '$work/base', which is read as the source"
rm -f linked && ln -s base linked
run 2 export base linked --overwrite
mkdir links && ln -s ../base/config.json ../base/model.safetensors links
run 2 export links base --overwrite
has err "cannot replace 'base/model.safetensors': it is the same as 'links/model.safetensors'"
kept base
mkdir mine && echo notes >mine/notes && mkdir mine/deep && echo notes >mine/deep/notes && echo x >mine/model.safetensors
run 2 export r mine
has err "cannot write the model to 'mine': 'model.safetensors' already exists"
is "a file that was there" "$(cat mine/model.safetensors)" x
run 0 export r mine --overwrite
cmp -s mine/model.safetensors r/model/model.safetensors || is "an export over a file" other "the run's weights"
is "the user's files beside it" "$(cat mine/notes mine/deep/notes | tr '\n' ' ')" "notes notes "
is "what is left of an exchange" "$(echo mine.* mine/.*.tmp*)" "mine.* mine/.*.tmp*"
mkdir -p damaged/checkpoints/step-00000000 && echo x >damaged/checkpoints/step-00000000/manifest.json
run 2 import base damaged
has err "already contains a checkpoint"

cat >export.lua <<LUA
local nrl = require "nrl"
local c = nrl.config "run.yaml"
local r = nrl.open(c, {out = arg[1], model = "base"})
r:train()
r:export(arg[2])
r:export(arg[2])
LUA
run 2 run export.lua script1 base
has err "cannot replace 'base': it is read as model.path"
for own in script5 script5/checkpoints script5/cache script5/checkpoints/step-00000004; do
    run 2 run export.lua script5 $own overwrite=true
    has err "cannot replace '$own' by a model: it is a directory of a run"
    run 0 checkpoint verify script5
done
run 2 export base script5/checkpoints/step-00000004 --overwrite
has err "is a checkpoint: choose another directory"
mkdir foreign && echo '{}' >foreign/config.json
run 2 run export.lua script2 foreign
has err "'config.json' already exists and was not written by this run"
is "a file that was there" "$(cat foreign/config.json)" "{}"
run 0 run export.lua script3 exported
run 0 run export.lua script3 exported overwrite=true # the same script again
run 2 run export.lua script4 exported                # another run's
kept base

printf 'some words, and some more words\n' >words
run 0 tokenizer train words --vocab-size 258 --out tok
remember tok
run 2 tokenizer train words --vocab-size 259 --out tok
has err "'tok' already holds a tokenizer"
kept tok
run 0 tokenizer train words --vocab-size 259 --out tok --overwrite
run 2 tokenizer train tok/tokenizer.json --vocab-size 259 --out tok --overwrite
has err "cannot replace 'tok/tokenizer.json': it is read as a text"

# ---- what no run made ----
mkdir w && cd w && cp ../train.jsonl .
printf 'my: own\n' >config.yaml
for verb in check run; do
    for how in overwrite=true resume=auto resume=../r/checkpoints/step-00000004 overwrite=false; do
        run 2 $verb ../run.yaml data.train=train.jsonl out=. $how
        has err "out: cannot write './config.yaml': it already exists and was not written by a run"
    done
done
is config.yaml "$(cat config.yaml)" "my: own"
cd ..

# ---- what a run made is replaced: checkpoints, the exported model, records; the rest stays or is named ----
run 0 run run.yaml out=old
mkdir old/checkpoints/mine && echo x >old/checkpoints/mine/file && mkdir old/checkpoints/step-7
echo x >old/model/README.md && echo x >old/notes
run 0 run run.yaml out=old overwrite=true train.steps=1 checkpoint.every=0 checkpoint.export=none
is "what is left" "$(find old -type f ! -path 'old/cache/*' | sort | tr '\n' ' ')" \
    "old/.nrl-run old/checkpoints/mine/file old/config.yaml old/metrics.jsonl old/model/README.md old/notes "
has err "left in place: 'old/model/README.md'"
has err "left 'old/checkpoints/mine' in place"
has err "left 'old/checkpoints/step-7' in place"

run 0 run run.yaml out=old2
echo x >old2/checkpoints/step-00000002/notes
remember old2
run 2 run run.yaml out=old2 overwrite=true
has err "cannot remove 'old2/checkpoints/step-00000002': 'notes' was not written by a run"
kept old2
run 0 run run.yaml out=old2 resume=auto train.steps=10 checkpoint.keep=1
is "times it is named" "$(grep -c "'old2/checkpoints/step-00000002' was not removed: 'notes' was not written by a run" err)" 1
is checkpoints "$(cd old2/checkpoints && echo *)" "step-00000002 step-00000010"
mkdir -p old2/checkpoints/step-00000090.tmp && echo x >old2/checkpoints/step-00000090.tmp/file
run 0 checkpoint prune old2 --keep 1
is "a user's files beside a prune" "$(cat old2/checkpoints/step-00000002/notes old2/checkpoints/step-00000090.tmp/file | tr -d '\n')" xx

# a copy without its marker goes on, and has one then; it is not replaced
mkdir copy && cp -r r/config.yaml r/metrics.jsonl r/checkpoints r/model copy
run 2 run run.yaml out=copy overwrite=true
has err "was not written by a run"
run 0 resume copy train.steps=8
run 0 run run.yaml out=copy overwrite=true
exit $failed
