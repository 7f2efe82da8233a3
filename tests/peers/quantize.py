"""Quantized bases between nrl and bitsandbytes: with lora.base nf4, fp4 and int8 the dequantized weights, which a merged
export of untrained adapters has, are those of bitsandbytes; and with nf4 the losses of 20 steps of adapters
are those of peft on a model that transformers has loaded with bitsandbytes.

usage: quantize.py   (the program is $NRL_TEST_BUILD/bin/nrl, models come from $NRL_TEST_SOURCE)

Scales of 4 bits are themselves quantized, without their mean. torch adds the mean up in fp32 in an order that depends on
the device, nrl in fp64: with that mean the weights are equal to the bit, with torch's to ROUNDING. The kernels of
bitsandbytes disagree about the codes of scales: that of CUDA and the portable implementation take the nearest entry of the
dynamic map, as nrl does; that of the CPU looks an entry up by the upper bits of a float, which gives a neighbour in about
one of 500 cases, and one of 100 blocks may differ here. The scale of int8 is divided by 127 before the product with a
code, in bitsandbytes after it.
"""
import json, os, subprocess, sys, tempfile

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", OMP_NUM_THREADS="1")
try:
    import peft, torch
    import bitsandbytes.functional as F
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)

NRL = os.path.join(os.environ["NRL_TEST_BUILD"], "bin/nrl")
SOURCE = os.environ["NRL_TEST_SOURCE"]
STEPS, RATE = 20, 0.5
LOSS_BOUND = 5e-4  # the CPU kernel's other scales move a loss by up to 1e-4 here
ROUNDING = 1e-6  # of a weight: three roundings in fp32
OTHER_SCALES, ENTRY = 0.01, 0.02  # share of blocks, and the distance of entries in scales


