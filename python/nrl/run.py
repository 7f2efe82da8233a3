"""Runs: nrl/run.h."""
import collections
import contextlib
import ctypes
import json
import logging
import math
import os
import re
import signal
import threading
from ctypes import POINTER, byref, c_bool, c_char_p, c_int, c_size_t, c_void_p, sizeof

from . import _lib
from ._lib import ConfigError, check, lib
from .inference import Tokenizer, packed_values, sampled
from .loss import Loss, running

_log = logging.getLogger("nrl")
_KINDS = {_lib.EVENT_STEP: "step", _lib.EVENT_EVAL: "eval", _lib.EVENT_BEFORE_SAVE: "before_save", _lib.EVENT_SAVE: "save",
          _lib.EVENT_END: "end", _lib.EVENT_SAMPLES: "samples"}


class Sample:
    """A text of eval.samples. A hook of "samples" may set `score`, from 0 to 1."""

    __slots__ = ("prompt", "text", "answer", "tokens", "index", "is_cut", "_score")

    def __init__(self, s):
        for name in ("prompt", "text", "answer"):
            value = getattr(s, name)
            setattr(self, name, value.decode(errors="replace") if value is not None else None)
        self.tokens, self.index, self.is_cut, self._score = s.tokens, s.index, s.is_cut, s.score

    @property
    def score(self):
        return None if self._score[0] != self._score[0] else self._score[0]

    @score.setter
    def score(self, value):
        if not 0 <= value <= 1:
            raise ValueError(f"a score is 0 to 1, found {value}")
        self._score[0] = float(value)

    def __repr__(self):
        return f"<nrl.Sample {self.prompt!r} -> {self.text!r}>"


class Event:
    """What happened in a run. kind: "step", "eval", "samples", "before_save", "save" or "end"; `values` has every number of the
    record, metrics of the algorithm included; `samples` the texts of eval.samples, valid during the hook."""

    __slots__ = ("kind", "step", "loss", "grad_norm", "lr", "epoch", "tokens", "tokens_per_s", "seconds", "skipped", "values", "text",
                 "path", "samples")

    def __init__(self, e):
        self.kind = _KINDS.get(e.kind, "")
        for name in ("step", "loss", "grad_norm", "lr", "epoch", "tokens", "tokens_per_s", "seconds", "skipped"):
            setattr(self, name, getattr(e, name))
        self.values = _lib.values(e.values, e.n_values)
        self.text = e.text.decode(errors="replace") if e.text else None
        self.path = os.fsdecode(e.path) if e.path else None
        self.samples = [Sample(e.samples[i]) for i in range(e.n_samples)]

    def __repr__(self):
        shown = {"step": f" step={self.step} loss={self.loss:.6g}", "eval": f" step={self.step} loss={self.loss:.6g}",
                 "save": f" step={self.step} path={self.path!r}"}
        return f"<nrl.Event {self.kind}{shown.get(self.kind, '')}>"


def open(config, *overrides, losses=(), quiet=True, on_event=None, plugin_path=None, no_output=False, check_only=False, **keys):
    """Opens a run, and resumes it if its config says so.

    config: the path of a YAML file, or a dict with the same keys. overrides: "optimizer.lr=1e-4" as on the command line. keys:
    top-level keys, out="runs/first" or train={"steps": 4}; dicts are merged into what is there, so {} changes nothing there.
    losses: losses of nrl.loss that the config names; one that is the value of "algorithm" itself need not be listed.
    quiet=False prints the plan and the progress on stdout. on_event(event) is called with every event. Warnings and information
    go to the logger "nrl" of `logging`."""
    return Run(config, overrides, losses, quiet, on_event, plugin_path, no_output, check_only, keys)


_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


def _yaml(value):
    """JSON that YAML reads as the same value: it refuses surrogate pairs, and some characters that are not escaped."""
    text = json.dumps(value, default=os.fspath, ensure_ascii=False)
    return _UNPRINTABLE.sub(lambda c: f"\\u{ord(c[0]):04x}", text).encode()


def _is_plain(key):
    """Whether the key can be a part of the path of an assignment: of a pattern such as "*.mlp.*" the dots would divide it."""
    return key != "" and "." not in key and "=" not in key


