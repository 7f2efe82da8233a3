"""Small random models of every family that nrl serves, made by transformers: nrl reads what it saved,
has its gradients, trains, and transformers reads that back and gives nrl's logits. What golden files
show of some families is shown here of all, with the options that they do not use.

usage: families.py PEERS_EXPORT
"""
import json, os, random, sys, tempfile

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", OMP_NUM_THREADS="1")
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from export import BOUND, largest_error, run

GRADIENT_BOUND = 2e-5  # of the largest element of each tensor; both compute in fp32
LENGTHS = [23, 9, 16]
SIZES = dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=4, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, initializer_range=0.2, pad_token_id=0,
             bos_token_id=1, eos_token_id=2)
HALF = [1.0, 1.25, 1.5, 3.0]  # divisors of a head of 8
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32, rope_theta=10000.0)
LONG = dict(rope_type="longrope", short_factor=HALF, long_factor=[2 * x for x in HALF], rope_theta=10000.0)

CASES = {
    "llama, biases, llama3 positions": dict(model_type="llama", attention_bias=True, mlp_bias=True,
                                            rope_parameters=LLAMA3),
    "mistral, a window": dict(model_type="mistral", sliding_window=6, head_dim=12),
    "qwen2, late windows": dict(model_type="qwen2", use_sliding_window=True, sliding_window=5, max_window_layers=2),
    "qwen3": dict(model_type="qwen3", head_dim=16, tie_word_embeddings=True),
    "phi3, a window": dict(model_type="phi3", sliding_window=7),
    "phi3, a part of each head turns": dict(model_type="phi3", num_attention_heads=2, tie_word_embeddings=True,
                                            rope_parameters=dict(rope_type="default", rope_theta=5000.0,
                                                                 partial_rotary_factor=0.75)),
    "phi3, long positions": dict(model_type="phi3", original_max_position_embeddings=32, rope_parameters=LONG),
    "smollm3": dict(model_type="smollm3"),
    "smollm3, windows without positions": dict(model_type="smollm3", no_rope_layers=[1, 0, 1, 0],
                                               use_sliding_window=True, sliding_window=5),
    "granite": dict(model_type="granite", embedding_multiplier=12.0, attention_multiplier=0.25,
                    residual_multiplier=0.22, logits_scaling=4.0),
    "olmo2": dict(model_type="olmo2"),
    "olmo3": dict(model_type="olmo3", sliding_window=6),
    "glm": dict(model_type="glm", head_dim=16),
    "glm4": dict(model_type="glm4", head_dim=16, attention_bias=False,
                 rope_parameters=dict(rope_type="default", rope_theta=5000.0, partial_rotary_factor=0.25)),
    "ernie4_5": dict(model_type="ernie4_5", head_dim=16),
    "ernie4_5, biases, not tied": dict(model_type="ernie4_5", head_dim=16, use_bias=True, tie_word_embeddings=False),
    "exaone4, windows with positions": dict(model_type="exaone4", sliding_window=6),
    "exaone4, no windows": dict(model_type="exaone4", sliding_window=None, tie_word_embeddings=True,
                                layer_types=["full_attention"] * 4, rope_parameters=LLAMA3),
    "hunyuan_v1_dense, a larger base": dict(model_type="hunyuan_v1_dense", head_dim=16, attention_bias=True,
                                            rope_parameters=dict(rope_type="dynamic", alpha=100.0, factor=1.0,
                                                                 rope_theta=10000.0)),
    "hunyuan_v1_dense": dict(model_type="hunyuan_v1_dense", head_dim=16, tie_word_embeddings=True),
    "arcee": dict(model_type="arcee", mlp_bias=True, attention_bias=True),
    "qwen3_moe, the first layer without experts": dict(model_type="qwen3_moe", head_dim=16, num_experts=6,
                                                       num_experts_per_tok=3, moe_intermediate_size=24,
                                                       norm_topk_prob=True, mlp_only_layers=[0]),
    "mixtral, a window": dict(model_type="mixtral", num_local_experts=5, sliding_window=6),
    "olmoe, clipped": dict(model_type="olmoe", num_key_value_heads=4, num_experts=8, num_experts_per_tok=2, clip_qkv=1.5),
    "gpt_oss": dict(model_type="gpt_oss", head_dim=16, num_local_experts=5, num_experts_per_tok=2, sliding_window=6,
                    output_router_logits=True),
    "gpt_oss, no biases of attention": dict(model_type="gpt_oss", head_dim=16, num_local_experts=4, num_experts_per_tok=3,
                                            attention_bias=False, sliding_window=5, tie_word_embeddings=True,
                                            layer_types=["full_attention"] * 3 + ["sliding_attention"],
                                            rope_parameters=dict(rope_type="default", rope_theta=5000.0)),
    "gemma": dict(model_type="gemma", head_dim=16, num_key_value_heads=1),
    "gemma2": dict(model_type="gemma2", head_dim=16, sliding_window=6, query_pre_attn_scalar=20,
                   attn_logit_softcapping=2.0, final_logit_softcapping=3.0),
    "gemma2, no caps": dict(model_type="gemma2", head_dim=16, sliding_window=6, attn_logit_softcapping=None,
                            final_logit_softcapping=None),
    "gemma3_text, capped logits": dict(model_type="gemma3_text", head_dim=16, num_hidden_layers=7, sliding_window=6,
                                       query_pre_attn_scalar=20, final_logit_softcapping=3.0),
    "gemma3_text, stretched": dict(model_type="gemma3_text", head_dim=16, sliding_window=6,
                                   layer_types=["sliding_attention", "full_attention"] * 2,
                                   rope_parameters=dict(
                                       full_attention=dict(rope_type="linear", factor=8.0, rope_theta=1e6),
                                       sliding_attention=dict(rope_type="default", rope_theta=1e4))),
}

