#!/bin/sh
# signed.sh: signed checkpoints (checkpoint.sign) of one rank and of two. If a public key is required, verify, resume,
# export, sample, eval and model.path refuse checkpoints that are not signed with its key.
. "$(dirname "$0")/e2e.sh"
rows 32 >train.jsonl
experiment >c.yaml

# ---- keys ----
run 0 checkpoint keygen me
is "mode of a secret key" "$(stat -c %a me)" 600
run 2 checkpoint keygen me
has err "me: already exists"
run 0 checkpoint keygen other
run 2 run c.yaml out=none checkpoint.sign=me.pub
has err "checkpoint.sign: me.pub: "
run 2 run c.yaml out=none checkpoint.public_key=c.yaml
has err "checkpoint.public_key: c.yaml: is not a key file; expected a line with 'nrl-ed25519-public'"
cp me seen && chmod 644 seen
run 2 run c.yaml out=none checkpoint.sign=seen
has err "hint: chmod 600"
[ -e none/checkpoints ] && is "a run with a bad key" begun "not begun"

# ---- signed by a run, demanded by every reader ----
run 0 run c.yaml out=plain
run 0 run c.yaml out=mine checkpoint.sign=me checkpoint.keep=0
run 0 checkpoint verify mine --public-key me.pub
is "signed ones" "$(grep -c 'signed by this key' out)" 3
run 0 checkpoint verify mine
has out "signed (not checked without --public-key)"
run 5 checkpoint verify mine --public-key other.pub
has out "is not a signature of this manifest by the public key"
run 5 checkpoint verify plain --public-key me.pub
has out "plain/checkpoints/step-00000006: is not signed, but a public key was given"

cp -r mine again
run 0 resume again train.steps=8 checkpoint.public_key=me.pub
has out "after step 6 of 8"
run 5 resume again train.steps=9 checkpoint.public_key=other.pub
has err "again/checkpoints/step-00000008/manifest.json.sig: is not a signature of this manifest by the public key"
run 5 resume plain train.steps=8 checkpoint.public_key=me.pub
has err "is not signed, but a public key was given"

run 0 export mine model --public-key me.pub
run 5 export plain model-plain --public-key me.pub
run 5 export mine model-other --public-key other.pub
[ -e model-plain ] || [ -e model-other ] && is "an export of what is not signed" there absent
for reader in "run c.yaml out=from-plain model.path=plain" "eval c.yaml data.eval=train.jsonl model.path=plain"; do
    # shellcheck disable=SC2086
    run 5 $reader checkpoint.public_key=me.pub
    has err "is not signed, but a public key was given"
done
run 0 eval c.yaml data.eval=train.jsonl model.path=mine checkpoint.public_key=me.pub
run 5 sample plain --prompt a --public-key me.pub
has err "is not signed, but a public key was given"

# ---- what was changed after it was signed ----
cp -r mine changed
sed 's/"time": /"time": 1/' changed/checkpoints/step-00000006/manifest.json >forged
mv forged changed/checkpoints/step-00000006/manifest.json
run 5 checkpoint verify changed --public-key me.pub
has out "step-00000006/manifest.json.sig: is not a signature"
printf 'nrl-ed25519-signature zz\n' >mine/checkpoints/step-00000006/manifest.json.sig
run 5 checkpoint verify mine --public-key me.pub
has out "manifest.json.sig: is not a signature"

# ---- two ranks: only rank 0 has the key, all ranks' files are covered ----
run 0 launch -n 2 -- run c.yaml out=two checkpoint.sign=me parallel=fsdp
run 0 checkpoint verify two --public-key me.pub
run 0 launch -n 2 -- run c.yaml out=two resume=auto train.steps=8 checkpoint.public_key=me.pub parallel=fsdp
has out "after step 6 of 8"
mv two/checkpoints/step-00000006/manifest.json.sig gone
run 5 launch -n 2 -- run c.yaml out=three resume=two/checkpoints/step-00000006 checkpoint.public_key=me.pub
has err "is not signed, but a public key was given"

# ---- an unsigned checkpoint is as it was ----
[ -e plain/checkpoints/step-00000006/manifest.json.sig ] && is "a signature without checkpoint.sign" there absent
lacks plain/checkpoints/step-00000006/manifest.json blake2b
exit $failed
