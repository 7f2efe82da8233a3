#!/bin/sh
# plugins_resume.sh: a checkpoint records version and hash of its plugins; a resume with an incompatible version is
# refused, with a compatible version or another file it warns, and with the same file it does neither.
. "$(dirname "$0")/e2e.sh"
rows 16 >train.jsonl
experiment | sed 's/name: adamw/name: flip/' >c.yaml
built=$NRL_TEST_BUILD/tests
run 0 run c.yaml out=run "plugins=[$built/plugins]" train.steps=4
grep -hq '"optimizers/flip": "0.1, [0-9a-f]*"' run/checkpoints/*/manifest.json || is "the manifest" "$(cat run/checkpoints/*/manifest.json)" "flip's version"
for plugin in algorithms/sft models/llama backends/cpu datasets/jsonl; do
    grep -hq "\"$plugin\": \"" run/checkpoints/*/manifest.json || is "the manifest" "without $plugin" "with it"
done

# again NAME: resumes a copy with the plugins of a folder
again() {
    rm -rf again && cp -r run again
    run "$1" run c.yaml out=again resume=auto train.steps=6 "plugins=[$2]"
}
again 0 "$built/plugins"
lacks err "different builds"
again 0 "$built/plugins_0.1.1"
has err "warning: the checkpoint was written with different builds of these plugins:"
has err "optimizers/flip: was 0.1, "
has err "is now 0.1.1, "
again 2 "$built/plugins_0.2"
has err "plugin optimizers/flip: was \"0.1, "
has err "is now \"0.2, "
run 0 run c.yaml out=again resume=auto train.steps=6 "plugins=[$built/plugins_0.2]" checkpoint.mismatch=warn
mkdir -p other/optimizers && cp "$built/plugins/optimizers/flip.so" other/optimizers/ && echo x >>other/optimizers/flip.so
again 0 other
has err "different builds of these plugins:"
exit $failed