SEES = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=8)
# Models of texts and images, of which nrl reads the language model.
WHOLES = {
    "gemma3 with images": dict(model_type="gemma3", mm_tokens_per_image=4, image_token_index=90,
                               text_config=dict(model_type="gemma3_text", head_dim=16, sliding_window=6),
                               vision_config=dict(model_type="siglip_vision_model", **SEES)),
    "mistral3 with images": dict(model_type="mistral3", image_token_index=90, tie_word_embeddings=False,
                                 text_config=dict(model_type="mistral", head_dim=12, sliding_window=None),
                                 vision_config=dict(model_type="pixtral", head_dim=8, **SEES)),
    "llava of qwen2": dict(model_type="llava", image_token_index=90, tie_word_embeddings=False,
                           text_config=dict(model_type="qwen2"),
                           vision_config=dict(model_type="clip_vision_model", **SEES)),
    "llava of qwen2, tied outside": dict(model_type="llava", image_token_index=90, tie_word_embeddings=True,
                                         text_config=dict(model_type="qwen2", tie_word_embeddings=False),
                                         vision_config=dict(model_type="clip_vision_model", **SEES)),
    "smolvlm": dict(model_type="smolvlm", image_token_id=90, tie_word_embeddings=False, scale_factor=1,
                    text_config=dict(model_type="llama"),
                    vision_config=dict(model_type="smolvlm_vision", **SEES)),
}


def name_in_text_model(name):
    """None for a tensor of another part."""
    for prefix in ("language_model.model.", "model.language_model.", "model.text_model."):
        if name.startswith(prefix):
            return "model." + name[len(prefix):]
    name = name.removeprefix("language_model.")
    return name if name.startswith("lm_head.") else None


def from_config(keys):
    if "text_config" not in keys:
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(**{**SIZES, **keys}),
                                                attn_implementation="eager", dtype=torch.float32)
    whole = {**keys, "text_config": {**SIZES, **keys["text_config"]}}
    return AutoModelForImageTextToText.from_config(AutoConfig.for_model(**whole), attn_implementation="eager",
                                                   dtype=torch.float32)


def make(keys, path):
    """Weights of norms and biases are moved away from where they begin, or nothing would show."""
    model = from_config(keys)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() == 1 or name.endswith("_bias"):
                p.add_(0.3 * torch.randn_like(p))
    model.save_pretrained(path)
    return model.train()


def make_rows(path):
    """The rows of a golden.json, as nrl's test harness reads it."""
    ids = [[random.randrange(3, SIZES["vocab_size"]) for _ in range(n)] for n in LENGTHS]
    labels = [[-100 if i < n // 3 else t for i, t in enumerate(row)] for n, row in zip(LENGTHS, ids)]
    with open(os.path.join(path, "golden.json"), "w") as f:
        json.dump({"lengths": LENGTHS, "input_ids": ids, "labels": labels}, f)
    return ids, labels


def gradients(model, ids, labels):
    """By the names of files, which save_pretrained gives where they differ from those of modules (experts)."""
    total, n = 0.0, 0
    for row, wanted in zip(ids, labels):
        logps = model(input_ids=torch.tensor([row]), use_cache=False).logits[0].log_softmax(-1)
        for i, t in enumerate(wanted):
            if i and t >= 0:
                total, n = total - logps[i - 1, t], n + 1
    (total / n).backward()
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        for p in model.parameters():
            p.copy_(torch.zeros_like(p) if p.grad is None else p.grad)
        model.save_pretrained(folder)
        stored = load_file(os.path.join(folder, "model.safetensors"))
    if hasattr(model.config, "text_config"):
        stored = {name_in_text_model(name): g for name, g in stored.items() if name_in_text_model(name)}
    return stored


def gradient_error(wanted, path):
    got, worst = load_file(os.path.join(path, "model.safetensors")), 0.0
    assert set(got) == set(wanted), set(got) ^ set(wanted)
    for name, g in wanted.items():
        worst = max(worst, float((got[name] - g).abs().max() / g.abs().max().clamp(min=1e-30)))
    return worst


def main(program):
    failed = False
    for name, keys in {**CASES, **WHOLES}.items():
        torch.manual_seed(1)
        random.seed(1)
        with tempfile.TemporaryDirectory() as folder:
            path, out = os.path.join(folder, "model"), os.path.join(folder, "out")
            model = make(keys, path)
            ids, labels = make_rows(path)
            said = run(program, path, out)
            slope = gradient_error(gradients(model, ids, labels), os.path.join(out, "gradients"))
            logits = max(largest_error(os.path.join(out, kind), said["rows"]) for kind in ("whole", "shards"))
        print(f"{name:40} gradients differ by {slope:.1e}, trained logits by {logits:.1e}", flush=True)
        failed |= not (slope <= GRADIENT_BOUND and logits <= 2 * BOUND)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
