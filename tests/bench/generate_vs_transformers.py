#!/usr/bin/env python3
"""Generation beside transformers.generate in one process, interleaved; prints one JSON object and judges nothing.

usage: generate_vs_transformers.py NRL [--model smollm2|tiny|DIR] [--layers N] [--dtype bf16|f32] [--batch B ...] [--tokens N]
                                   [--threads N] [--repeats R]
Run it with a Python that has torch, transformers and safetensors. Both sides read the same weights (random ones unless --model
is a directory) and compute in the same dtype, get the same greedy prompts of unequal length and choose --tokens tokens for each: nrl
through its Python module, as its users do, transformers with a padded batch and its key/value cache. The `stream` variants
decode every token as it comes. Rates are new tokens a second, prompts included, by the clock and by the time of the CPU;
other programs on the machine disturb the latter less. `same` is the share of texts whose tokens are equal on both sides.
"""
import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time

import common


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("nrl")
    p.add_argument("--model", default="smollm2", help="smollm2, tiny, or a Hugging Face directory with a tokenizer")
    p.add_argument("--layers", type=int, default=common.FULL_DEPTH, help="of a random model")
    p.add_argument("--dtype", choices=["bf16", "f32"], default="bf16")
    p.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32])
    p.add_argument("--tokens", type=int, default=32)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--repeats", type=int, default=3)
    return p.parse_args()


def write_model(folder, args, torch, transformers):
    config = dict(common.model_config(args.model, args.layers), bos_token_id=None, eos_token_id=None)
    torch.manual_seed(1)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**config))
    model.to(torch.bfloat16 if args.dtype == "bf16" else torch.float32).save_pretrained(folder)
    common.write_tokenizer(folder, config["vocab_size"])
    return folder


def prompts(n, call, variant):
    """Texts whose lengths are log-normal, 8 to 96 words, and the same for every variant of a call."""
    lengths, rng = random.Random(call), random.Random(f"{call} {variant}")
    words = "the a of in on model token value key cache fast slow red green seven eleven river stone".split()
    return [" ".join(rng.choice(words) for _ in range(common.log_normal(lengths, 24, 0.6, 8, 96))) for _ in range(n)]


def timed(run, n, tokens, is_stream):
    """A function that measures `run` with other prompts at each call, because nrl would take repeated ones from its cache."""
    calls = [0]

    def once():
        calls[0] += 1
        texts = prompts(n, calls[0], is_stream)
        clock, cpu = time.perf_counter(), time.process_time()
        ids = run(texts)
        return {"clock": n * tokens / (time.perf_counter() - clock), "cpu": n * tokens / (time.process_time() - cpu),
                "ids": ids}
    once()
    return once


def rates(runs, unit):
    return [r[unit] for r in runs]


def report(n, runs):
    row = {"batch": n}
    for end in ("", "_stream"):
        ours, theirs = runs["nrl" + end], runs["transformers" + end]
        row.update({f"nrl{end}_tokens_per_s": round(statistics.median(rates(ours, "clock")), 1),
                    f"transformers{end}_tokens_per_s": round(statistics.median(rates(theirs, "clock")), 1),
                    f"clock{end}": common.ratio(rates(ours, "clock"), rates(theirs, "clock")),
                    f"cpu{end}": common.ratio(rates(ours, "cpu"), rates(theirs, "cpu"))})
    pairs = [pair for o, t in zip(runs["nrl"], runs["transformers"]) for pair in zip(o["ids"], t["ids"])]
    row["same"] = round(sum(a == b for a, b in pairs) / len(pairs), 3)
    return row


def bench(args, folder, torch, transformers, nrl):
    dtype = torch.bfloat16 if args.dtype == "bf16" else torch.float32
    peer = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    peer.generation_config.eos_token_id = None
    model = nrl.Model(folder, precision=args.dtype)

    class Streamer(transformers.generation.streamers.BaseStreamer):
        def put(self, value):
            for row in value.reshape(-1).tolist():
                model.tokenizer.decode([row])

        def end(self):
            pass

    def of_peer(texts, streamer=None):
        rows = [model.tokenizer.encode(text) for text in texts]
        width = max(map(len, rows))
        ids = torch.tensor([[0] * (width - len(row)) + row for row in rows])
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
        with torch.inference_mode():
            out = peer.generate(ids, attention_mask=mask, max_new_tokens=args.tokens, min_new_tokens=args.tokens,
                                do_sample=False, pad_token_id=0, streamer=streamer)
        return out[:, width:].tolist()

    def of_nrl(texts, on_token=None):
        return [list(text.ids) for text in model.sample(texts, max_tokens=args.tokens, on_token=on_token)]

    variants = {"nrl": of_nrl, "transformers": of_peer,
                "nrl_stream": lambda texts: of_nrl(texts, lambda index, token, piece: None),
                "transformers_stream": lambda texts: of_peer(texts, Streamer())}
    return [report(n, common.interleaved(args.repeats, {name: timed(run, n, args.tokens, "stream" in name)
                                                        for name, run in variants.items()})) for n in args.batch]


def main():
    args = parse()
    os.environ.update(OMP_NUM_THREADS=str(args.threads), HF_HUB_OFFLINE="1")
    root = os.path.dirname(os.path.dirname(os.path.abspath(args.nrl)))
    os.environ.setdefault("NRL_LIBRARY", os.path.join(root, "lib", "libnrl.so"))
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
    import torch # before nrl, which sets how long OpenMP's threads spin: each side has its own runtime and its own default
    import transformers
    import nrl
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory(prefix="nrl-bench-") as folder:
        is_random = args.model in ("smollm2", "tiny")
        batches = bench(args, write_model(folder, args, torch, transformers) if is_random else args.model, torch, transformers,
                        nrl)
    print(json.dumps({"model": os.path.basename(args.model), "layers": args.layers if is_random else None, "dtype": args.dtype,
                      "tokens": args.tokens, "threads": args.threads, "repeats": args.repeats, "torch": torch.__version__,
                      "transformers": transformers.__version__, "batches": batches}))


main()
