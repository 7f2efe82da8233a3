#!/bin/sh
# migrate.sh: `nrl migrate` maps configs of other trainers: what it writes is compared with recorded texts and passes
# `nrl check`; every key of the source is mapped or listed; hostile files get an error with a place. With
# NRL_TEST_RECORD=1 it records the texts.
. "$(dirname "$0")/e2e.sh"

cases=$source/tests/data/migrate
cp -r "$source"/configs .
run 0 run configs/sft.yaml train.steps=1 train.epochs=0 out=start -q
cp -r start/model model
cp configs/data/chat.jsonl chat.jsonl
cp configs/data/pref.jsonl pairs.jsonl
cp configs/data/kto.jsonl labels.jsonl
i=0
while [ $i -lt 60 ]; do
    i=$((i + 1))
    echo "{\"text\": \"Story number $i.\"}" >>text.jsonl
    echo "{\"question\": \"What is $i?\", \"answer\": \" $i\"}" >>questions.jsonl
    echo "{\"conversations\": [{\"from\": \"human\", \"value\": \"Say $i.\"}, {\"from\": \"gpt\", \"value\": \"$i\"}]}" >>sharegpt.jsonl
done
echo '[{"instruction": "Add.", "input": "1 and 1", "output": "2"}, {"instruction": "Say hi.", "input": "", "output": "hi"}]' >alpaca.json
printf '%s' "{% for m in messages %}<|im_start|>{{ m['role'] }}
{{ m['content'] }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}" >chatml.jinja
echo 'return function(sample) return sample.completion:find(sample.answer, 1, true) and 1 or 0 end' >reward.lua
mkdir lf
cp text.jsonl lf/stories.jsonl && cp alpaca.json lf/ && cp pairs.jsonl lf/ && cp sharegpt.jsonl lf/
cat >lf/dataset_info.json <<'JSON'
{"small_alpaca": {"file_name": "alpaca.json"},
 "small_text": {"file_name": "stories.jsonl"},
 "small_chat": {"file_name": "sharegpt.jsonl", "formatting": "sharegpt", "columns": {"messages": "conversations"}},
 "small_pairs": {"file_name": "pairs.jsonl", "ranking": true, "columns": {"prompt": "prompt", "chosen": "chosen", "rejected": "rejected"}}}
JSON

