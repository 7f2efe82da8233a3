"""The store tcp beside torch's TCPStore: torch's client on the server of stores/tcp, its client on torch's servers,
every verb that either uses. Run with NRL_TESTLIB, the tests' twin of libnrl, and NRL_PLUGIN_PATH."""
import ctypes
import os
import sys
import threading
import time
from datetime import timedelta

from torch.distributed import PrefixStore, TCPStore

lib = ctypes.CDLL(os.environ["NRL_TESTLIB"])
lib.nrl_error_text.restype = ctypes.c_char_p
lib.plugin_host_create.restype = ctypes.c_void_p
lib.store_server_address.restype = ctypes.c_char_p
libc = ctypes.CDLL(None)
libc.free.argtypes = [ctypes.c_void_p]
libc.free.restype = None


def must(status):
    if status:
        raise RuntimeError(lib.nrl_error_text().decode())


class Setup(ctypes.Structure):
    """store_setup of core/mesh/store.h"""
    _fields_ = [("address", ctypes.c_char_p), ("job", ctypes.c_char_p), ("secret", ctypes.c_void_p),
                ("flags", ctypes.c_uint32), ("timeout_s", ctypes.c_double), ("signal", ctypes.c_void_p)]


FOREIGN = 2  # NRL_STORE_FOREIGN


class Kind(ctypes.Structure):
    """store_kind"""
    _fields_ = [("table", ctypes.c_void_p), ("options", ctypes.c_void_p)]


host = ctypes.c_void_p(lib.plugin_host_create(os.environ["NRL_PLUGIN_PATH"].encode(), None, ctypes.c_size_t(0), None))
memory = (ctypes.c_size_t * 2)()  # an arena
kind = Kind()
must(lib.store_find(host, memory, b"127.0.0.1:0", None, ctypes.byref(kind)))


def setup(port, flags=0):
    return Setup(b"127.0.0.1:%d" % port, b"", None, flags, 10, None)


class Ours:
    """A client of the plugin, as the core has it."""

    def __init__(self, port, flags=0):
        self.store = ctypes.c_void_p()
        must(lib.store_open(ctypes.byref(kind), ctypes.byref(setup(port, flags)), ctypes.byref(self.store)))

    def set(self, key, value):
        must(lib.nrl_store_set(self.store, key.encode(), value, ctypes.c_size_t(len(value))))

    def get(self, key, timeout=10.0):
        value, size = ctypes.c_void_p(), ctypes.c_size_t()
        must(lib.nrl_store_get(self.store, key.encode(), ctypes.c_double(timeout),
                               ctypes.byref(value), ctypes.byref(size)))
        text = ctypes.string_at(value, size.value)
        libc.free(value)
        return text

    def add(self, key, amount):
        result = ctypes.c_int64()
        must(lib.nrl_store_add(self.store, key.encode(), ctypes.c_int64(amount), ctypes.byref(result)))
        return result.value

    def set_once(self, key, text):
        now = ctypes.c_void_p()
        must(lib.store_set_once(self.store, key.encode(), text, ctypes.byref(now)))
        text = ctypes.string_at(now)
        libc.free(now)
        return text

    def all_there(self, keys):
        there = ctypes.c_bool()
        names = (ctypes.c_char_p * len(keys))(*[k.encode() for k in keys])
        must(lib.store_all_there(self.store, names, ctypes.c_size_t(len(keys)), ctypes.byref(there)))
        return there.value

    def get_all(self, keys):
        names = (ctypes.c_char_p * len(keys))(*[k.encode() for k in keys])
        values = (ctypes.c_void_p * len(keys))()
        must(lib.store_get_all(self.store, names, ctypes.c_size_t(len(keys)), values))
        texts = [ctypes.string_at(v) for v in values]
        for v in values:
            libc.free(v)
        return texts

    def close(self):
        lib.store_close(self.store)


def expect(got, want):
    if got != want:
        raise AssertionError(f"got {got!r}, want {want!r}")


