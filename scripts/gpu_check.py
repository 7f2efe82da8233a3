#!/usr/bin/env python3
"""gpu_check.py - checks that need a GPU, in three calls of at most 8 minutes, prepared on a machine without one.

  gpu_check.py prepare [--build DIR] [--carry DIR]   collects the files that the others need, at most 64 MiB, and losses of the CPU
  gpu_check.py correct [--carry DIR] [--out DIR]     rules, real shapes, sanitizers, numbers of other programs, NCCL
  gpu_check.py time    [--carry DIR] [--out DIR]     times of operations, products, attention, a step, ncu
  gpu_check.py peers   [--carry DIR] [--out DIR]     complete training compared with PyTorch, memory, the stall of a save
  gpu_check.py report  [--out DIR]                   the table of all three, and OUT/gpu_check.json

Only the directory of `prepare` (build/carry) has to be copied; it contains a copy of this program too, and the shared
libraries that the other machine may lack. That machine only needs python3 and a C library that is not older than here;
torch and transformers, compute-sanitizer and ncu are used if they are found.
A row is ok, failed, skipped (with the reason) or a measurement. The exit code is 1 if a row failed, 77 without a GPU.

--seconds N ends each call earlier; what matters most comes first. --backend NAME checks another backend than cuda;
--rehearse shortens everything, and waits long for it, to test each part on a machine without a GPU: gpu_check.py correct
--backend cpu --rehearse.
"""
import argparse
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MOST_BYTES = 64 << 20
SECONDS = 8 * 60 - 20  # of one call
REHEARSED = 20  # times as long may everything take in a rehearsal: its machine may be slow, and its times mean nothing
TESTS = ["tensor.reference", "tensor.gradients", "tensor.tape", "optim.updates", "dpo.losses", "parity.models",
         "parity.stories", "operations.operations", "operations.beside"]
PROGRAMS = ["check_shapes", "bench_ops", "bench_gemm", "bench_copy"]
SANITIZED = "^=+ (Invalid|Error|Race|Program hit|Uninit|Barrier)"  # how its reports begin
LIBRARIES = "libraries.tar.xz"
# Shared libraries that are not carried: those of the C library, and NVIDIA's.
NOT_CARRIED = re.compile(r"ld-linux|linux-vdso|lib(c|m|dl|rt|pthread|util|resolv)\.so|libcu|libnv|libnccl")
# What no check uses, and what would bring many more of them: files that need these are not carried either.
UNUSED = re.compile(r"lib(curl|microhttpd)\.so")
# Sums in another order diverge over the steps; bf16 and fp16 round each activation. Relative, over all steps.
TOLERANCES = {"sft": {"fp32": 1e-3, "bf16": 5e-2, "fp16": 1e-2}, "dpo": {"fp32": 2e-3, "bf16": 1e-1, "fp16": 2e-2}}
LLAMA_1B = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 2048, "intermediate_size": 8192,
            "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64,
            "vocab_size": 128256, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
            "tie_word_embeddings": True, "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2,
            "attention_bias": False, "mlp_bias": False, "attention_dropout": 0.0, "torch_dtype": "float32"}
SMOLLM2 = dict(LLAMA_1B, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
               num_key_value_heads=3, vocab_size=49152, max_position_embeddings=8192, rope_theta=100000.0)
TINY = dict(LLAMA_1B, hidden_size=64, intermediate_size=160, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=16, vocab_size=512, max_position_embeddings=512)
# a kernel, and the rows of bench_ops that launch it
NCU_KERNELS = {"flash_forward_kernel": "attention", "flash_keys_kernel": "attention", "flash_queries_kernel": "attention",
               "norm_grad_kernel": "rms_norm_grad", "head_grad_kernel": "head", "each_pack_kernel": "swiglu"}


