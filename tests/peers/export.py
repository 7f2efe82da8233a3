"""Models that nrl trained and saved load in transformers, with nothing missing or left over, and give
the logits that nrl gave; their tokenizers give nrl's ids.

usage: export.py PEERS_EXPORT (paths of models come from NRL_TEST_SOURCE and NRL_TEST_SHARED)
"""
import json, os, subprocess, sys, tempfile

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", OMP_NUM_THREADS="1")
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

BOUND = 1e-5  # both compute in fp32; logits are of size 10


def run(program, model, out):
    text = subprocess.run([program, model, out], check=True, stdout=subprocess.PIPE).stdout.decode()
    begin = text.index("{")  # the test framework prints around it
    return json.JSONDecoder().raw_decode(text[begin:])[0]


def largest_error(path, rows):
    model, info = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager",
                                                       output_loading_info=True)
    problems = [k for k in ("missing_keys", "unexpected_keys", "mismatched_keys") if info.get(k)]
    assert not problems, (path, info)
    worst = 0.0
    with torch.no_grad():
        for row in rows:
            logits = model(input_ids=torch.tensor([row["ids"]]), use_cache=False).logits[0, -1]
            worst = max(worst, float((logits - torch.tensor(row["logits"])).abs().max()))
    return worst


def check_tokenizer(path, texts):
    """transformers 5 rebuilds Llama tokenizers with a Metaspace step that drops one leading space, so
    there AutoTokenizer is asked about other texts only; the file itself is asked about all."""
    auto = AutoTokenizer.from_pretrained(path)
    file = Tokenizer.from_file(os.path.join(path, "tokenizer.json"))
    for t in texts:
        assert file.encode(t["text"]).ids == t["ids"], (path, t)
        if not t["text"].startswith(" "):
            assert auto(t["text"])["input_ids"] == t["ids"], (path, t)


def main(program):
    root = os.path.join(os.environ["NRL_TEST_SOURCE"], "tests/data/models")
    models = [os.path.join(root, name) for name in sorted(os.listdir(root))]
    stories = os.path.join(os.environ.get("NRL_TEST_SHARED", ""), "data/models/stories260K/hf")
    models += [stories] if os.path.isdir(stories) else []
    failed = False
    for model in models:
        with tempfile.TemporaryDirectory() as out:
            said = run(program, model, out)
            for kind in ("whole", "shards"):
                path = os.path.join(out, kind)
                worst = largest_error(path, said["rows"])
                if "texts" in said:
                    check_tokenizer(path, said["texts"])
                print(f"{os.path.relpath(model, root):40} {kind:7} logits differ by {worst:.1e}, "
                      f"{len(said.get('texts', []))} texts agree")
                failed |= not worst <= BOUND
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