class Run:
    """An open run; see nrl.open. It belongs to the thread that opened it. A context manager. `plan`: the plan of the run,
    a dict with the keys of docs/records.md; None if the run is quiet."""

    def __init__(self, config, overrides, losses, quiet, on_event, plugin_path, no_output, check_only, keys):
        self._pointer = self._arena = self._config = None
        self._thread = threading.get_ident()
        self._lock = threading.RLock()  # a handler of a signal may call the run, too
        self._depth, self._is_dropped = 0, False  # uses by C in progress; __del__ was called during one
        self._hooks, self._events, self._on_event = {}, collections.deque(), on_event
        self._interrupted = False
        self.plan = None
        self._losses = {loss.name: loss for loss in losses}
        self._arena = lib.nrl_arena_create()
        self._config = lib.nrl_config_create(self._arena)
        try:
            self._read(config, overrides, keys)
            self._open(quiet, plugin_path, no_output, check_only)
        except BaseException:
            self.close()
            raise

    def _read(self, config, overrides, keys):
        for tree in (config if isinstance(config, dict) else {}, keys):
            named = tree.get("algorithm")
            named = named.get("name") if isinstance(named, dict) else named
            if isinstance(named, Loss):
                self._losses[named.name] = named
        if isinstance(config, dict):
            text = json.dumps(config, default=lambda o: o.name if isinstance(o, Loss) else os.fspath(o)).encode()
            root = c_void_p()
            check(lib.nrl_json_parse(self._arena, b"config", text, len(text), byref(root)))
            lib.nrl_config_set_root(self._config, root)
        else:
            check(lib.nrl_config_read(self._config, _lib.path(config)))
        for key, value in keys.items():
            self._merge(key.split("."), value)
        for assignment in overrides:
            lib.nrl_config_override(self._config, _lib.text(assignment))
        lib.nrl_config_substitute(self._config, _lib.getenv)

    # ---- keys ----

    def _find(self, path):
        """The node of the config at a path of keys, and its kind; None and 0 if there is none."""
        node = lib.nrl_config_root(self._config)
        for key in path:
            node = lib.nrl_node_find(node, key.encode())
        return node, lib.nrl_node_kind(node)

    def _merge(self, path, value):
        """Merges a value into the config: by assignments, which also expand `optimizer: adamw` to a map; from a key on that is not
        plain, by nodes."""
        if isinstance(value, dict) and (value or self._find(path)[1] > _lib.NODE_NULL):
            for key, inner in value.items():
                self._merge([*path, str(key)], inner)
            return
        n = next((i for i, key in enumerate(path) if not _is_plain(key)), len(path))
        node, kind = self._find(path[:n])
        if n < len(path) and kind == _lib.NODE_MAP:
            self._put(node, path[n:], value)
            return
        for key in reversed(path[n:]):
            value = {key: value}
        lib.nrl_config_override(self._config, ".".join(path[:n]).encode() + b"=" + _yaml(value))

    def _put(self, node, path, value):
        """Sets a value below a map, without an assignment."""
        key, child = path[0].encode(), c_void_p()
        inner = lib.nrl_node_find(node, key)
        if len(path) > 1 and lib.nrl_node_kind(inner) == _lib.NODE_MAP:
            self._put(inner, path[1:], value)
            return
        for name in reversed(path[1:]):
            value = {name: value}
        check(lib.nrl_yaml_value(self._arena, b"command line", _yaml(value), byref(child)))
        lib.nrl_node_put(self._arena, node, key, child)

    def _open(self, quiet, plugin_path, no_output, check_only):
        self._env = env = _lib.environment(plugin_path)
        self._signal = c_int(0)
        self._callbacks = (_lib.EVENT_CALL(self._take_event), _lib.FIND_CALL(self._find_algorithm))
        env.quiet, env.no_output, env.check_only = quiet, no_output, check_only
        env.event, env.find_algorithm = map(_lib.address, self._callbacks)
        env.takes_warnings = True
        env.signal = ctypes.pointer(self._signal)
        pointer = c_void_p()
        try:
            self._call(lambda _: lib.nrl_run_open(self._config, byref(env), byref(pointer)), opens=True)
        finally:  # also if a callback or Ctrl-C raises although the run is open
            self._pointer = pointer if pointer else None

    # ---- what C calls ----

    def _take_event(self, _user, _run, event):
        return _lib.call(self._hear, event.contents)

    def _hear(self, e):
        if e.kind == _lib.EVENT_WARNING:
            _log.warning("%s", e.text.decode(errors="replace"))
        elif e.kind == _lib.EVENT_INFO:
            _log.info("%s", e.text.decode(errors="replace"))
        elif e.kind == _lib.EVENT_PLAN:
            self.plan = _lib.tree(e.plan)
            _log.info("%s", _lib.allocated_text(lib.nrl_plan_text(e.plan)))
        if e.kind not in _KINDS:
            return
        event = Event(e)
        if event.kind not in ("before_save", "samples"):
            self._events.append(event)
        for hook in self._hooks.get(event.kind, ()):
            hook(event)
        if self._on_event is not None:
            self._on_event(event)

    def _find_algorithm(self, _user, name, instance):
        loss = self._losses.get(name.decode())
        instance[0] = None
        return ctypes.addressof(loss._table) if loss else None

    # ---- calls ----

    @contextlib.contextmanager
    def _use(self, opens=False):
        """The handle, for C. Until the outermost use ends the run cannot be closed: C would go on with freed memory."""
        with self._lock:
            handle = None if opens else self._handle
            self._depth += 1
        try:
            yield handle
        finally:
            with self._lock:
                self._depth -= 1
                closes = self._is_dropped and not self._depth
            if closes:
                self.close()

    def _call(self, function, *arguments, opens=False):
        before = running.run
        running.run = self
        # Ctrl-C waits for the end of the outermost call, wherever Python code that C calls is at that moment.
        handler = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT)
        waits = handler is signal.default_int_handler
        if waits:
            signal.signal(signal.SIGINT, self._interrupt)
        try:
            with self._use(opens) as handle:
                check(function(handle, *arguments))
        finally:
            if waits:
                signal.signal(signal.SIGINT, handler)
            running.run = before
        if waits and self._interrupted:
            self._interrupted = False
            raise KeyboardInterrupt

    def _interrupt(self, _number, _frame):
        self._interrupted = True

    @property
    def _handle(self):
        if self._pointer is None:
            raise ValueError("this run is closed")
        if threading.get_ident() != self._thread:
            raise RuntimeError("a run belongs to the thread that opened it")
        return self._pointer

    def on(self, kind, hook=None):
        """Calls hook(event) with each event of a kind: "step", "eval", "samples", "before_save", "save" or "end". From a hook the run may
        evaluate, sample, save, stop. An exception of a hook ends the run and is raised by the call that ran it. Also a
        decorator: @run.on("step")."""
        if kind not in _KINDS.values():
            raise ValueError(f"there is no event '{kind}', expected one of: {', '.join(_KINDS.values())}")
        if hook is None:
            return lambda function: self.on(kind, function)
        self._hooks.setdefault(kind, []).append(hook)
        return hook

    def step(self):
        """Runs one step and the evaluation and save due after it; returns its event, or None if no step was left."""
        event, done = _lib.nrl_run_event(size=sizeof(_lib.nrl_run_event)), c_bool()
        self._events.clear()
        self._call(lib.nrl_run_step, byref(event), byref(done))
        return None if done.value else next((e for e in self._events if e.kind == "step"), None)

    def steps(self):
        """Runs all steps, then finishes the run; yields the event of each step."""
        return (event for event in self if event.kind == "step")

    def __iter__(self):
        """Runs all steps, then finishes the run; yields every event: steps, evaluations, saves and the end."""
        while self.step() is not None:
            yield from tuple(self._events)
        self._events.clear()
        self.finish()
        yield from tuple(self._events)

    def train(self):
        """Runs all steps, then finishes the run. Ctrl-C ends it between two steps and saves the state."""
        try:
            while self.step() is not None:
                pass
        except KeyboardInterrupt:
            if not self._env.no_output:
                self._signal.value = 0
                self.save()
            raise
        self.finish()

    def finish(self):
        """Makes the final save and, if configured, the export."""
        self._call(lib.nrl_run_finish)

    def stop(self, reason="stopped"):
        """Ends the run after the current step."""
        with self._use() as handle:
            lib.nrl_run_stop(handle, _lib.text(reason))

    def set_lr(self, lr):
        """Sets the learning rate from the next step on, instead of that of the schedule."""
        if not 0 <= lr < math.inf:
            raise ValueError(f"a learning rate is 0 or more, found {lr}")
        with self._use() as handle:
            lib.nrl_run_set_lr(handle, lr)

    def set_data(self, train):
        """Changes the data from the next step on, to a value of data.train (a path, a dict or a list). The optimizer, the schedule and the
        number of steps do not change; checkpoints contain the change."""
        text, node, arena = json.dumps(train, default=os.fspath).encode(), c_void_p(), _lib.Arena()
        check(lib.nrl_json_parse(arena.pointer, b"data", text, len(text), byref(node)))
        self._call(lib.nrl_run_set_data, node)

    def report(self, name, value, unit="1"):
        """Writes a number to the loggers, in a separate record for the current step."""
        with self._use() as handle:
            lib.nrl_run_report(handle, _lib.text(name), _lib.text(unit), value)

    def evaluate(self, file=None):
        """Evaluates on data.eval or on a file; a dict with eval_loss, eval_tokens and metrics."""
        rows, n = POINTER(_lib.nrl_value)(), c_size_t()
        with self._use():  # the values belong to the run
            self._call(lib.nrl_run_evaluate, _lib.path(file), byref(rows), byref(n))
            return _lib.values(rows, n.value)

    def save(self):
        """Saves the complete state; returns the checkpoint's folder."""
        path = c_char_p()
        with self._use():  # the path belongs to the run
            self._call(lib.nrl_run_save, byref(path))
            return os.fsdecode(path.value)

    def export(self, folder):
        """Writes the current weights as a model on disk."""
        self._call(lib.nrl_run_export, _lib.path(folder))

    def sample(self, prompts, **options):
        """The same as Model.sample, with the current weights."""
        with self._use() as handle:
            return sampled(lambda *a: lib.nrl_run_sample(handle, *a), prompts, **options)

    def logits(self, ids):
        """As Model.logits, with the current weights in the run's precision."""
        with self._use() as handle:
            return packed_values(lambda *a: lib.nrl_run_logits(handle, *a), ids, self.vocab_size)

    def logps(self, ids):
        """As Model.logps, with the current weights in the run's precision."""
        with self._use() as handle:
            return packed_values(lambda *a: lib.nrl_run_logps(handle, *a), ids, 0)

    @property
    def vocab_size(self):
        with self._use() as handle:
            return lib.nrl_run_vocab_size(handle)

    @property
    def tokenizer(self):
        """The tokenizer of the run, or None."""
        with self._use() as handle:
            pointer = lib.nrl_run_tokenizer(handle)
        return Tokenizer._borrowed(pointer, self) if pointer else None

    @property
    def steps_done(self):
        with self._use() as handle:
            return lib.nrl_run_steps_done(handle)

    @property
    def total_steps(self):
        with self._use() as handle:
            return lib.nrl_run_total_steps(handle)

    @property
    def config(self):
        """The resolved config with all defaults."""
        with self._use() as handle:
            return _lib.tree(lib.nrl_run_config(handle))

    @property
    def out(self):
        """The run's folder."""
        with self._use() as handle:
            return os.fsdecode(lib.nrl_run_out(handle))

    @property
    def state(self):
        """A JSON value that checkpoints contain and a resume restores; None = none."""
        with self._use() as handle:
            kept = lib.nrl_run_state(handle)
        return json.loads(kept) if kept else None

    @state.setter
    def state(self, value):
        with self._use() as handle:
            lib.nrl_run_set_state(handle, json.dumps(value).encode())

    # ---- the end ----

    def close(self):
        """Closes the run without a final save; a finished run has made it already. A ConfigError during a call of the run."""
        with self._lock:
            if self._depth:
                raise ConfigError("cannot call run.close from a hook or a loss" if threading.get_ident() == self._thread else
                                  "cannot call run.close: another thread is in a call of the run")
            pointer, config, arena = self._pointer, self._config, self._arena
            self._pointer = self._config = self._arena = None
        if pointer is not None:
            lib.nrl_run_close(pointer)
        if config is not None:
            lib.nrl_config_destroy(config)
            lib.nrl_arena_destroy(arena)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def __del__(self):
        if getattr(self, "_arena", None) is None:
            return
        with self._lock:
            self._is_dropped = self._depth > 0
        if not self._is_dropped:  # else the end of that call closes it
            self.close()