class Call:
    """One of the three calls: its rows, its deadline, and functions that run programs."""

    def __init__(self, name, args):
        self.name, self.args, self.rows = name, args, []
        self.begin = time.monotonic()
        self.times = REHEARSED if args.rehearse and args.seconds is None else 1
        self.end = self.begin + (SECONDS * self.times if args.seconds is None else min(args.seconds, SECONDS))
        self.carry = os.path.abspath(args.carry)
        self.nrl = os.path.join(self.carry, "bin", "nrl")
        self.library = os.path.join(self.carry, "lib", "nrl", "backends", args.backend + ".so")
        self.work = tempfile.mkdtemp(prefix="nrl-gpu-check-")
        os.makedirs(args.out, exist_ok=True)
        folders = [f for pattern in ("/usr/local/cuda/lib64", "/usr/local/cuda/lib", "/usr/local/nvidia/lib64",
                                     *(p + "/nvidia/*/lib" for p in sys.path if p)) for f in glob.glob(pattern)]
        self.libraries = unpack_libraries(os.path.join(self.carry, LIBRARIES), os.path.join(self.work, "libraries"))
        folders.append(self.libraries)
        self.environment = dict(
            os.environ, LD_LIBRARY_PATH=":".join(filter(None, [os.environ.get("LD_LIBRARY_PATH"), *folders])),
            NRL_PLUGIN_PATH=os.path.join(self.carry, "lib", "nrl"), NRL_TEST_SHARED=os.path.join(self.carry, "shared"),
            NRL_TEST_SOURCE=self.carry, NRL_TEST_BUILD=self.carry)

    def row(self, name, state, detail="", **data):
        print("%-36s %-8s %s" % (name, state, detail), flush=True)
        self.rows.append({"name": name, "state": state, "detail": detail, **data})

    def run(self, command, seconds, environment=None):
        """(exit code, or None after a timeout; output; errors)"""
        left = min(seconds * self.times, self.end - time.monotonic())
        if left < 2:
            return None, "", "no time is left"
        process = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, errors="replace", cwd=self.work,
                                   env=dict(self.environment, **(environment or {})), start_new_session=True)
        try:
            out, err = process.communicate(timeout=left)
            return process.returncode, out, err
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            out, err = process.communicate()
            return None, out, "not done after %.0f s\n%s" % (left, err)

    def check(self, name, seconds, command, environment=None, show=None, error="fail|error", slow=False):
        """A row that is ok if the command exits with 0, then with the detail that `show` returns from the output, or its last
        line; returns the output. error: what lines of a failure have in common. slow: too little time is no failure, if there
        is no such line."""
        began = time.monotonic()
        code, out, err = self.run(command, seconds, environment)
        took = "%.1f s" % (time.monotonic() - began)
        lines = [line for line in (out + "\n" + err).splitlines() if line.strip()]
        found = [line for line in lines if re.search(error, line, re.I)]
        bad = found[:3] or lines[-3:]
        if code == 0:
            self.row(name, "ok", "%s; %s" % (took, show(out) if show else lines[-1] if lines else ""))
        elif code == 77 or err == "no time is left":
            self.row(name, "skipped", lines[-1] if lines else "")
        elif code is None and slow and not found:
            self.row(name, "skipped", "no error in %s, in which it did not end" % took, output=(out + err)[-4000:])
        else:
            self.row(name, "failed", "%s, exit %s: %s" % (took, code, " | ".join(bad)), output=(out + err)[-4000:])
        return out

    def measure(self, name, seconds, command, show, environment=None):
        """A row of a program that prints one JSON object; `show` returns the detail from it."""
        code, out, err = self.run(command, seconds, environment)
        try:
            data = json.loads(out[out.index("{"):])
        except ValueError:
            data = None
        if code == 0 and data is not None:
            self.row(name, "measure", show(data), data=data)
            return data
        if err == "no time is left":
            self.row(name, "skipped", err)
        else:
            self.row(name, "failed", "exit %s: %s" % (code, " | ".join((err or out).strip().splitlines()[-2:])))
        return None

    def finish(self):
        shutil.rmtree(self.work, ignore_errors=True)
        failed = any(r["state"] == "failed" for r in self.rows)
        path = os.path.join(self.args.out, "gpu_check.%s.json" % self.name)
        with open(path, "w") as f:
            json.dump({"call": self.name, "backend": self.args.backend, "dry run": self.args.rehearse,
                       "seconds": round(time.monotonic() - self.begin, 1),
                       "failed": failed, "rows": self.rows}, f, indent=1)
        print("written to", path)
        return int(failed)


