"""Losses and rewards in Python: they fill the algorithm table of nrl/algorithm.h, as a plugin in C does.

A loss is written in one of two ways. As an expression over tensors, whose gradients nrl computes:

    @nrl.loss(needs=["logps"])
    def focal(b):
        return -((1 - b.logps.exp()) ** 2 * b.logps * b.weights).sum()

Or as numbers and their gradients, from any library:

    @nrl.loss(needs=["logps"])
    def nll(b):
        values, grads = ..., ...              # numpy arrays, or lists, of b.logps.numpy()
        return b.custom(values, logps=grads)

It returns a sum over its micro-batch. The run divides the sum by the weight, summed over the whole global batch.
"""
import array
import ctypes
import math
import threading
from ctypes import POINTER, byref, c_char_p, c_double, c_float, c_int32, c_int64, c_void_p, sizeof

from . import _lib
from ._lib import ConfigError, check, lib



class _Running(threading.local):
    run = None  # whose call is under way in this thread


running = _Running()
_REDUCES = {"mean": _lib.REDUCE_MEAN, "sum": _lib.REDUCE_SUM, "max": _lib.REDUCE_MAX, "min": _lib.REDUCE_MIN}
_BETTER = {None: _lib.BETTER_NONE, "smaller": _lib.BETTER_SMALLER, "larger": _lib.BETTER_LARGER}
_COUNTS = ("answer_tokens", "prompt_tokens", "sequences", "pairs", "examples", "desirable", "tokens")


def _try(code):
    """Shapes that do not match are a mistake of the loss, not of nrl."""
    if code == _lib.ERR_BUG:
        raise ConfigError(lib.nrl_error_text().decode(errors="replace"))
    check(code)


class Tensor:
    """A tensor of the call of a loss, on the run's device. Operations record themselves, so gradients follow. It is valid
    during the call."""

    __slots__ = ("_batch", "_pointer")
    __array_ufunc__ = None  # numpy arrays leave a + tensor to the tensor

    def __init__(self, batch, pointer):
        self._batch, self._pointer = batch, pointer

    @property
    def _handle(self):
        self._batch._context()
        return self._pointer

    def _new(self, function, *arguments):
        out = c_void_p()
        _try(function(self._batch._context(), *arguments, byref(out)))
        return Tensor(self._batch, out)

    def _unary(self, op, alpha=0.0, beta=0.0):
        return self._new(lib.nrl_op_unary, op, self._handle, alpha, beta)

    def _binary(self, op, other, swapped=False):
        other = self._batch.tensor(other)
        a, b = (other, self) if swapped else (self, other)
        return self._new(lib.nrl_op_binary, op, a._handle, b._handle)

    # a number beside a tensor is a scale or a shift
    def __add__(self, other):
        if isinstance(other, (int, float)):
            return self._unary(_lib.UNARY_AFFINE, 1.0, other)
        return self._binary(_lib.BINARY_ADD, other)

    __radd__ = __add__

    def __sub__(self, other):
        if isinstance(other, (int, float)):
            return self._unary(_lib.UNARY_AFFINE, 1.0, -other)
        return self._binary(_lib.BINARY_SUB, other)

    def __rsub__(self, other):
        if isinstance(other, (int, float)):
            return self._unary(_lib.UNARY_AFFINE, -1.0, other)
        return self._binary(_lib.BINARY_SUB, other, True)

    def __mul__(self, other):
        if isinstance(other, (int, float)):
            return self._unary(_lib.UNARY_AFFINE, other, 0.0)
        return self._binary(_lib.BINARY_MUL, other)

    __rmul__ = __mul__

    def __truediv__(self, other):
        if isinstance(other, (int, float)):
            return self._unary(_lib.UNARY_AFFINE, 1 / other, 0.0)
        return self._binary(_lib.BINARY_DIV, other)

    def __rtruediv__(self, other):
        return self._binary(_lib.BINARY_DIV, other, True)

    def __pow__(self, exponent):
        return self._unary(_lib.UNARY_POW, exponent)

    def __neg__(self):
        return self._unary(_lib.UNARY_NEG)

    def clamp(self, low, high):
        return self._unary(_lib.UNARY_CLAMP, low, high)

    def minimum(self, other):
        return self._binary(_lib.BINARY_MIN, other)

    def maximum(self, other):
        return self._binary(_lib.BINARY_MAX, other)

    def greater(self, other):
        """1 where the comparison is true, otherwise 0; without a gradient."""
        return self._binary(_lib.BINARY_GREATER, other)

    def sum(self):
        return self._new(lib.nrl_op_sum, self._handle)

    def mean(self):
        return self._new(lib.nrl_op_mean, self._handle)

    def detach(self):
        """The same values without a gradient."""
        return self._new(lib.nrl_op_detach, self._handle)

    def gather(self, index):
        """y[i] = x[index[i]]; index: a list of ints."""
        index = array.array("i", index)
        return self._new(lib.nrl_op_gather_rows, self._handle, _array(index, c_int32), len(index))

    @property
    def shape(self):
        return tuple(lib.nrl_tensor_dim(self._handle, i) for i in range(lib.nrl_tensor_n_dims(self._handle)))

    def __len__(self):
        return self.shape[0]

    def numpy(self):
        """The values, read-only: a numpy array, or a memoryview without numpy. Of f32 in the host's memory they are a view,
        valid during the call of the loss; else a copy."""
        n, ctx = lib.nrl_tensor_numel(self._handle), self._batch._context()
        mat = lib.nrl_tensor_mat(self._pointer)
        if lib.nrl_ctx_host_memory(ctx) and mat.dtype == _lib.DTYPE_F32 and mat.stride == mat.cols:
            values = _lib.view(c_void_p(mat.data), n, "f")
        else:
            values, _ = _lib.floats((n,))
            values[:] = array.array("f", self.tolist()) if _lib.numpy is None else self.tolist()
        shape = self.shape
        if len(shape) == 1:
            return values
        return values.reshape(shape) if _lib.numpy is not None else values.cast("B").cast("f", shape)

    def tolist(self):
        """All values as floats, rows first."""
        n = lib.nrl_tensor_numel(self._handle)
        out = (c_double * max(n, 1))()
        check(lib.nrl_tensor_fetch(self._batch._context(), self._pointer, out, n))
        return out[:n]

    def item(self):
        """The one value of a tensor of one element."""
        values = self.tolist()
        if len(values) != 1:
            raise ConfigError(f"item: expected one element, got {len(values)}")
        return values[0]


