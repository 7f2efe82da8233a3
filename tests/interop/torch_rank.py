#!/usr/bin/env python3
"""A rank of torch.distributed's gloo: torch_rank.py RANK WORLD STORE LIST. STORE is HOST:PORT, serve:FILE (this rank
holds the store and writes its port to FILE) or file:FILE (waits for that file). Makes the calls of LIST as ops.h says,
checks each, prints what is wrong."""
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

DTYPES = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16,
          "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8}
SUMS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN, "product": dist.ReduceOp.PRODUCT}
LIMIT = timedelta(seconds=60)
wrong = 0


def value(rank, n, first=0, product=False):
    i = torch.arange(first, first + n)
    return (i + rank) % 3 + 1 if product else (i * 5 + i // 13 + rank * 7) % 13 + 1


def rough(rank, n):
    x = (torch.arange(n) * 2654435761 + (rank + 1) * 40503) & 0xffffffff
    x ^= x >> 15
    x = (x * (2246822519 & 0xffff) + (((x * (2246822519 >> 16)) & 0xffff) << 16)) & 0xffffffff
    x ^= x >> 13
    whole = ((x & 0xffff) - 32768).to(torch.float32)
    return torch.where((x & 0x10000) != 0, whole / 4096, whole / 3)


def share(count, rank):
    return 0 if rank % 3 == 1 else count + 7 * rank


def check(line, found, expected):
    global wrong
    if not torch.equal(found.to(torch.float64), expected.to(torch.float64)):
        wrong += 1
        print(f"rank {dist.get_rank()}: {line}: {found[:4]} .., expected {expected[:4]} ..", flush=True)


def total(world, reduce, n, first=0):
    parts = torch.stack([value(r, n, first, reduce == "product") for r in range(world)])
    return {"sum": lambda: parts.sum(0), "max": lambda: parts.amax(0), "min": lambda: parts.amin(0),
            "product": lambda: parts.prod(0)}[reduce]()


def digest(x):
    h = 14695981039346656037
    for byte in x.contiguous().view(torch.uint8).numpy().tobytes():
        h = ((h ^ byte) * 1099511628211) & 0xffffffffffffffff
    return h


def reductions(line, name, dtype, reduce, n, peer, rank, world):
    if name == "rough":
        x = rough(rank, n).to(DTYPES[dtype])
        dist.all_reduce(x)
        print(f"bits {dtype} {n} {digest(x):016x}")
    elif name == "reduce_scatter":
        x = torch.zeros(n, dtype=DTYPES[dtype])
        dist.reduce_scatter_tensor(x, value(rank, n * world).to(DTYPES[dtype]), op=SUMS[reduce])
        check(line, x, total(world, reduce, n, n * rank))
    else:
        x = value(rank, n, product=reduce == "product").to(DTYPES[dtype])
        if name == "reduce":
            dist.reduce(x, peer, op=SUMS[reduce])
        else:
            dist.all_reduce(x, op=SUMS[reduce])
        if name == "all_reduce" or rank == peer:
            check(line, x, total(world, reduce, n))


def moves(line, name, dtype, n, peer, rank, world):
    t = DTYPES[dtype]
    mine = value(rank, n).to(t)
    if name == "broadcast":
        x = value(peer, n).to(t) if rank == peer else torch.zeros(n, dtype=t)
        dist.broadcast(x, peer)
        check(line, x, value(peer, n))
    elif name == "all_gather":
        x = torch.zeros(n * world, dtype=t)
        dist.all_gather_into_tensor(x, mine)
        check(line, x, torch.cat([value(r, n) for r in range(world)]))
    elif name == "gather":
        parts = [torch.zeros(n, dtype=t) for _ in range(world)] if rank == peer else None
        dist.gather(mine, parts, dst=peer)
        if rank == peer:
            check(line, torch.cat(parts), torch.cat([value(r, n) for r in range(world)]))
    elif name == "scatter":
        x = torch.zeros(n, dtype=t)
        dist.scatter(x, list(value(peer, n * world).to(t).split(n)) if rank == peer else None, src=peer)
        check(line, x, value(peer, n, n * rank))
    elif name == "message":
        x = torch.zeros(n, dtype=t)
        sent = dist.isend(mine, (rank + 1) % world, tag=peer)
        dist.recv(x, (rank - 1) % world, tag=peer)
        sent.wait()
        check(line, x, value((rank - 1) % world, n))
    else:
        out = [share(n, r) if name == "all_to_allv" else n for r in range(world)]
        back = [share(n, rank) if name == "all_to_allv" else n] * world
        x = torch.zeros(sum(back), dtype=t)
        dist.all_to_all_single(x, torch.cat([value(rank + r, out[r]) for r in range(world)]).to(t), back, out)
        check(line, x, torch.cat([value(rank + r, back[r]) for r in range(world)]))


def timed(dtype, n, calls):
    x = torch.zeros(n, dtype=DTYPES[dtype])
    seconds = []
    for _ in range(calls):
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(x)
        seconds.append(time.perf_counter() - start)
    print(f"time {dtype} {n} {sorted(seconds)[calls // 2]:.9f}")


def open_store(where, rank, world):
    if where.startswith("serve:"):
        store = dist.TCPStore("127.0.0.1", 0, world, is_master=True, timeout=LIMIT, wait_for_workers=False)
        with open(where[6:] + ".new", "w") as f:
            f.write(f"{store.port}\n")
        os.rename(where[6:] + ".new", where[6:])
        return store
    if where.startswith("file:"):
        end = time.time() + 60
        while not os.path.exists(where[5:]) and time.time() < end:
            time.sleep(0.02)
        with open(where[5:]) as f:
            where = "127.0.0.1:" + f.read().strip()
    host, port = where.split(":")
    return dist.TCPStore(host, int(port), world, is_master=False, timeout=LIMIT, wait_for_workers=False)


def main():
    rank, world = int(sys.argv[1]), int(sys.argv[2])
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = dist.PrefixStore("default_pg", open_store(sys.argv[3], rank, world))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=LIMIT)
    for line in open(sys.argv[4]):
        if line.startswith("#"):
            continue
        name, dtype, reduce, count, peer = line.split()
        if name == "barrier":
            dist.barrier()
        elif name == "time":
            timed(dtype, int(count), int(peer))
        elif name in ("all_reduce", "rough", "reduce", "reduce_scatter"):
            reductions(line.strip(), name, dtype, reduce, int(count), int(peer), rank, world)
        elif name != "all_gatherv":  # torch has none of its own
            moves(line.strip(), name, dtype, int(count), int(peer), rank, world)
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(wrong > 0)  # whoever holds the store must not wait for those who have gone


if __name__ == "__main__":
    main()