def losses(out):
    with open(os.path.join(out, "metrics.jsonl")) as f:
        return [r["loss"] for r in map(json.loads, f) if "loss" in r]


def train_command(nrl, carry, config, backend, out, steps, *overrides):
    return [nrl, "run", os.path.join(carry, "configs", config + ".yaml"), "backend=" + backend, "out=" + out,
            "overwrite=true", "train.epochs=", "train.steps=%d" % steps, "checkpoint.every=0", "checkpoint.export=none",
            "eval.every=0", *overrides]


def write_model(folder, shape, rows, length):
    """Writes config.json and rows of random tokens, for a run with random weights; returns its YAML."""
    import random
    rng = random.Random(1)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(shape, f)
    with open(os.path.join(folder, "rows.jsonl"), "w") as f:
        for _ in range(rows):
            ids = [rng.randrange(3, shape["vocab_size"]) for _ in range(length)]
            f.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")
    path = os.path.join(folder, "model.yaml")
    with open(path, "w") as f:
        f.write("model: {config: config.json}\ndata: {train: rows.jsonl, max_length: %d}\n"
                "train: {steps: 1000, global_batch: 1, micro_batch_tokens: %d, precision: bf16}\n"
                "optimizer: {name: adamw, lr: 1e-4}\ncheckpoint: {every: 0}\nout: bench\n" % (length, length))
    return path


# ---- libraries of the machine of `prepare` ----

def is_elf(path):
    if os.path.islink(path) or not os.path.isfile(path):
        return False
    with open(path, "rb") as f:
        return f.read(4) == b"\x7fELF"


def pack_libraries(carry, preset):
    """Writes the shared libraries that files of `carry` need, except NOT_CARRIED; removes the files that need UNUSED."""
    found, removed = {}, []
    for path in sorted(filter(is_elf, glob.glob(os.path.join(carry, "**"), recursive=True))):
        out = subprocess.run(["ldd", path], capture_output=True, text=True).stdout
        needed = {name: place for name, place in re.findall(r"(\S+) => (/\S+)", out) if not place.startswith(carry + "/")}
        if any(map(UNUSED.match, needed)):
            os.remove(path)
            removed.append(os.path.relpath(path, carry))
        else:
            found.update((name, place) for name, place in needed.items() if not NOT_CARRIED.match(name))
    with tarfile.open(os.path.join(carry, LIBRARIES), "w:xz", preset=preset) as tar:
        for name, place in sorted(found.items()):
            tar.add(os.path.realpath(place), name)
    return sorted(found), removed


def unpack_libraries(archive, folder):
    """Unpacks those that this machine does not have: others could break its own programs, such as torch."""
    os.makedirs(folder)
    ldconfig = shutil.which("ldconfig", path=os.environ.get("PATH", "") + ":/sbin:/usr/sbin")
    listed = subprocess.run([ldconfig, "-p"], capture_output=True, text=True).stdout if ldconfig else ""
    known = set(re.findall(r"(?m)^\s+(\S+) ", listed))
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            if member.name not in known and member.isfile() and "/" not in member.name:
                tar.extract(member, folder)
    return folder


# ---- prepare ----

def copy_tree(source, to):
    shutil.copytree(source, to, symlinks=False, dirs_exist_ok=True)


