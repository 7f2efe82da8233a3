"""What a crash may leave on a disk: replays a recording of record.c and builds states.

The model has two file systems. Both may lose anything that was not synced, in part or as a whole:

- File data. A completed fsync of a file makes all its earlier writes and size changes durable. Of later
  ones any subset may have reached the disk, cut at multiples of 4 KiB and in any order; the size is that of
  any moment since. Blocks below the size that never arrived read as zeros, or as garbage with "posix".
- Names, "journal" (ext4, XFS): creations, removals and renames reach the disk in their order, each as a
  whole. Every completed fsync of any file or folder makes the earlier ones durable.
- Names, "posix" (no more than POSIX promises; btrfs is between the two): only an fsync of the folder makes its names durable; of later
  changes any subset may have arrived. A rename or an exchange of two names within one folder is atomic.

Not modelled, so not promised: disks that lie about a flush, and sectors that decay.
"""
import os

BLOCK = 4096


class File:
    def __init__(self, base=b""):
        self.base = base  # what is durable
        self.ops = []     # since then: (event, offset, bytes), or (event, size, None) of a change of the size

    def sync(self, before):
        n = sum(op[0] < before for op in self.ops)
        self.base, self.ops = self.content(self.ops[:n]), self.ops[n:]

    def content(self, ops, arrives=lambda: True, sizes=None, filler=None):
        """The durable bytes and those blocks of `ops` that arrive. `sizes` collects the size after each."""
        data, size = bytearray(self.base), len(self.base)
        for _, at, new in ops:
            size = at if new is None else max(size, at + len(new))
            if sizes is not None:
                sizes.append(size)
            if new is None:
                del data[size:]
                continue
            for begin in blocks(at, len(new)):
                end = min(at + len(new), begin - begin % BLOCK + BLOCK)
                if arrives():
                    grow(data, begin, filler)
                    data[begin:end] = new[begin - at:end - at]
        grow(data, size, filler)
        return bytes(data)

    def crash(self, rng, style, garbage):
        if not self.ops or style == "nothing":
            return self.base
        if style == "everything":
            return self.content(self.ops)
        filler = (lambda n: rng.randbytes(n)) if garbage and rng.random() < 0.3 else None
        share, sizes = rng.choice((0.05, 0.3, 0.5, 0.7, 0.95)), [len(self.base)]
        data = bytearray(self.content(self.ops[:rng.randint(0, len(self.ops))], lambda: rng.random() < share, sizes,
                                      filler))
        size = rng.choice(sizes)
        del data[size:]
        return bytes(data)


def blocks(at, n):
    """Where the 4 KiB blocks of a write begin."""
    return [at] * (n > 0) + list(range(at - at % BLOCK + BLOCK, at + n, BLOCK))


def grow(data, size, filler):
    n = size - len(data)
    if n > 0:
        data += filler(n) if filler else bytes(n)


class Folder:
    def __init__(self):
        self.live = {}     # name -> File or Folder, as the programs see it
        self.durable = {}


class Disk:
    """The folder `root` as it was before the recording, all of it durable; then `apply` each event."""

    def __init__(self, root, tree, journal):
        self.root, self.journal = root, journal
        self.top = self.build(tree)
        self.pending = []  # (event, changes that are durable together: (folder, {name: node or None})), in order

    def build(self, tree):
        if isinstance(tree, bytes):
            return File(tree)
        folder = Folder()
        folder.live = {name: self.build(node) for name, node in tree.items()}
        folder.durable = dict(folder.live)
        return folder

    def find(self, path):
        node = self.top
        for name in os.path.relpath(path, self.root).split("/"):
            if name != ".":
                node = node.live[name]
        return node

    def place(self, path):
        return self.find(os.path.dirname(path)), os.path.basename(path)

    def change(self, i, *changes):
        """`changes`: (folder, {name: node, or None that goes away}), at once where the file system can."""
        for folder, names in changes:
            put(folder.live, names)
        self.pending += [(i, changes)] if self.journal else [(i, (c,)) for c in changes]

    def sync(self, path, began):
        node = self.find(path)
        if isinstance(node, File):
            node.sync(began)
        kept = []
        for change in self.pending:
            if change[0] < began and (self.journal or change[1][0][0] is node):
                for folder, names in change[1]:
                    put(folder.durable, names)
            else:
                kept.append(change)
        self.pending = kept

    def apply(self, i, event):
        kind, path, *rest = event
        if kind == "write":
            self.find(path).ops.append((i, rest[0], rest[1]))
        elif kind == "size":
            self.find(path).ops.append((i, rest[0], None))
        elif kind == "sync":
            self.sync(path, rest[0])
        elif kind in ("create", "mkdir"):
            folder, name = self.place(path)
            self.change(i, (folder, {name: File() if kind == "create" else Folder()}))
        elif kind in ("unlink", "rmdir"):
            folder, name = self.place(path)
            self.change(i, (folder, {name: None}))
        elif kind in ("rename", "exchange", "link"):
            (a, old), (b, new) = self.place(path), self.place(rest[0])
            moved, replaced = a.live[old], b.live.get(new)
            here = {"rename": {old: None}, "link": {}, "exchange": {old: replaced}}[kind]
            if a is b:
                self.change(i, (a, {**here, new: moved}))
            else:
                self.change(i, (b, {new: moved}), (a, here))

    def crash(self, rng, style):
        """A tree {name: bytes or tree}. `style`: "nothing" or "everything" that was not synced has arrived, "names"
        without their data, or anything ("random")."""
        names = {}
        if style == "random":
            if self.journal:
                chosen = self.pending[:rng.randint(0, len(self.pending))]
            else:
                share = rng.choice((0.1, 0.5, 0.9))
                chosen = [c for c in self.pending if rng.random() < share]
        else:
            chosen = [] if style == "nothing" else self.pending
        for folder, changes in (c for _, together in chosen for c in together):
            put(names.setdefault(id(folder), dict(folder.durable)), changes)
        data = {"names": "nothing"}.get(style, style)

        def tree(folder):
            out = {}
            for name, node in names.get(id(folder), folder.durable).items():
                out[name] = tree(node) if isinstance(node, Folder) else node.crash(rng, data, not self.journal)
            return out

        return tree(self.top)


def put(names, changes):
    for name, node in changes.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def read_log(log):
    """The events of record.c, numbers as numbers, bytes in their place."""
    events = []
    with open(log + ".data", "rb") as f:
        data = f.read()
    for line in open(log, encoding="utf-8"):
        kind, *fields = line.rstrip("\n").split("\t")
        if kind == "write":
            at, size, begin = map(int, fields[1:])
            events.append((kind, fields[0], at, data[begin:begin + size]))
        elif kind == "say":
            begin, size = map(int, fields)
            events.append((kind, data[begin:begin + size].decode(errors="replace")))
        elif kind in ("size", "sync"):
            events.append((kind, fields[0], int(fields[1])))
        else:
            events.append((kind, *fields))
    return events


def read_tree(path):
    if not os.path.isdir(path):
        with open(path, "rb") as f:
            return f.read()
    return {name: read_tree(os.path.join(path, name)) for name in os.listdir(path)}


def write_tree(path, tree):
    if isinstance(tree, bytes):
        with open(path, "wb") as f:
            f.write(tree)
        return
    os.makedirs(path, exist_ok=True)
    for name, node in tree.items():
        write_tree(os.path.join(path, name), node)