def _add_unary(name, op):
    def method(self):
        return self._unary(op)
    method.__name__ = name
    setattr(Tensor, name, method)


for _name, _op in (("exp", _lib.UNARY_EXP), ("log", _lib.UNARY_LOG), ("sqrt", _lib.UNARY_SQRT), ("square", _lib.UNARY_SQUARE),
                   ("reciprocal", _lib.UNARY_RECIPROCAL), ("abs", _lib.UNARY_ABS), ("relu", _lib.UNARY_RELU),
                   ("sigmoid", _lib.UNARY_SIGMOID), ("log_sigmoid", _lib.UNARY_LOG_SIGMOID), ("softplus", _lib.UNARY_SOFTPLUS),
                   ("tanh", _lib.UNARY_TANH), ("expm1", _lib.UNARY_EXPM1), ("log1p", _lib.UNARY_LOG1P)):
    _add_unary(_name, _op)


def where(mask, a, b):
    """a where the mask is not 0, otherwise b; numbers are broadcast to the shape of the mask."""
    zero = mask.greater(mask)  # 0 also for what is not finite
    a, b = (x if isinstance(x, Tensor) else zero + x for x in (a, b))
    return mask._new(lib.nrl_op_where, mask._handle, a._handle, b._handle)


def _array(values, c_type):
    return (c_type * len(values)).from_buffer(values) if len(values) else None


def _flat(values):
    """Numbers of an array, a memoryview, a list or one number, rows first."""
    if isinstance(values, (int, float)):
        return array.array("f", [values])
    if _lib.numpy is not None:
        return array.array("f", _lib.numpy.ascontiguousarray(values, dtype="f4").tobytes())
    return array.array("f", values)


@_lib.BACKWARD_CALL
def _custom_backward(ctx, node):
    """Gives input i its saved gradient, times the gradient of the sum."""
    def walk():
        grad = lib.nrl_tape_grad(node, 0)
        for i in range(_lib.TAPE_MAX_OPERANDS):
            saved = lib.nrl_tape_saved(node, i)
            if not saved or not grad or not lib.nrl_tape_wants(node, i):
                continue
            out = c_void_p()
            _try(lib.nrl_op_binary(ctx, _lib.BINARY_MUL, saved, grad, byref(out)))
            check(lib.nrl_tape_give(ctx, node, i, out))
    return _lib.call(walk)