def prepare(args):
    build, carry = os.path.abspath(args.build), os.path.abspath(args.carry)
    if not os.path.exists(os.path.join(build, "bin", "nrl")):
        sys.exit("gpu_check: no build in %s; scripts/test.sh makes one" % args.build)
    shutil.rmtree(carry, ignore_errors=True)
    for folder in ("bin", "lib", "libexec", "testlib"):
        copy_tree(os.path.join(build, folder), os.path.join(carry, folder))
    for link in glob.glob(os.path.join(build, "*lib", "lib*.so")):  # which compilers alone read, and would be a copy
        if os.path.islink(link):
            os.remove(os.path.join(carry, os.path.relpath(link, build)))
    os.makedirs(os.path.join(carry, "tests"))
    for name in ["test_" + t for t in TESTS] + PROGRAMS:
        if os.path.exists(os.path.join(build, "tests", name)):
            shutil.copy2(os.path.join(build, "tests", name), os.path.join(carry, "tests"))
    for folder in ("configs", "scripts", "tests/data", "tests/bench", "tests/gpu"):
        copy_tree(os.path.join(SOURCE, folder), os.path.join(carry, folder))
    for name in ("golden/models", "golden/optim.json", "golden/dpo_losses.json", "data/models/stories260K"):
        shared = os.path.join(SOURCE, "..", "shared", name)
        if os.path.isdir(shared):
            copy_tree(shared, os.path.join(carry, "shared", name))
        elif os.path.exists(shared):
            os.makedirs(os.path.dirname(os.path.join(carry, "shared", name)), exist_ok=True)
            shutil.copy2(shared, os.path.join(carry, "shared", name))
    if shutil.which("strip"):
        for path in filter(is_elf, glob.glob(os.path.join(carry, "**"), recursive=True)):
            subprocess.run(["strip", "--strip-unneeded", path], check=True)
    packed, removed = pack_libraries(carry, 0 if args.rehearse else 6)
    print("libraries: %s; not carried: %s" % (" ".join(packed), " ".join(removed) or "nothing"))
    steps = 2 if args.rehearse else 50
    numbers = {"steps": steps}
    work = tempfile.mkdtemp(prefix="nrl-gpu-check-")
    try:
        for config, tolerances in TOLERANCES.items():
            for precision in tolerances:
                out = os.path.join(work, config + precision)
                p = subprocess.run(train_command(os.path.join(carry, "bin", "nrl"), carry, config, "cpu", out, steps,
                                                 "train.precision=" + precision), capture_output=True, text=True)
                if p.returncode:
                    sys.exit("gpu_check: the CPU did not train %s in %s: %s" % (config, precision, p.stderr))
                numbers["%s %s" % (config, precision)] = losses(out)
    finally:
        shutil.rmtree(work)
    with open(os.path.join(carry, "cpu_losses.json"), "w") as f:
        json.dump(numbers, f)
    size = sum(os.path.getsize(p) for p in glob.glob(os.path.join(carry, "**"), recursive=True) if os.path.isfile(p))
    print("%s: %.1f MiB, at most 64 are allowed; losses of %d steps" % (carry, size / 2**20, steps))
    return int(size > MOST_BYTES)


# ---- correct ----

def rules(call):
    out = call.check("rules of a backend", 150, [call.nrl, "plugins", "test", call.library])
    kept, broken = len(re.findall("(?m)^ *ok ", out)), re.findall("(?m)^ *FAILED (.*)$", out)
    call.row("  rules", "measure", "%d kept, %d broken%s" % (kept, len(broken), "".join("; " + b for b in broken)), report=out)
    with open(os.path.join(call.args.out, "gpu_check.rules.txt"), "w") as f:
        f.write(out)


def shapes(call):
    program = os.path.join(call.carry, "tests", "check_shapes")
    for scale in ["tiny"] if call.args.rehearse else ["tiny", "1b", "8b"]:
        out = call.check("shapes, " + scale, 120, [program, call.library, scale], show=nearest)
        call.rows[-1]["report"] = out
    own, other = ("attention=flash", "attention=cudnn") if call.args.backend == "cuda" else ("threads=1", "threads=1")
    for scale in ["tiny"] if call.args.rehearse else ["1b", "8b"]:
        out = call.check("own attention beside %s, %s" % (other, scale), 60, [program, call.library, scale, own, "--", other], show=nearest)
        call.rows[-1]["report"] = out


