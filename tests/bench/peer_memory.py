#!/usr/bin/env python3
"""The PyTorch side of memory_vs_torch.py: full AdamW steps in f32 on the weights and rows that peer_sft.py made, in one of the
usual ways to save memory.

usage: peer_memory.py DIR WAY --batch B --steps N [--threads K]
Prints one JSON object: seconds of each step, losses, and the memory of the process before the model was loaded.
"""
import argparse
import contextlib
import json
import os
import tempfile
import time

import torch
import transformers

LEAST = 4096  # bytes of a saved tensor that is worth a file, as in nrl


class Files:
    """Saved tensors of autograd in files, as PyTorch's tutorial on hooks does it."""

    def __init__(self, folder):
        self.folder = folder

    def pack(self, tensor):
        if isinstance(tensor, torch.nn.Parameter) or tensor.nbytes < LEAST:
            return tensor
        handle, path = tempfile.mkstemp(dir=self.folder)
        with os.fdopen(handle, "wb") as f:
            torch.save(tensor.clone() if tensor.untyped_storage().nbytes() > tensor.nbytes else tensor, f)
        return path

    def unpack(self, saved):
        return torch.load(saved) if isinstance(saved, str) else saved


def lora(model):
    import peft

    return peft.get_peft_model(model, peft.LoraConfig(r=16, lora_alpha=32, target_modules="all-linear",
                                                      task_type="CAUSAL_LM"))


def load(args):
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    options = {"dtype": torch.float32, "attn_implementation": "sdpa"}
    if args.way == "qlora":
        options.update(device_map="cpu", quantization_config=BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.float32))
    model = AutoModelForCausalLM.from_pretrained(args.dir, **options)
    model.train()
    if args.way == "checkpointing":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return lora(model) if args.way in ("lora", "qlora") else model


def anonymous():
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith("RssAnon"))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("dir")
    p.add_argument("way", choices=["none", "checkpointing", "activations", "lora", "qlora"])
    p.add_argument("--batch", type=int, required=True)
    p.add_argument("--steps", type=int, required=True)
    p.add_argument("--threads", type=int, default=2)
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    transformers.AutoModelForCausalLM.from_config  # imports what loading needs
    before = anonymous()
    model = load(args)
    trained = [w for w in model.parameters() if w.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, weight_decay=0.0, fused=True)
    with open(os.path.join(args.dir, "rows.jsonl")) as f:
        rows = torch.tensor([json.loads(line)["input_ids"] for line in f])
    seconds, losses = [], []
    for step in range(args.steps):
        start = time.perf_counter()
        ids = rows[step * args.batch:(step + 1) * args.batch]
        with tempfile.TemporaryDirectory(dir=args.dir) as folder:
            files = Files(folder)
            hooks = torch.autograd.graph.saved_tensors_hooks(files.pack, files.unpack)
            with hooks if args.way == "activations" else contextlib.nullcontext():
                loss = model(input_ids=ids, labels=ids, use_cache=False).loss
            loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"version": torch.__version__, "seconds": seconds, "losses": losses, "before": before}))


main()
