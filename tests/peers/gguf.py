"""GGUF files of nrl, read by llama.cpp: logits of every architecture and tokens of texts equal nrl's.

    gguf.py NRL: the nrl program; needs llama_cpp and numpy (pip: llama-cpp-python), else it is skipped. torch and
    transformers make small random models of the families that have no golden files.
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
EXACT = 2e-5  # of the largest logit; both compute in fp32
GELU = 5e-3  # llama.cpp looks gelu up in a table of f16 values
DEEP = 3e-2  # the same through 46 layers; another scale of attention differs by more than 0.1

LINEAR = dict(rope_type="linear", factor=2.0, rope_theta=1e4)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32, rope_theta=1e4)
GRANITE = dict(model_type="granite", embedding_multiplier=12.0, attention_multiplier=0.25, residual_multiplier=0.22,
               logits_scaling=4.0)
GEMMA2 = dict(model_type="gemma2", head_dim=16, sliding_window=6, query_pre_attn_scalar=16)
GEMMA3 = dict(model_type="gemma3_text", head_dim=16, sliding_window=6, query_pre_attn_scalar=16, num_hidden_layers=7)
CAPS = dict(attn_logit_softcapping=2.0, final_logit_softcapping=3.0)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=8.0, beta_slow=1.0, rope_theta=1e4)
QWEN3_MOE = dict(model_type="qwen3_moe", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, head_dim=16)
GPT_OSS = dict(model_type="gpt_oss", num_local_experts=4, num_experts_per_tok=2, head_dim=16, rope_parameters=YARN)
STRETCHED = dict(full_attention=dict(rope_type="linear", factor=8.0, rope_theta=1e6),
                 sliding_attention=dict(rope_type="default", rope_theta=1e4))

# Name: keys of the config, the bound of the error, and the number of tokens if the context is limited to a window.
FAMILIES = {
    "llama, biases": (dict(model_type="llama", attention_bias=True, mlp_bias=True, rope_parameters=LLAMA3), EXACT),
    "mistral, a window": (dict(model_type="mistral", sliding_window=6, head_dim=12), EXACT, 6),
    "phi3, a window": (dict(model_type="phi3", sliding_window=7), EXACT, 7),
    "phi3, a part of each head turns": (
        dict(model_type="phi3", num_attention_heads=2, rope_parameters=dict(
            rope_type="default", rope_theta=5000.0, partial_rotary_factor=0.75)), EXACT),
    "qwen2, YaRN": (dict(model_type="qwen2", rope_parameters=YARN), EXACT),
    "llama, YaRN": (dict(model_type="llama", rope_parameters=YARN), EXACT),
    "mixtral": (dict(model_type="mixtral", num_local_experts=4), EXACT),
    "qwen3_moe": (dict(**QWEN3_MOE, norm_topk_prob=True), EXACT),
    "olmoe": (dict(model_type="olmoe", num_key_value_heads=4, num_experts=4, num_experts_per_tok=2), EXACT),
    "gpt_oss": (dict(**GPT_OSS, sliding_window=6), EXACT),
    "qwen2, positions divided": (dict(model_type="qwen2", rope_parameters=LINEAR), EXACT),
    "granite": (GRANITE, EXACT),
    "granite, all multipliers 1": (dict(model_type="granite"), EXACT),
    "granite, biases": (dict(**GRANITE, attention_bias=True, mlp_bias=True, rope_parameters=LLAMA3), EXACT),
    "smollm3": (dict(model_type="smollm3"), EXACT),
    "olmo2": (dict(model_type="olmo2"), EXACT),
    "olmo3": (dict(model_type="olmo3", sliding_window=6, num_hidden_layers=5), EXACT),
    "gemma": (dict(model_type="gemma", head_dim=16, num_key_value_heads=1), GELU),
    "gemma2": (dict(**GEMMA2, **CAPS), GELU),
    "gemma2, positions divided": (dict(**GEMMA2, rope_parameters=LINEAR), GELU),
    "gemma2, scaled by the width": (dict(**{**GEMMA2, "head_dim": 24}, hidden_size=64, num_hidden_layers=46), DEEP),
    "gemma3": (GEMMA3, GELU),
    "gemma3, capped logits": (dict(**GEMMA3, final_logit_softcapping=3.0), GELU),
    "gemma3, stretched": (dict(**GEMMA3, rope_parameters=STRETCHED), GELU),
}

# Name: keys of the config, and what the error says.
REFUSED = {
    "phi3, long positions": (
        dict(model_type="phi3", original_max_position_embeddings=32, rope_parameters=dict(
            rope_type="longrope", short_factor=[1.0] * 4, long_factor=[2.0] * 4, rope_theta=1e4)), "'longrope'"),
    "qwen2, llama3 positions": (dict(model_type="qwen2", rope_parameters=LLAMA3), "'llama3' is not supported for qwen2"),
    "qwen3, biases": (dict(model_type="qwen3", attention_bias=True), "has no tensor"),
    "smollm3, other layers": (dict(model_type="smollm3", no_rope_layers=[1, 0, 1, 0]), "no_rope_layers[1]"),
    "gemma2, another scale": (dict(**{**GEMMA2, "query_pre_attn_scalar": 20}), "query_pre_attn_scalar is 20"),
    "gemma2, no caps": (dict(**GEMMA2, attn_logit_softcapping=None), "attn_logit_softcapping is null"),
    "gemma3, other layers": (dict(**{**GEMMA3, "num_hidden_layers": 2},
                                  layer_types=["sliding_attention", "full_attention"]), "layer_types[1]"),
    "gpt_oss, another limit": (dict(**GPT_OSS, swiglu_limit=8.0), "swiglu_limit is 8"),
    "olmoe, clipped": (dict(model_type="olmoe", num_experts=4, num_experts_per_tok=2, clip_qkv=1.0), "clip_qkv is set"),
    "qwen3_moe, weights as they are": (dict(**QWEN3_MOE, norm_topk_prob=False), "norm_topk_prob is false"),
    "llama, another range of YaRN": (dict(model_type="llama", rope_parameters=dict(**YARN, truncate=False)), "truncate: false"),
}


def check(name, good, text):
    global failed
    print(f"{'ok' if good else 'FAILED'}  {name}: {text}")
    failed += not good


def export(model, out, *options):
    subprocess.run([nrl, "export", str(model), str(out), "--format", "gguf", *options], check=True,
                   stdout=subprocess.DEVNULL)
    return str(out / "model.gguf")


def llama(path, **options):
    f32 = llama_cpp.GGML_TYPE_F32  # of the keys and values that are kept; f16 would hide small differences
    return llama_cpp.Llama(path, logits_all=True, verbose=False, n_ctx=64, n_threads=1, type_k=f32, type_v=f32,
                           flash_attn=False, **options)


def llama_logits(path, tokens):
    model = llama(path)
    model.eval(tokens)
    return numpy.array(model.scores[:len(tokens)])


def compare_logits(name, model, out, tokens, bound):
    found = llama_logits(export(model, out, "--dtype", "f32"), tokens)
    with nrl_module.Model(str(model)) as m:
        expected = m.logits([tokens])
    error = numpy.abs(found - expected).max() / numpy.abs(expected).max()
    check(f"logits of {name}", error < bound, f"largest difference {error:.1e} of the largest logit")


def compare_families(work):
    """Small random models of families, and those that llama.cpp cannot compute."""
    try:
        import torch
        from families import make
    except ImportError as e:
        print(f"skipped: families: {e}")
        return
    for name, (keys, bound, *n) in FAMILIES.items():
        torch.manual_seed(1)
        folder = work / name.replace(" ", "-")
        make(keys, folder)
        compare_logits(name, folder, work / f"{folder.name}-gguf", ids[:n[0] if n else None], bound)
    for name, (keys, text) in REFUSED.items():
        folder = work / name.replace(" ", "-")
        make(keys, folder)
        said = subprocess.run([nrl, "export", str(folder), str(work / "refused"), "--format", "gguf"], text=True,
                              capture_output=True)
        check(f"refusal of {name}", said.returncode == 2 and text in said.stderr, said.stderr.strip())


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
        compare_logits(name, model, work / name, tokens, GELU if name == "gpt2" else EXACT)
    compare_families(work)

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