def nearest(out):
    """What check_shapes found, by the check that was nearest to its limit."""
    checks = re.findall(r"(?m)^ok +(.*?) +\d+ elements, the worst at ([\d.]+) of", out)
    return "%d checks; the worst, %s, has %s of the error that rounding allows" % (
        len(checks), *max(checks, key=lambda c: float(c[1]))) if checks else "no check"


def beside_the_cpu(call):
    with open(os.path.join(call.carry, "cpu_losses.json")) as f:
        numbers = json.load(f)
    for config, tolerances in TOLERANCES.items():
        for precision, most in tolerances.items():
            name, expected = "%s, %s, beside the CPU" % (config, precision), numbers["%s %s" % (config, precision)]
            out = os.path.join(call.work, config + precision)
            code, _, err = call.run(train_command(call.nrl, call.carry, config, call.args.backend, out, numbers["steps"],
                                                  "train.precision=" + precision), 60)
            if code != 0:
                call.row(name, "failed" if code is not None else "skipped", err.strip().splitlines()[-1])
                continue
            found = losses(out)
            apart = max(abs(a - b) / abs(a) for a, b in zip(expected, found))
            good = len(found) == len(expected) and apart <= most
            call.row(name, "ok" if good else "failed", "%d losses, last %.6g and %.6g, at most %.2g apart (%.2g allowed)"
                     % (len(found), expected[-1], found[-1], apart, most), losses=found)
    again = os.path.join(call.work, "again")
    code, _, err = call.run(train_command(call.nrl, call.carry, "sft", call.args.backend, again, numbers["steps"],
                                          "train.precision=bf16"), 60)
    first = os.path.join(call.work, "sftbf16")
    if code != 0 or not os.path.exists(first):
        call.row("two runs give the same bits", "skipped", err.strip()[-200:] or "nothing to compare with")
    else:
        same = losses(again) == losses(first)
        call.row("two runs give the same bits", "ok" if same else "failed", "%d losses" % len(losses(first)))


def experts(call, family):
    """A mixture of experts, whose router has kernels of its own, beside transformers."""
    name, golden = "experts, " + family, os.path.join(call.carry, "tests", "data", "experts", family)
    with open(os.path.join(golden, "expected.json")) as f:
        expected = [step["loss"] for step in json.load(f)["steps"]]
    config, out = os.path.join(call.work, family + ".yaml"), os.path.join(call.work, family)
    with open(config, "w") as f:
        f.write("model: {path: %s}\ndata: {train: %s/rows.jsonl, max_length: 64, shuffle: false}\n"
                "train: {steps: %d, global_batch: 2, micro_batch_tokens: 64}\nschedule: constant\nloggers: [jsonl]\n"
                "optimizer: {name: sgd, lr: 0.05, weight_decay: 0, momentum: 0, clip_norm: 0}\n"
                % (golden, golden, len(expected)))
    code, _, err = call.run([call.nrl, "run", config, "backend=" + call.args.backend, "out=" + out], 60)
    if code != 0:
        call.row(name, "failed" if code is not None else "skipped", (err.strip().splitlines() or ["?"])[-1])
        return
    found = losses(out)
    apart = max(abs(a - b) / abs(a) for a, b in zip(expected, found))
    good = len(found) == len(expected) and apart <= TOLERANCES["sft"]["fp32"]
    call.row(name, "ok" if good else "failed", "%d losses, at most %.2g apart from transformers'"
             % (len(found), apart), losses=found)


