"""Writes quantize_golden.h: what bitsandbytes makes of one matrix. usage: make_quantize.py >quantize_golden.h, and clang-format.

Codes of 4 bits, int8 and their scales come from the package. The codes of scales come from the rule of its CUDA kernel
and of its portable implementation (the nearest entry of the dynamic map); its CPU kernel looks them up by the upper
bits of a float, which gives a neighbour in about one of 500 cases.
"""

import bitsandbytes
import bitsandbytes.functional as F
import numpy as np
import torch

ROWS, COLUMNS, SHOWN = 128, 192, 16


def matrix():
    """The same numbers as test_quantize.c: every operation is exact or rounded once."""
    i = np.arange(ROWS * COLUMNS, dtype=np.uint64)
    u = ((i + 1) * 2654435761 % 2**32 >> 8).astype(np.float32) / np.float32(2**24) - np.float32(0.5)
    u = u * np.abs(u)
    return torch.from_numpy(u * (i // 64 % 7 + 1).astype(np.float32)).view(ROWS, COLUMNS)


def checksum(codes):
    a = codes.flatten().numpy().astype(np.uint64)
    return int((a * (np.arange(len(a), dtype=np.uint64) + 1)).sum() % 2**32)


def numbers(values):
    return "{" + ", ".join(f"{float(v)!r}F" for v in values) + "}"


def nested(scales, code):
    offset = scales.mean()
    rest = scales - offset
    most = torch.stack([part.abs().max() for part in rest.split(256)])
    scaled = torch.cat([part * (1 / top) for part, top in zip(rest.split(256), most)])
    q = torch.bucketize(scaled, (code[1:] + code[:-1]) / 2)
    values = code[q] * most.repeat_interleave(256)[: len(q)] + offset
    return q, most, offset, values


def main():
    a = matrix()
    shown = torch.arange(SHOWN) * (ROWS * COLUMNS // SHOWN + 1)
    dynamic = F.create_dynamic_map()
    print(f"/* By make_quantize.py with bitsandbytes {bitsandbytes.__version__}. */")
    maps = [checksum(F.create_dynamic_map(signed=signed).view(torch.uint8)) for signed in (False, True)]
    print(f"static const uint32_t golden_maps[] = {{{maps[0]}U, {maps[1]}U}}; /* their bytes */")
    print("static const golden goldens[] = {")
    for kind in ("nf4", "fp4"):
        q, state = F.quantize_4bit(a, blocksize=64, quant_type=kind)
        scale_q, most, offset, scales = nested(state.absmax, dynamic)
        state.absmax = scales
        values = F.dequantize_4bit(q, state).flatten()[shown]
        print(f'    {{"{kind}", {checksum(q)}U, {checksum(scale_q)}U, {float(offset)!r}F, {numbers(most)},')
        print(f"     {numbers(values)}}},")
    q, scales, _ = F.int8_vectorwise_quant(a.clone())
    values = F.int8_vectorwise_dequant(q, scales).flatten()[shown]
    print(f'    {{"int8", {checksum(q.view(torch.uint8))}U, 0, 0, {{0}},')
    print(f"     {numbers(values)}}},")
    print("};")


main()
