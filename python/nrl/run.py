"""Runs: nrl/run.h."""
import collections
import ctypes
import json
import logging
import math
import os
import signal
import threading
from ctypes import POINTER, byref, c_bool, c_char_p, c_int, c_size_t, c_void_p, sizeof

from . import _lib
from ._lib import check, lib
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
    top-level keys, out="runs/first" or train={"steps": 4}; dicts are merged into what is there. losses: losses of nrl.loss that
    the config names; one that is the value of "algorithm" itself need not be listed. quiet=False prints the plan and the
    progress on stdout. on_event(event) is called with every event. Warnings and information go to the logger "nrl" of `logging`."""
    return Run(config, overrides, losses, quiet, on_event, plugin_path, no_output, check_only, keys)


def _assignments(prefix, value):
    if isinstance(value, Loss):
        value = value.name
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _assignments(f"{prefix}.{key}", inner)
    else:
        yield f"{prefix}={json.dumps(value, default=os.fspath)}"


class Run:
    """An open run; see nrl.open. It belongs to the thread that opened it. A context manager. `plan`: the plan of the run,
    a dict with the keys of docs/records.md; None if the run is quiet."""

    def __init__(self, config, overrides, losses, quiet, on_event, plugin_path, no_output, check_only, keys):
        self._pointer = self._arena = self._config = None
        self._thread = threading.get_ident()
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
            for assignment in _assignments(key, value):
                lib.nrl_config_override(self._config, assignment.encode())
        for assignment in overrides:
            lib.nrl_config_override(self._config, _lib.text(assignment))
        lib.nrl_config_substitute(self._config, _lib.getenv)

    def _open(self, quiet, plugin_path, no_output, check_only):
        self._env = env = _lib.environment(plugin_path)
        self._signal = c_int(0)
        self._callbacks = (_lib.EVENT_CALL(self._take_event), _lib.FIND_CALL(self._find_algorithm))
        env.quiet, env.no_output, env.check_only = quiet, no_output, check_only
        env.event, env.find_algorithm = map(_lib.address, self._callbacks)
        env.takes_warnings = True
        env.signal = ctypes.pointer(self._signal)
        pointer = c_void_p()
        self._call(lib.nrl_run_open, self._config, byref(env), byref(pointer))
        self._pointer = pointer

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

    def _call(self, function, *arguments):
        before = running.run
        running.run = self
        # Ctrl-C waits for the end of the outermost call, wherever Python code that C calls is at that moment.
        handler = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT)
        waits = handler is signal.default_int_handler
        if waits:
            signal.signal(signal.SIGINT, self._interrupt)
        try:
            check(function(*arguments))
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
        self._call(lib.nrl_run_step, self._handle, byref(event), byref(done))
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
        self._call(lib.nrl_run_finish, self._handle)

    def stop(self, reason="stopped"):
        """Ends the run after the current step."""
        lib.nrl_run_stop(self._handle, _lib.text(reason))

    def set_lr(self, lr):
        """Sets the learning rate from the next step on, instead of that of the schedule."""
        if not 0 <= lr < math.inf:
            raise ValueError(f"a learning rate is 0 or more, found {lr}")
        lib.nrl_run_set_lr(self._handle, lr)

    def set_data(self, train):
        """Changes the data from the next step on, to a value of data.train (a path, a dict or a list). The optimizer, the schedule and the
        number of steps do not change; checkpoints contain the change."""
        text, node, arena = json.dumps(train, default=os.fspath).encode(), c_void_p(), _lib.Arena()
        check(lib.nrl_json_parse(arena.pointer, b"data", text, len(text), byref(node)))
        self._call(lib.nrl_run_set_data, self._handle, node)

    def report(self, name, value, unit="1"):
        """Writes a number to the loggers, in a separate record for the current step."""
        lib.nrl_run_report(self._handle, _lib.text(name), _lib.text(unit), value)

    def evaluate(self, file=None):
        """Evaluates on data.eval or on a file; a dict with eval_loss, eval_tokens and metrics."""
        rows, n = POINTER(_lib.nrl_value)(), c_size_t()
        self._call(lib.nrl_run_evaluate, self._handle, _lib.path(file), byref(rows), byref(n))
        return _lib.values(rows, n.value)

    def save(self):
        """Saves the complete state; returns the checkpoint's folder."""
        path = c_char_p()
        self._call(lib.nrl_run_save, self._handle, byref(path))
        return os.fsdecode(path.value)

    def export(self, folder):
        """Writes the current weights as a model on disk."""
        self._call(lib.nrl_run_export, self._handle, _lib.path(folder))

    def sample(self, prompts, **options):
        """The same as Model.sample, with the current weights."""
        return sampled(lambda *a: lib.nrl_run_sample(self._handle, *a), prompts, **options)

    def logits(self, ids):
        """As Model.logits, with the current weights in the run's precision."""
        return packed_values(lambda *a: lib.nrl_run_logits(self._handle, *a), ids, self.vocab_size)

    def logps(self, ids):
        """As Model.logps, with the current weights in the run's precision."""
        return packed_values(lambda *a: lib.nrl_run_logps(self._handle, *a), ids, 0)

    @property
    def vocab_size(self):
        return lib.nrl_run_vocab_size(self._handle)

    @property
    def tokenizer(self):
        """The tokenizer of the run, or None."""
        pointer = lib.nrl_run_tokenizer(self._handle)
        return Tokenizer._borrowed(pointer, self) if pointer else None

    @property
    def steps_done(self):
        return lib.nrl_run_steps_done(self._handle)

    @property
    def total_steps(self):
        return lib.nrl_run_total_steps(self._handle)

    @property
    def config(self):
        """The resolved config with all defaults."""
        return _lib.tree(lib.nrl_run_config(self._handle))

    @property
    def out(self):
        """The run's folder."""
        return os.fsdecode(lib.nrl_run_out(self._handle))

    @property
    def state(self):
        """A JSON value that checkpoints contain and a resume restores; None = none."""
        kept = lib.nrl_run_state(self._handle)
        return json.loads(kept) if kept else None

    @state.setter
    def state(self, value):
        lib.nrl_run_set_state(self._handle, json.dumps(value).encode())

    # ---- the end ----

    def close(self):
        """Closes the run without a final save; a finished run has made it already."""
        if self._pointer is not None:
            lib.nrl_run_close(self._pointer)
        if self._config is not None:
            lib.nrl_config_destroy(self._config)
            lib.nrl_arena_destroy(self._arena)
        self._pointer = self._config = self._arena = None

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def __del__(self):
        if getattr(self, "_arena", None) is not None:
            self.close()