def nrl(*words):
    done = subprocess.run([NRL, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def nearest(weight, kind, mean):
    """Dequantized, with scales by the nearest entry of the dynamic map."""
    q, state = F.quantize_4bit(weight, blocksize=64, quant_type=kind)
    code = F.create_dynamic_map()
    parts = (state.absmax - mean(state.absmax)).split(256)
    most = torch.stack([part.abs().max() for part in parts])
    scaled = torch.cat([part * (1 / top) for part, top in zip(parts, most)])
    found = code[torch.bucketize(scaled, (code[1:] + code[:-1]) / 2)]
    state.absmax = found * most.repeat_interleave(256)[:len(found)] + mean(state.absmax)
    return F.dequantize_4bit(q, state)


def of_blocks(apart, weight):
    """The largest distance in each block, of the scale of the block."""
    return apart.abs().reshape(-1, 64).amax(1) / weight.reshape(-1, 64).abs().amax(1)


def compare_weights(base, merged, kind):
    """Numbers of matrices, of blocks, and of those that the CPU kernel scales otherwise."""
    matrices = others = blocks = 0
    for name, weight in base.items():
        found = merged[name]
        if torch.equal(weight, found):
            continue
        matrices += 1
        if kind == "int8":
            q, scales, _ = F.int8_vectorwise_quant(weight.clone())
            theirs = F.int8_vectorwise_dequant(q, scales)
            assert float((found / theirs - 1).nan_to_num().abs().max()) < ROUNDING, (kind, name)
            blocks += len(scales)
            continue
        assert torch.equal(found, nearest(weight, kind, lambda x: x.double().mean().float())), (kind, name)
        apart = of_blocks(found - nearest(weight, kind, torch.mean), weight)
        assert float(apart.max()) < ROUNDING, (kind, name, float(apart.max()))
        nested = F.quantize_4bit(weight, blocksize=64, quant_type=kind, compress_statistics=True)
        apart = of_blocks(found - F.dequantize_4bit(*nested), weight)
        assert float(apart.max()) < ENTRY, (kind, name, float(apart.max()))
        others += int((apart > ROUNDING).sum())
        blocks += len(apart)
    assert matrices == 14, (kind, matrices)
    assert others <= OTHER_SCALES * blocks, (kind, others, blocks)
    return matrices, others, blocks


def peft_losses(model, rows):
    trained, losses = [p for p in model.parameters() if p.requires_grad], []
    for _ in range(STEPS):
        total, count = 0, 0
        for row in rows:
            logps = model(input_ids=torch.tensor([row["input_ids"]]), use_cache=False).logits[0].log_softmax(-1)
            targets = torch.tensor(row["input_ids"][1:])
            total, count = total - logps[:-1].gather(1, targets[:, None]).sum(), count + len(targets)
        loss = total / count
        losses.append(loss.item())
        for p, g in zip(trained, torch.autograd.grad(loss, trained)):
            p.data -= RATE * g
    return losses


def main(folder):
    os.chdir(folder)
    with open(os.path.join(SOURCE, "configs/models/tiny.json")) as f:
        config = json.load(f)
    config.update(hidden_size=128, intermediate_size=256, num_hidden_layers=2, head_dim=32)
    with open("model.json", "w") as f:
        json.dump(config, f)
    rows = [{"input_ids": [3 + (i * 31 + t * t * 17) % 500 for t in range(6 + i * 7 % 19)]} for i in range(12)]
    with open("rows.jsonl", "w") as f:
        f.writelines(json.dumps(row | {"labels": row["input_ids"]}) + "\n" for row in rows)
    with open("run.yaml", "w") as f:
        f.write("model: {path: base/model}\ndata: {train: rows.jsonl, max_length: 64, shuffle: false, cache: cache}\n"
                "lora: {rank: 4, alpha: 8}\n"
                f"train: {{steps: {STEPS}, global_batch: {len(rows)}, micro_batch_tokens: 256}}\n"
                f"optimizer: {{name: sgd, lr: {RATE}, momentum: 0, clip_norm: 0}}\nschedule: constant\n"
                "checkpoint: {export_dtype: f32}\nloggers: [jsonl]\nbackend: {name: cpu, threads: 1}\n")
    nrl("run", "run.yaml", "out=base", "lora=null", "model={config: model.json}", "train.steps=1", "optimizer.lr=0")
    base = load_file("base/model/model.safetensors")
    for kind in ("nf4", "fp4", "int8"):
        nrl("run", "run.yaml", f"out={kind}", f"lora.base={kind}", "train.steps=1", "optimizer.lr=0")
        matrices, others, blocks = compare_weights(base, load_file(f"{kind}/model/model.safetensors"), kind)
        print(f"{kind}: {matrices} matrices" + (f"; the CPU kernel scales {others} of {blocks} blocks otherwise" if others else ""))

    # adapters of peft on both
    torch.manual_seed(5)
    model = AutoModelForCausalLM.from_pretrained(
        "base/model", dtype=torch.float32, attn_implementation="eager", device_map="cpu",
        quantization_config=BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
                                               bnb_4bit_compute_dtype=torch.float32))
    model = peft.get_peft_model(model, peft.LoraConfig(r=4, lora_alpha=8, target_modules="all-linear",
                                                       task_type="CAUSAL_LM"))
    model.save_pretrained("adapter")
    theirs = peft_losses(model.train(), rows)
    nrl("run", "run.yaml", "out=trained", "lora={use: adapter, base: nf4}")
    with open("trained/metrics.jsonl") as f:
        mine = [record["loss"] for record in map(json.loads, f) if "loss" in record]
    assert len(mine) == STEPS, mine
    apart = max(abs(a - b) for a, b in zip(mine, theirs))
    print(f"{STEPS} steps of adapters: losses {mine[0]:.4f} to {mine[-1]:.4f}, at most {apart:.1e} from peft's")
    assert mine[-1] < mine[0] - 0.1 and apart < LOSS_BOUND, (mine, theirs)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as work:
        main(work)