# ---- each case: the text, its exit code, and nrl check ----
for file in "$cases"/*.yaml "$cases"/*.yml "$cases"/*.sh "$cases"/*.json; do
    name=$(basename "${file%.*}")
    cp "$file" .
    "$nrl" migrate "$(basename "$file")" -o "$name.out.yaml" >dd 2>err
    echo "exit $?" >>err
    cat "$name.out.yaml" err >found.txt
    if [ "${NRL_TEST_RECORD:-}" ]; then cp found.txt "$cases/$name.expected"; fi
    cmp -s "$cases/$name.expected" found.txt || {
        diff "$cases/$name.expected" found.txt | head -20
        is "what $name becomes" other "that of $name.expected"
    }
    [ "$name" = generic_flat ] || lacks err " unknown; "
    run 0 check "$name.out.yaml" backend=cpu collective=auto overwrite=true train.micro_batch_tokens=4096 parallel=
done
# ---- the tables of the documentation ----
page=$source/docs/porting.md
for name in trl transformers llamafactory axolotl torchtune nemo-rl; do
    run 0 migrate --list $name
    mv out table.txt
    if [ "${NRL_TEST_RECORD:-}" ]; then
        awk -v mark="<!-- nrl migrate --list $name -->" '
            $0 == "<!-- end -->" { inside = 0 }
            !inside { print }
            $0 == mark { while ((getline line <"table.txt") > 0) print line; inside = 1 }' "$page" >page.md && cp page.md "$page"
    fi
    awk -v mark="<!-- nrl migrate --list $name -->" '$0 == "<!-- end -->" { inside = 0 } inside { print } $0 == mark { inside = 1 }' "$page" |
        cmp -s - table.txt || is "table of $name in docs/porting.md" old "what nrl migrate --list $name prints; NRL_TEST_RECORD=1 writes it"
done

# ---- other forms: a command line, --json, no file, overrides ----
run 2 migrate -- tune run --nproc_per_node 4 full_finetune_distributed --config torchtune_full.yaml optimizer.lr=3e-5 batch_size=oops
for text in "batch_size: oops: expected a number" "could not be mapped"; do has err "$text"; done
for text in "  lr: 3e-5 " "  data: fsdp " "# optimizer.lr: 3e-5"; do has out "$text"; done
run 0 migrate --devices 4 -- trl sft --config trl_sft.yaml --learning-rate=1e-3
has out "  lr: 1e-3 "
run 0 migrate torchtune_full.yaml --devices 4 --json
truth "json of a config" 'd.format == "torchtune" and d.algorithm == "sft" and #d.mapped > 10 and #d.assumed == 0 and
    all(d.unmapped, function(u) return u.changes_numbers == false and #u.reason > 0 and u.place:match "^torchtune_full.yaml" end) and
    d.config:find("global_batch: 64", 1, true)'
run 2 migrate trl_dpo.yaml -o trl_dpo.out.yaml
has err "trl_dpo.out.yaml exists"
run 0 migrate trl_dpo.yaml --algorithm orpo --overwrite -o trl_dpo.out.yaml loss_type=sigmoid loss_weights=null precompute_ref_log_probs=false
has trl_dpo.out.yaml "  loss: sigmoid "

# words that look like nothing, and keys that an algorithm does not need, are not skipped
printf 'model_name_or_path: model\nnum_generations: 4\nscale_rewards: none\n' >grpo_none.yaml
run 2 migrate grpo_none.yaml --from trl --algorithm grpo
has out "  scale_rewards: none "
printf 'model_name_or_path: model\nstage: kto\nfinetuning_type: full\ndataset: x\nmask_history: true\nenable_thinking: false\ndefault_system: Be brief.\n' >kto.yaml
run 2 migrate kto.yaml
has err "enable_thinking: false: \`data.template: {path: auto, variables: {enable_thinking: false}}\`"
has err "default_system: Be brief.: give the rows a system message"
has out "mask_history: true: kto trains only the last answer of a row"

# ---- what is no config of a trainer ----
run 2 migrate "$source/configs/sft.yaml"
has err "is a config of nrl"
run 2 migrate nowhere.yaml
has err "nowhere.yaml: No such file or directory"
echo 'x: 1' >other.yaml
run 2 migrate other.yaml
has err "no known trainer has these keys"
printf 'a: [1, 2\nb: 3\n' >broken.yaml
run 2 migrate broken.yaml
has err "broken.yaml:2:"
printf 'base: &b {x: *b}\n' >alias.yaml
run 2 migrate alias.yaml
has err "alias.yaml:1:"
printf 'a: &a [1,1,1,1,1,1,1,1,1]\n' >bomb.yaml
for i in b c d e f g h i; do printf '%s: &%s [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n' $i $i | sed "s/\*a/*$(echo $i | tr b-i a-h)/g" >>bomb.yaml; done
run 2 migrate bomb.yaml
has err "the aliases expand to too many values"
yes 'key: value' | head -c 1100000 >huge.yaml
run 2 migrate huge.yaml
has err "limit of"
head -c 4000 /dev/urandom >noise.yaml
run 2 migrate noise.yaml
printf 'model_name_or_path: [a, {b: c}]\nlearning_rate: {x: [1]}\nbf16: [true]\nnum_train_epochs: 1/0\ndataset_name: {}\nper_device_train_batch_size: -3\noptim: [[[]]]\nlora_r: "((((("\nuse_peft: true\n' >types.yaml
run 2 migrate types.yaml
has err "types.yaml:4: num_train_epochs: 1/0: expected a number"
has err "types.yaml:2: learning_rate.x"
exit $failed
