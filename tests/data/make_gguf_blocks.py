"""Writes gguf_blocks.json: random blocks of GGUF's quantized types and the values that gguf-py (pip: gguf) decodes.

    python3 make_gguf_blocks.py >gguf_blocks.json
"""
import json

import gguf
import numpy

random = numpy.random.default_rng(7)
blocks = []
for name, size, scales in (("Q8_0", 34, [0]), ("Q4_K", 144, [0, 2]), ("Q6_K", 210, [208])):
    block = random.integers(0, 256, size, dtype=numpy.uint8)
    for at in scales:  # an arbitrary f16 could be NaN
        block[at:at + 2] = numpy.frombuffer(numpy.float16(random.uniform(0.001, 0.1)).tobytes(), numpy.uint8)
    values = gguf.quants.dequantize(block.reshape(1, -1), getattr(gguf.GGMLQuantizationType, name)).ravel()
    blocks.append({"type": name, "bytes": block.tobytes().hex(), "values": [float(v) for v in values]})
print("[" + ",\n".join(json.dumps(b) for b in blocks) + "]")