def correct(call):
    loaded = "".join(call.run(["ldd", call.nrl, call.library], 20)[1:])
    missing = sorted(set(re.findall(r"(\S+) => not found|(version \S+ not found)", loaded)))
    missing = [name or version for name, version in missing]
    carried = len(re.findall(r"=> %s/" % re.escape(call.libraries), loaded))
    call.row("libraries of nrl", "failed" if missing else "ok", ", ".join(missing) or "all are here, %d of them carried" % carried)
    call.check("the program starts", 30, [call.nrl, "describe", call.args.backend], show=lambda out: out.splitlines()[0])
    rules(call)
    for test in TESTS:
        program = os.path.join(call.carry, "tests", "test_" + test)
        if os.path.exists(program):
            call.check(test, 60, [program], {"NRL_TEST_BACKEND": call.library})
        else:
            call.row(test, "skipped", "it was not built")
    shapes(call)
    beside_the_cpu(call)
    for family in ("qwen3_moe", "gpt_oss"):
        experts(call, family)
    if call.args.backend == "cuda":
        out = os.path.join(call.work, "nccl")
        call.check("nccl, one rank", 60, train_command(call.nrl, call.carry, "sft", "cuda", out, 5, "parallel=fsdp",
                                                       "collective=nccl"))
    if shutil.which("compute-sanitizer") and call.args.backend == "cuda":
        for tool in ("memcheck", "racecheck"):
            sanitize = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", "--print-limit", "20"]
            call.check("compute-sanitizer %s, operations" % tool, 100,
                       sanitize + [os.path.join(call.carry, "tests", "test_operations.beside")],
                       {"NRL_TEST_BACKEND": call.library}, error=SANITIZED, slow=True)
            call.check("compute-sanitizer " + tool, 150,
                       sanitize + ["--target-processes", "all", call.nrl, "plugins", "test", call.library],
                       error=SANITIZED, slow=True)
    else:
        call.row("compute-sanitizer", "skipped", "it is not in PATH")


# ---- time ----

def slowest(data):
    rows = [r for r in data["rows"] if r.get("of_peak") is not None]
    rows.sort(key=lambda r: -r["us"])
    return "%d rows; " % len(data["rows"]) + "; ".join("%s %s %.0f us, %.0f %% of peak" % (
        r["op"], r["shape"], r["us"], 100 * r["of_peak"]) for r in rows[:3])


def attention_rows(data):
    return "; ".join("%s %s %.3g TFLOP/s" % (r["op"], r["shape"], r["gflops"] / 1e3) for r in data["rows"])


def products(call, scale):
    program = os.path.join(call.carry, "tests", "bench_gemm")
    if not os.path.exists(program) or call.args.backend != "cuda":
        call.row("products of cuBLASLt, " + scale, "skipped", "bench_gemm is built with the cuda backend, for cuda alone")
        return
    data = call.measure("products of cuBLASLt, " + scale, 60, [program, scale], lambda d: "first choice %.2f of the best of 8" % (
        sum(r["best_us"] for r in d["rows"]) / sum(r["first_us"] for r in d["rows"])))
    if not data:
        return
    table = os.path.join(call.work, "gemm.json")
    with open(table, "w") as f:
        json.dump(data, f)
    call.measure("  beside torch.matmul", 60, [call.args.python, os.path.join(call.carry, "tests/gpu/torch_gemm.py"), table],
                 lambda d: "torch takes %.3f of the first choice's time" % (
                     sum(r["torch_us"] for r in d["rows"]) / sum(r["first_us"] for r in d["rows"])))


def ncu_values(out):
    """The main numbers of a kernel in ncu's tables, as text; empty if there are none."""
    names = {"Duration": "", "Compute (SM) Throughput": "compute ", "Memory Throughput": "memory ", "Achieved Occupancy": "occupancy "}
    found = [(short, re.search(r"^ *%s +(\S+) +([\d.,]+) *$" % re.escape(name), out, re.M)) for name, short in names.items()]
    return ", ".join("%s%s %s" % (short, m[2], m[1]) for short, m in found if m)