class Batch:
    """One packed micro-batch: P target positions, S segments (a document, or a side of a pair), B examples.
    In `weight` it has counts only: no forward has run."""

    def __init__(self, loss, ctx, pointer):
        self._loss, self._ctx, self._pointer, self._open = loss, ctx, pointer, True

    def _context(self):
        if not self._open:
            raise ConfigError("this tensor belongs to an earlier step: keep numbers (item(), tolist()), not tensors")
        if not self._ctx:
            raise ConfigError("a weight is computed from counts (b.count), before any forward")
        return self._ctx

    @property
    def _handle(self):
        if not self._open:
            raise ConfigError("this batch belongs to an earlier step")
        return self._pointer

    @property
    def run(self):
        """The run that calls the loss; None in nrl.gradcheck."""
        return running.run

    @property
    def n_tokens(self):
        return lib.nrl_batch_n_tokens(self._handle)

    @property
    def n_targets(self):
        return lib.nrl_batch_n_targets(self._handle)

    @property
    def n_segments(self):
        return lib.nrl_batch_n_segments(self._handle)

    @property
    def n_examples(self):
        return lib.nrl_batch_n_examples(self._handle)

    def count(self, what):
        """A count: answer_tokens, prompt_tokens, sequences, pairs, examples, desirable or tokens."""
        n = lib.nrl_batch_count(self._handle, what.encode())
        if math.isnan(n):
            raise ConfigError(f"count: there is no '{what}', expected one of: {', '.join(_COUNTS)}")
        return n

    # ---- in host memory: read-only views, valid during the call ----

    @property
    def tokens(self):
        return _lib.view(lib.nrl_batch_tokens(self._handle), self.n_tokens, "i")

    @property
    def cu_seqlens(self):
        return _lib.view(lib.nrl_batch_cu_seqlens(self._handle), self.n_segments + 1, "i")

    @property
    def target_ids(self):
        return _lib.view(lib.nrl_batch_target_ids(self._handle), self.n_targets, "i")

    @property
    def target_segments(self):
        return _lib.view(lib.nrl_batch_target_segments(self._handle), self.n_targets, "i")

    @property
    def target_weights(self):
        return _lib.view(lib.nrl_batch_target_weights(self._handle), self.n_targets, "f")

    @property
    def segment_example(self):
        return _lib.view(lib.nrl_batch_segment_example(self._handle), self.n_segments, "i")

    @property
    def segment_side(self):
        return _lib.view(lib.nrl_batch_segment_side(self._handle), self.n_segments, "i")

    def texts(self):
        """The text of each segment's trained tokens, by the run's tokenizer; a list of S."""
        tokenizer = self.run.tokenizer if self.run is not None else None
        if tokenizer is None:
            raise ConfigError("cannot decode a batch: the run has no tokenizer\nhint: model.tokenizer names one")
        ids = [[] for _ in range(self.n_segments)]
        for token, segment, weight in zip(self.target_ids, self.target_segments, self.target_weights):
            if weight:
                ids[segment].append(token)
        return [tokenizer.decode(row, skip_special=True) for row in ids]

    # ---- tensors ----

    def column(self, name):
        """A column that `needs` lists, or a key of data.extra, as a tensor."""
        out = c_void_p()
        check(lib.nrl_batch_column(self._context(), self._handle, name.encode(), byref(out)))
        return Tensor(self, out)

    logps = property(lambda self: self.column("logps"), doc="log p(target | what precedes it), [P]")
    ref_logps = property(lambda self: self.column("ref_logps"), doc="of the reference model, [P]")
    entropy = property(lambda self: self.column("entropy"), doc="[P]")
    weights = property(lambda self: self.column("weights"), doc="of the target positions, [P]; 0 for prompts")

    def tensor(self, values):
        """Numbers as a tensor [n] without a gradient; a tensor as it is."""
        if isinstance(values, Tensor):
            return values
        numbers, out = _flat(values), c_void_p()
        _try(lib.nrl_tensor_from_host(self._context(), _lib.DTYPE_F32, 1, (c_int64 * 1)(len(numbers)), _array(numbers, c_float),
                                      byref(out)))
        return Tensor(self, out)

    def custom(self, values, **grads):
        """A sum computed outside nrl: `values`, one number or an array whose sum it is; for each column by name its
        gradient, an array as long as the column: d sum / d column."""
        numbers = _flat(values)
        total = self.tensor(math.fsum(numbers))
        record = _lib.nrl_tape_record(size=sizeof(_lib.nrl_tape_record), name=b"python", backward=_lib.address(_custom_backward))
        record.outputs[0] = total._pointer
        if len(grads) > _lib.TAPE_MAX_OPERANDS:
            raise ConfigError(f"custom: {len(grads)} gradients, expected at most {_lib.TAPE_MAX_OPERANDS}")
        for i, (name, grad) in enumerate(grads.items()):
            column, given = self.column(name), self.tensor(grad)
            if given.shape != column.shape:
                raise ConfigError(f"custom: the gradient of {name} has {given.shape[0]} values, expected {column.shape[0]}")
            record.inputs[i], record.saved[i] = column._pointer, given._pointer
        _try(lib.nrl_tape_push(self._context(), byref(record)))
        return total

    def seq_sum(self, x):
        """x [P] -> [S]: the sum over each segment's target positions."""
        n = self.n_targets
        if x.shape != (n,):
            raise ConfigError(f"seq_sum: expected one value a target position ({n}), got {x.shape}")
        return x._new(lib.nrl_op_segment_sum, x._handle, lib.nrl_batch_target_segments(self._handle), n, self.n_segments)

    def _side(self, x, side, name):
        index = [s for s, of in enumerate(self.segment_side) if of == side]
        if len(index) != self.count("pairs"):
            raise ConfigError(f"{name}: this batch holds no pairs\nhint: needs=[\"pairs\", ...]")
        return x.gather(index)

    def chosen(self, x):
        """x [S] -> one value per pair."""
        return self._side(x, 0, "chosen")

    def rejected(self, x):
        return self._side(x, 1, "rejected")

    def metric(self, name, x, weight=None):
        """Adds to a metric of the loss; x: a tensor or numbers. A mean is the sum over x / the sum of weights, 1 a value."""
        if name not in self._loss._metrics:
            raise ConfigError(f"this loss has no metric '{name}'\nhint: metrics={{\"{name}\": \"mean\"}}")
        x = self.tensor(x).detach()
        n = lib.nrl_tensor_numel(x._handle)
        _try(lib.nrl_metric_add(self._context(), self._loss._metrics[name], (x.sum() if n != 1 else x)._handle,
                                n if weight is None else weight))


