"""GGUF files of nrl, read by llama.cpp: logits of every architecture and tokens of texts equal nrl's.

    gguf.py NRL: the nrl program; needs llama_cpp and numpy (pip: llama-cpp-python), else it is skipped.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

try:
    import llama_cpp
    import numpy
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)

nrl = sys.argv[1]
source = pathlib.Path(os.environ["NRL_TEST_SOURCE"])
shared = pathlib.Path(os.environ.get("NRL_TEST_SHARED") or source.parent / "shared")
sys.path.insert(0, str(source / "python"))
import nrl as nrl_module  # noqa: E402

ids = [1, 17, 5, 42, 8, 8, 63, 2, 90, 33, 71, 4]
failed = 0


def check(name, good, text):
    global failed
    print(f"{'ok' if good else 'FAILED'}  {name}: {text}")
    failed += not good


def export(model, out, *options):
    subprocess.run([nrl, "export", str(model), str(out), "--format", "gguf", *options], check=True,
                   stdout=subprocess.DEVNULL)
    return str(out / "model.gguf")


def llama(path, **options):
    return llama_cpp.Llama(path, logits_all=True, verbose=False, n_ctx=64, n_threads=1, **options)


def llama_logits(path, tokens):
    model = llama(path)
    model.eval(tokens)
    return numpy.array(model.scores[:len(tokens)])


def write_tiny(model, tokenizer):
    """A llama of one layer and width 32 with the vocabulary of a tokenizer, in safetensors."""
    vocabulary = json.loads((tokenizer / "tokenizer.json").read_text())
    ids = [*vocabulary["model"]["vocab"].values(), *(t["id"] for t in vocabulary["added_tokens"])]
    config = {"model_type": "llama", "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1,
              "num_attention_heads": 2, "vocab_size": max(ids) + 1, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "max_position_embeddings": 64, "tie_word_embeddings": True}
    shutil.copytree(tokenizer, model)
    (model / "config.json").write_text(json.dumps(config))
    layer = "model.layers.0."
    shapes = {"model.embed_tokens.weight": [config["vocab_size"], 32], "model.norm.weight": [32],
              layer + "input_layernorm.weight": [32], layer + "post_attention_layernorm.weight": [32]}
    for module in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj",
                   "mlp.up_proj", "mlp.down_proj"):
        shapes[f"{layer}{module}.weight"] = [32, 32]
    header, data = {}, b""
    for key, shape in shapes.items():
        values = numpy.full(shape, 0.01, numpy.float32).tobytes()
        header[key] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (model / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)


with tempfile.TemporaryDirectory() as work:
    work = pathlib.Path(work)
    for name in ("llama", "llama3", "mistral", "phi3", "qwen2", "qwen3", "gpt2"):
        model = shared / "golden/models" / name
        if not model.exists():
            print(f"skipped: no {model}")
            sys.exit(77)
        tokens = ids[:8] if name == "mistral" else ids  # the window of this model is 8 tokens
        found = llama_logits(export(model, work / name, "--dtype", "f32"), tokens)
        with nrl_module.Model(str(model)) as m:
            expected = m.logits([tokens])
        error = numpy.abs(found - expected).max() / numpy.abs(expected).max()
        check(f"logits of {name}", error < 2e-3, f"largest difference {error:.1e} of the largest logit")

    stories = shared / "data/models/stories260K/hf"
    if stories.exists():
        path = export(stories, work / "stories", "--dtype", "f32")
        model = llama(path)
        with nrl_module.Model(str(stories)) as m:
            for text in ("Once upon a time", " Lily and Tom  play.\n\nThe end", "naïve café 日本 🙂", "a"):
                found, expected = model.tokenize(text.encode(), add_bos=True), list(m.tokenizer.encode(text, special=True))
                check(f"tokens of {text!r}", found == expected, f"{found} {expected}")
        text = model("Once upon a time", max_tokens=24, temperature=0)["choices"][0]["text"]
        sample = subprocess.run([nrl, "sample", str(stories), "--prompt", "Once upon a time", "--max-tokens", "24",
                                 "--temperature", "0"], check=True, capture_output=True, text=True).stdout
        check("greedy text", text.strip() and text.strip() in " ".join(sample.split("\n")), f"{text!r} in {sample!r}")
        for dtype in ("f16", "q8_0", "q4_k"):
            quantized = llama_logits(export(stories, work / dtype, "--dtype", dtype), ids)
            exact = llama_logits(path, ids)
            agree = (quantized.argmax(1) == exact.argmax(1)).mean()
            check(f"{dtype} predicts as f32", agree >= 0.75, f"{agree:.0%} of positions")
    # Byte-level tokenizers: a tiny model beside each of them.
    texts = ("Hello world, it's 2026!", "  two  spaces\n\nand 12345 digits\t", "naïve café 日本 🙂", "def f(x):\n    return x")
    for name in ("gpt2", "smollm", "qwen2"):
        folder = shared / "data/tokenizers" / name
        if not folder.exists():
            continue
        model = work / f"tiny-{name}"
        write_tiny(model, folder)
        reader = llama(export(model, work / f"tiny-{name}-gguf", "--dtype", "q8_0"), vocab_only=True)
        with nrl_module.Model(str(model)) as m:
            for text in texts:
                found = reader.tokenize(text.encode(), add_bos=False)
                expected = list(m.tokenizer.encode(text))
                check(f"tokens of {name} in {text!r}", found == expected, f"{found} {expected}")
sys.exit(failed > 0)