def where_time_goes(call):
    bench = os.path.join(call.carry, "tests", "bench_ops")
    scales = ["tiny"] if call.args.rehearse else ["1b", "8b"]
    for scale in scales:
        call.measure("operations, " + scale, 90, [bench, call.library, "--shapes", scale], slowest)
    modes = {"own": ["attention=flash"], "cudnn, repeatable": ["attention=cudnn"], "cudnn, fast": ["--relaxed", "attention=cudnn"]}
    if call.args.backend != "cuda":
        modes = {"own": []}
    for mode, words in modes.items():
        flags = [w for w in words if w.startswith("--")]
        for scale in scales:
            call.measure("attention %s, %s" % (mode, scale), 40, [bench, call.library, "--shapes", scale, "--only", "attention",
                         *flags, *(w for w in words if w not in flags)], attention_rows)
    for scale in scales:
        products(call, scale)
    config = write_model(call.work, *((TINY, 8, 64) if call.args.rehearse else (LLAMA_1B, 16, 4096)))
    call.measure("a step, %s" % ("tiny" if call.args.rehearse else "Llama-3.2-1B, T=4096"), 120,
                 [call.nrl, "profile", config, "backend=" + call.args.backend, "--steps", 3, "--json"], lambda d: "; ".join(
                     "%s %.1f %%" % (k, 100 * v.get("share", 0)) for k, v in d["phases"].items() if v.get("share", 0) >= 0.005))
    if not shutil.which("ncu") or call.args.backend != "cuda":
        call.row("ncu", "skipped", "it is not in PATH")
        return
    for kernel, rows in NCU_KERNELS.items():
        code, out, err = call.run(["ncu", "--clock-control", "none", "--kernel-name", "regex:" + kernel, "--launch-skip", 5,
                                   "--launch-count", 1, "--section", "SpeedOfLight", "--section", "Occupancy", "--section", "WarpStateStats",
                                   bench, call.library, "--shapes", "1b", "--only", rows], 40)
        values = ncu_values(out)
        call.row("ncu " + kernel, "measure" if values else "skipped" if err == "no time is left" else "failed",
                 values or "exit %s: %s" % (code, " | ".join([s for s in (out + err).splitlines() if "==" in s][-2:]) or err), output=out[-4000:])


# ---- peers ----

def speed(d):
    found = {k: d.get(k) for k in ("tokens_per_s", "mfu", "step_seconds_median")}
    memory = d.get("memory", {})
    parts = ["%.0f tok/s" % found["tokens_per_s"]] if found["tokens_per_s"] else []
    parts += ["MFU %.1f %%" % (100 * found["mfu"])] if found["mfu"] else []
    parts += ["%s %.0f MiB" % (k.replace("_bytes", ""), v / 2**20) for k, v in memory.items() if isinstance(v, (int, float)) and k.endswith("_bytes")]
    return ", ".join(parts)


def stall(d):
    def ms(seconds):
        return "%.1f ms" % (1e3 * seconds) if seconds is not None else "unknown"
    if not d["stall_s"]:
        return "no save was complete before the last step"
    return "the run waits at most %s for %.0f MiB (memcpy takes %s); a step takes %s, %s while a save is written" % (
        ms(max(d["stall_s"])), d["state_bytes"] / 2**20, ms(min(d["copy_s"])), ms(d["median_step_s"]),
        ms(d["median_step_s_while_writing"]))


def beside_torch(call, name, shape, batch, length, peers, seconds):
    config = os.path.join(call.work, "peer.json")
    with open(config, "w") as f:
        json.dump(shape, f)
    where = ["--device", "cuda"] if call.args.backend == "cuda" else ["--device", "cpu", "--threads", 1]
    call.measure(name, seconds, [sys.executable, os.path.join(call.carry, "tests/bench/sft_vs_torch.py"), call.nrl, config,
                 "--batch", batch, "--length", length, "--steps", 4 if call.args.rehearse else 12, "--repeats", 1 if call.args.rehearse else 2,
                 "--bf16", "--peers", *peers, *where, "--backend", call.args.backend, "--python", call.args.python],
                 lambda d: "%.0f tok/s; %s; losses at most %.2g apart" % (d["nrl_tokens_per_s"], "; ".join(
                     "%s %.0f (%.2f times)" % (k, v["torch_tokens_per_s"], d["nrl_tokens_per_s"] / v["torch_tokens_per_s"])
                     for k, v in d["peers"].items()), d["largest_loss_difference"]))