class Loss:
    """A loss for the config's `algorithm`; made by nrl.loss and nrl.reward."""

    def __init__(self, function, name, needs, weight, metrics, terms, tokenwise):
        self.name, self.function, self.terms = name, function, terms
        self._weight = weight
        if isinstance(weight, str) and weight not in _COUNTS:
            raise ConfigError(f"{name}: weight: there is no '{weight}', expected a function or one of: {', '.join(_COUNTS)}")
        if not 1 <= terms <= _lib.MAX_TERMS:
            raise ConfigError(f"{name}: terms: expected 1 to {_lib.MAX_TERMS}")
        columns = [need.encode() for need in needs if need not in _COUNTS]
        rows = [(key, value if isinstance(value, (tuple, list)) else (value, None)) for key, value in (metrics or {}).items()]
        for key, (reduce, better) in rows:
            if reduce not in _REDUCES or better not in _BETTER:
                raise ConfigError(f"{name}: metrics: {key}: expected mean, sum, max or min, or a pair with smaller or larger")
        self._metrics = {key: i for i, (key, _) in enumerate(rows)}
        self._needs = (c_char_p * (len(columns) + 1))(*columns)
        self._rows = (_lib.nrl_metric * (len(rows) + 1))(
            *(_lib.nrl_metric(key.encode(), b"1", _REDUCES[reduce], _BETTER[better]) for key, (reduce, better) in rows))
        self._calls = _lib.WEIGHT_CALL(self._call_weight), _lib.LOSS_CALL(self._call_loss)
        self._failed = None
        t = self._table = _lib.nrl_algorithm()
        t.plugin.abi, t.plugin.build, t.plugin.kind, t.plugin.size = _lib.ABI, _lib.BUILD, _lib.KIND_ALGORITHM, sizeof(t)
        t.plugin.option_size = sizeof(_lib.nrl_option)
        t.plugin.name, t.plugin.version, t.plugin.summary = name.encode(), b"python", b"a loss in Python"
        t.needs, t.metrics = ctypes.cast(self._needs, POINTER(c_char_p)), ctypes.cast(self._rows, POINTER(_lib.nrl_metric))
        t.n_terms, t.tokenwise, t.example_kind = terms, tokenwise, 1 if "pairs" in needs else 0
        t.weight, t.loss = map(_lib.address, self._calls)

    def __call__(self, batch):
        return self.function(batch)

    def __fspath__(self):  # in a dict that becomes a config
        return self.name

    def _results(self, value):
        if not isinstance(value, (tuple, list)):
            value = (value,)
        if len(value) != self.terms:
            raise ConfigError(f"{self.name}: expected {self.terms} results (terms={self.terms}), got {len(value)}")
        return value

    def _call_weight(self, _self, batch, out):
        """It cannot fail: an error is kept for the loss that follows."""
        b = Batch(self, None, batch)
        for k in range(self.terms):
            out[k] = 1.0
        try:
            value = b.count(self._weight) if isinstance(self._weight, str) else self._weight(b)
            if isinstance(self._weight, str):
                value = (value,) * self.terms
            for k, weight in enumerate(self._results(value)):
                if not math.isfinite(weight) or weight < 0:
                    raise ConfigError(f"{self.name}: a weight is a number of 0 or more, got {weight}")
                out[k] = weight
        except BaseException as error:  # noqa: B902
            self._failed = error
        b._open = False

    def _call_loss(self, _self, ctx, batch, sums):
        if self._failed is not None:
            error, self._failed = self._failed, None
            return _lib.keep(error)
        b = Batch(self, ctx, batch)
        try:
            return _lib.call(self._take, b, sums)
        finally:
            b._open = False

    def _take(self, b, sums):
        for k, value in enumerate(self._results(self.function(b))):
            value = b.tensor(value)
            n = lib.nrl_tensor_numel(value._handle)
            if n != 1:
                raise ConfigError(f"{self.name}: a loss returns one number, got {n}\n"
                                  "hint: end it with .sum(); the run divides by the weight")
            if value.shape != (1,):
                value = value._new(lib.nrl_op_reshape, value._handle, 1, (c_int64 * 1)(1))
            sums[k] = value._pointer.value


