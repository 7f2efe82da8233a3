#!/usr/bin/env python3
"""The products of bench_gemm by torch.matmul: torch_gemm.py FILE.json, which is what bench_gemm printed. Prints one
JSON object with the same rows and `torch_us`; 20 calls between two events, the best of three rounds."""
import json
import sys

import torch

CALLS, ROUNDS = 20, 3


def seconds(run):
    best = float("inf")
    for _ in range(ROUNDS + 1):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(CALLS):
            run()
        end.record()
        end.synchronize()
        best = min(best, begin.elapsed_time(end) / CALLS / 1e3)
    return best


def main():
    table = json.load(open(sys.argv[1]))
    for row in table["rows"]:
        rows, cols, depth = map(int, row["shape"].split("x"))
        make = lambda *shape: torch.full(shape, 0.01, dtype=torch.bfloat16, device="cuda")  # noqa: E731
        if row["op"] == "forward":
            x, w = make(rows, depth), make(cols, depth)
            run = lambda: torch.nn.functional.linear(x, w)  # noqa: E731
        elif row["op"] == "dx":
            x, w = make(rows, depth), make(depth, cols)
            run = lambda: x @ w  # noqa: E731
        else:
            x, w = make(depth, rows), make(depth, cols)
            run = lambda: x.t() @ w  # noqa: E731
        row["torch_us"] = round(seconds(run) * 1e6, 1)
    print(json.dumps(table))


if __name__ == "__main__":
    main()