def beside_peers(call):
    small = call.args.rehearse
    has_torch = call.run([call.args.python, "-c", "import torch, transformers"], 60)[0] == 0
    for name, shape, batch, length in ([("tiny", TINY, 2, 32)] if small else [("Llama-3.2-1B", LLAMA_1B, 1, 4096), ("SmolLM2-135M", SMOLLM2, 16, 1024)]):
        folder = tempfile.mkdtemp(dir=call.work)
        config = write_model(folder, shape, 4 * batch, length)
        call.measure("nrl bench, %s" % name, 60, [call.nrl, "bench", config, "backend=" + call.args.backend, "train.global_batch=%d" % batch,
                     "train.micro_batch_tokens=%d" % (batch * length), "--steps", 2 if small else 8, "--json"], speed)
        if has_torch:
            beside_torch(call, "beside PyTorch, %s" % name, shape, batch, length, ["eager"] if small else ["eager", "compile"], 200)
        else:
            call.row("beside PyTorch, %s" % name, "skipped", "no torch and transformers in %s (--python)" % call.args.python)
    call.measure("stall of a save", 90, [sys.executable, os.path.join(call.carry, "tests/bench/save_stall.py"), call.nrl,
                 os.path.join(call.carry, "tests", "bench_copy"), "--model", "tiny" if small else "smollm2", "--steps", 9 if small else 40,
                 "--every", 3 if small else 10, "--backend", call.args.backend], stall)


# ---- report ----

def report(args):
    calls = []
    for name in ("correct", "time", "peers"):
        path = os.path.join(args.out, "gpu_check.%s.json" % name)
        if os.path.exists(path):
            with open(path) as f:
                calls.append(json.load(f))
    if not calls:
        sys.exit("gpu_check: no result in %s; run correct, time and peers first" % args.out)
    for call in calls:
        print("\n%s (%s%s), %.0f s" % (call["call"], call["backend"], ", a dry run" if call["dry run"] else "", call["seconds"]))
        for r in call["rows"]:
            print("  %-36s %-8s %s" % (r["name"], r["state"], r["detail"]))
    with open(os.path.join(args.out, "gpu_check.json"), "w") as f:
        json.dump({"calls": calls, "failed": any(c["failed"] for c in calls)}, f)
    print("\nwritten to", os.path.join(args.out, "gpu_check.json"))
    return int(any(c["failed"] for c in calls))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("part", choices=["prepare", "correct", "time", "peers", "report"])
    p.add_argument("--build", default=os.path.join(SOURCE, "build", "release"))
    p.add_argument("--carry", default=SOURCE if os.path.exists(os.path.join(SOURCE, "cpu_losses.json")) else os.path.join(SOURCE, "build", "carry"))
    p.add_argument("--out", default=".", help="directory of the results")
    p.add_argument("--backend", default="cuda")
    p.add_argument("--python", default=os.environ.get("NRL_PEERS_PYTHON", sys.executable), help="a Python with torch and transformers")
    p.add_argument("--seconds", type=int, help="limit of a call (%d; in a rehearsal %d times as much)" % (SECONDS, REHEARSED))
    p.add_argument("--rehearse", action="store_true", help="small shapes and few steps")
    args = p.parse_args()
    if args.part == "prepare":
        return prepare(args)
    if args.part == "report":
        return report(args)
    if not os.path.exists(os.path.join(args.carry, "cpu_losses.json")):
        sys.exit("gpu_check: %s is not a directory of `gpu_check.py prepare`" % args.carry)
    if args.backend == "cuda" and not any(map(os.path.exists, ("/dev/nvidiactl", "/dev/dxg"))):
        print("gpu_check: skipped: this machine has no NVIDIA GPU")
        return 77
    call = Call(args.part, args)
    if not os.path.exists(call.library):
        print("gpu_check: skipped: %s has no backend '%s'" % (args.carry, args.backend))
        return 77
    try:
        {"correct": correct, "time": where_time_goes, "peers": beside_peers}[args.part](call)
    finally:
        code = call.finish()
    return code


if __name__ == "__main__":
    sys.exit(main())