def loss(function=None, *, name=None, needs=("logps",), weight="answer_tokens", metrics=None, terms=1, tokenwise=False):
    """A decorator: a function of a Batch becomes a loss, named as the function is.

    needs: columns that the function reads: "logps", "ref_logps", "entropy", "prompt_targets"; "pairs": examples are pairs.
    weight: what the sum is divided by, a word of Batch.count or a function of the batch. metrics: {"margin": "mean"}, or
    ("mean", "larger") where larger is better. terms: how many sums it returns, a list then. tokenwise: it is a sum over target
    positions, so it may be called with parts of a batch."""
    def make(f):
        return Loss(f, name or f.__name__, needs, weight, metrics, terms, tokenwise)
    return make if function is None else make(function)


def reward(function=None, *, name=None, baseline=0.0):
    """A decorator: a function of a text becomes a loss, -(reward - baseline) * log p(text) of each sample's trained text, over
    the number of samples (REINFORCE on the rows of data.train). The metric "reward" is the mean."""
    def make(f):
        def policy_gradient(b):
            rewards = [float(f(text)) for text in b.texts()]
            b.metric("reward", rewards)
            return (b.seq_sum(b.logps * b.weights) * b.tensor([baseline - r for r in rewards])).sum()
        return Loss(policy_gradient, name or f.__name__, ("logps",), "sequences", {"reward": ("mean", "larger")}, 1, False)
    return make if function is None else make(function)


def gradcheck(loss, extra=(), backend="cpu", tolerance=0.0, plugin_path=None):
    """Compares a loss's gradient with finite differences on a small made-up batch, and checks that it is a sum over examples.
    Returns the largest difference. ConfigError names what differs."""
    names = (c_char_p * max(len(extra), 1))(*(key.encode() for key in extra))
    options = _lib.nrl_gradcheck_options(size=sizeof(_lib.nrl_gradcheck_options), n_extra=len(extra), backend=backend.encode(),
                                         extra=ctypes.cast(names, POINTER(c_char_p)), tolerance=tolerance)
    worst, env = c_double(), _lib.environment(plugin_path)
    check(_lib.testing().nrl_gradcheck(byref(env), byref(loss._table), None, byref(options), byref(worst)))
    return worst.value