def later(call):
    thread = threading.Thread(target=lambda: (time.sleep(0.3), call()))
    thread.start()
    return thread


def both_ways(ours, torch_store):
    """The same server under two clients: what one writes the other reads."""
    ours.set("a", b"one")
    expect(torch_store.get("a"), b"one")
    torch_store.set("b", "two")
    expect(ours.get("b"), b"two")
    expect(ours.add("n", 5), 5)
    expect(torch_store.add("n", -7), -2)
    expect(ours.get("n"), b"-2")
    expect(ours.set_once("w", b"first"), b"first")
    expect(ours.set_once("w", b"second"), b"first")
    expect(torch_store.compare_set("w", "first", "third"), b"third")
    expect(ours.set_once("w2", b""), b"")
    expect(ours.set_once("w2", b"told"), b"told")
    expect(ours.all_there(["a", "b"]), True)
    expect(ours.all_there(["a", "zzz"]), False)
    expect(torch_store.check(["a", "b"]), True)
    expect(torch_store.check(["zzz"]), False)
    expect(ours.get_all(["a", "b", "n"]), [b"one", b"two", b"-2"])
    expect(torch_store.multi_get(["a", "b"]), [b"one", b"two"])
    thread = later(lambda: torch_store.set("late", "x"))
    expect(ours.get("late"), b"x")
    thread.join()
    thread = later(lambda: ours.set("late2", b"y"))
    expect(torch_store.get("late2"), b"y")
    thread.join()
    try:
        ours.get("never", 0.3)
        raise AssertionError("a key that nobody set was got")
    except RuntimeError as e:
        assert "'never'" in str(e), e
    try:
        torch_store.wait(["never"], timedelta(seconds=0.3))
        raise AssertionError("torch got a key that nobody set")
    except Exception as e:
        assert "imeout" in str(e) or "imed out" in str(e), e
    expect(ours.get("a"), b"one")  # both go on after a wait that was cancelled
    expect(torch_store.get("a"), b"one")
    PrefixStore("job", torch_store).set("k", "v")
    expect(ours.get("job/k"), b"v")
    big = bytes(range(256)) * 4096
    ours.set("big", big)
    expect(torch_store.get("big"), big)


def torch_only(store):
    """Requests that the plugin answers and does not make."""
    store.append("ap", "x")
    store.append("ap", "y")
    expect(store.get("ap"), b"xy")
    store.multi_set(["m1", "m2"], ["1", "2"])
    expect(store.multi_get(["m1", "m2"]), [b"1", b"2"])
    count = store.num_keys()
    expect(store.delete_key("m1"), True)
    expect(store.delete_key("m1"), False)
    expect(store.num_keys(), count - 1)
    store.queue_push("q", "1")
    store.queue_push("q", "2")
    expect(store.queue_len("q"), 2)
    expect(store.queue_pop("q"), b"1")
    expect(store.queue_pop("q"), b"2")


def torch_on_ours():
    server = ctypes.c_void_p()
    must(lib.store_serve(ctypes.byref(kind), ctypes.byref(setup(0)), ctypes.byref(server)))
    port = int(lib.store_server_address(server).rpartition(b":")[2])
    ours = Ours(port)
    theirs = TCPStore("127.0.0.1", port, 2, False, timeout=timedelta(seconds=10))
    expect(ours.add("init/", 0), 2)
    both_ways(ours, theirs)
    torch_only(theirs)
    ours.close()
    del theirs
    lib.store_server_close(server)


def ours_on_torch(use_libuv):
    theirs = TCPStore("127.0.0.1", 0, 2, True, timeout=timedelta(seconds=10),
                      wait_for_workers=False, use_libuv=use_libuv)
    ours = Ours(theirs.port, FOREIGN)
    both_ways(ours, theirs)
    ours.close()


torch_on_ours()
ours_on_torch(True)
ours_on_torch(False)
print("the store and torch's understand each other")
sys.exit(0)
