"""sass.py - limits on the machine code of a cuda.so's attention kernels and products of experts, without a GPU.

usage: sass.py CUDA_SO [SM...]

In the loop over tiles of each kernel that uses tensor cores, the path that a tile takes which all queries see, or one step
along the depth of a product: the one with all products, all loads of the next tile, and the fewest other instructions. It
may have at most so many instructions for one product (m16n8k16), no branches in which lanes may part (BSSY) but those
around loads and tiles, and no registers in memory; outside of it only a few bytes. A kernel's registers must leave room for
so many blocks. Needs cuobjdump and nvdisasm, which come with CUDA; exits with 77 without them.
"""
import re
import shutil
import subprocess
import sys

# kernel, head width (of group: layout): most instructions for each product. Where a warp has 16 rows instead of 32,
# fragments serve half as many products.
LIMITS = {("forward", 64): 6.6, ("forward", 80): 8.0, ("forward", 96): 7.0, ("forward", 128): 6.2,
          ("keys", 64): 4.8, ("keys", 80): 7.0, ("keys", 96): 6.2, ("keys", 128): 5.0,
          ("queries", 64): 5.5, ("queries", 80): 7.0, ("queries", 96): 6.5, ("queries", 128): 5.5,
          ("group", 0): 3.5, ("group", 1): 3.5, ("group", 2): 3.5}
MOST_BRANCHES = 12  # one per score would be at least 32
# Least blocks that the 65536 registers of a multiprocessor hold; with two, one computes while the other waits. A block of
# the group has as many warps as two others.
BLOCKS = {("queries", 80): 3, ("queries", 96): 3, ("queries", 128): 3, ("group", 0): 1, ("group", 1): 1, ("group", 2): 1}
LEAST_BLOCKS, REGISTERS, MOST_LOCAL = 2, 65536, 16
THREADS = {"group": 256}  # of a block; others have 128
KERNEL = r"(?:flash|gemm)_(forward|keys|queries|group)_kernelI\d(bf16|f16)Li(\d+)E"
PRODUCT, COPY = "HMMA", "LDGSTS"


def functions(library, sm):
    """(kernel, dtype, head width or layout) -> [(address, instruction)]"""
    found, code = {}, None
    dump = subprocess.Popen(["cuobjdump", "-sass", "-arch", "sm_" + sm, library], stdout=subprocess.PIPE, text=True)
    for line in dump.stdout:
        name = re.search(r"Function : \S*?" + KERNEL, line)
        if "Function :" in line:
            code = found.setdefault((name[1], name[2], int(name[3])), []) if name else None
        instruction = code is not None and re.match(r"\s+/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;", line)
        if instruction:
            code.append((int(instruction[1], 16), instruction[2]))
    return found


def resources(library, sm):
    """(kernel, dtype, head width or layout) -> (registers, bytes of local memory)"""
    out = subprocess.run(["cuobjdump", "-res-usage", "-arch", "sm_" + sm, library], capture_output=True, text=True).stdout
    found = re.findall(KERNEL + r"\S*\s+REG:(\d+) STACK:(\d+) \S+ LOCAL:(\d+)", out)
    return {(kernel, dtype, int(width)): (int(registers), int(stack) + int(local))
            for kernel, dtype, width, registers, stack, local in found}


def operation(text):
    return re.sub(r"^@!?\w+\s+", "", text).split()[0]


def target(text):
    place = re.search(r"0x([0-9a-f]+)", text)
    return int(place[1], 16) if place else None


def hot_path(code):
    """The instructions of the path through the loop over tiles: most products and copies, and then the shortest."""
    at = {address: i for i, (address, _) in enumerate(code)}
    loops = []
    for i, (address, text) in enumerate(code):
        to = target(text) if operation(text).startswith("BRA") else None
        if to is not None and to <= address and to in at:
            body = code[at[to]:i + 1]
            loops.append((sum(operation(t).startswith(PRODUCT) for _, t in body), -len(body), at[to], i))
    if not loops:
        return []
    _, _, begin, end = max(loops)
    best = {begin: (0, 0, None)}  # index -> products and copies, - instructions, the one before
    for i in range(begin, end + 1):
        if i not in best:
            continue
        text = code[i][1]
        name, jump = operation(text), None
        done, length, _ = best[i]
        reached = (done + name.startswith((PRODUCT, COPY)), length - 1, i)
        after = [i + 1]
        if name.startswith("BRA"):
            jump = at.get(target(text))
            after = ([i + 1] if text.startswith("@") or "P" in text.split()[1][:3] else []) + ([jump] if jump else [])
        elif name in ("EXIT", "RET") and not text.startswith("@"):
            after = []
        for n in after:
            if i < n <= end + 1 and (n not in best or reached[:2] > best[n][:2]):
                best[n] = reached
    path, i = [], end
    while i is not None:
        path.append(operation(code[i][1]))
        i = best[i][2]
    return path


def main():
    library, architectures = sys.argv[1], sys.argv[2:] or ["80", "90", "100"]
    for tool in ("cuobjdump", "nvdisasm"):
        if not shutil.which(tool):
            print("skipped: no %s, which comes with CUDA" % tool)
            return 77
    failed, n_checked = 0, 0
    for sm in architectures:
        found = functions(library, sm)
        if not found:
            print("skipped: no code for sm_%s in %s" % (sm, library))
            continue
        n_checked += 1
        used = resources(library, sm)
        for (kernel, width), most in LIMITS.items():
            for dtype in ("bf16", "f16"):
                code = found.get((kernel, dtype, width))
                if not code:
                    print("FAILED sm_%s: no kernel %s of %s, width or layout %d" % (sm, kernel, dtype, width))
                    failed = 1
                    continue
                path = hot_path(code)
                count = lambda *names: sum(name.startswith(names) for name in path)
                each, apart, spilled = len(path) / max(1, count(PRODUCT)), count("BSSY"), count("LDL", "STL")
                registers, local = used[kernel, dtype, width]
                blocks = REGISTERS // (THREADS.get(kernel, 128) * ((registers + 7) // 8 * 8))
                least = BLOCKS.get((kernel, width), LEAST_BLOCKS)
                bad = not path or each > most or apart > MOST_BRANCHES or spilled or blocks < least or local > MOST_LOCAL
                failed = failed or bad
                print("%-6s sm_%-3s %-8s %-5s %3d: %4d instructions, %3d products, %.1f each of %.1f, %2d ldmatrix, "
                      "%d BSSY, %d in memory; %d registers, %d blocks of %d, %d bytes of local memory" % (
                          "FAILED" if bad else "ok", sm, kernel, dtype, width, len(path), count(PRODUCT), each, most,
                          count("LDSM"), apart, spilled, registers, blocks, least, local))
    return int(bool(failed)) if n_checked else 77


if __name__ == "__main__":
    sys.exit(main())
