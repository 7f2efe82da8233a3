"""The ctypes declarations of libnrl: the structs and functions of <nrl/...> that this package uses, and errors as exceptions.

Structs have the names and the members of the C headers; tests/python/layout.py compares every size and offset with what a C
compiler says.
"""
import ctypes
import functools
import os
import pathlib
import shutil
import threading
from ctypes import (CFUNCTYPE, POINTER, Structure, c_bool, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t,
                    c_uint32, c_uint64, c_void_p)

try:
    import numpy
except ImportError:
    numpy = None

# ---- where the library is ----


def _candidates():
    named = os.environ.get("NRL_LIBRARY")
    if named:
        yield pathlib.Path(named)
        return
    program = shutil.which("nrl")
    roots = list(pathlib.Path(__file__).resolve().parents)[1:7]  # PREFIX/lib/python3/dist-packages/nrl
    if program:
        roots.append(pathlib.Path(program).resolve().parents[1])
    for root in roots:
        yield root / "lib" / "libnrl.so.0"
        yield from sorted(root.glob("lib/*-linux-gnu/libnrl.so.0"))
        yield root / "lib64" / "libnrl.so.0"


def _load():
    """libnrl-inference, which is installed beside libnrl and also provides the functions of libnrl."""
    for path in _candidates():
        if path.exists() or "NRL_LIBRARY" in os.environ:
            return ctypes.CDLL(str(path.parent / "libnrl-inference.so.0"))
    try:
        return ctypes.CDLL("libnrl-inference.so.0")
    except OSError as why:
        raise ImportError(f"cannot find libnrl: {why}; expected it beside this package, beside the program nrl on PATH, "
                          "or named by NRL_LIBRARY") from None


# GNU's OpenMP runtime spins at every barrier, which slows other threads of this process. It reads this when a backend is opened.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
lib = _load()
libc = ctypes.CDLL(None)
getenv = ctypes.cast(libc.getenv, c_void_p).value

# ---- constants ----

(OK, ERR_CONFIG, ERR_DATA, ERR_PLUGIN, ERR_IO, ERR_FULL, ERR_DEVICE, ERR_MEMORY, ERR_PEER, ERR_DIVERGED, ERR_CORRUPT, ERR_STOPPED,
 ERR_BUG) = range(13)
(EVENT_NONE, EVENT_PLAN, EVENT_STEP, EVENT_EVAL, EVENT_BEFORE_SAVE, EVENT_SAVE, EVENT_INFO, EVENT_WARNING, EVENT_END,
 EVENT_SAMPLES) = range(10)
(DTYPE_NONE, DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_F64, DTYPE_I32, DTYPE_I64, DTYPE_U8, DTYPE_U16) = range(9)
(UNARY_NONE, UNARY_NEG, UNARY_EXP, UNARY_LOG, UNARY_SQRT, UNARY_SQUARE, UNARY_RECIPROCAL, UNARY_ABS, UNARY_RELU, UNARY_SIGMOID,
 UNARY_LOG_SIGMOID, UNARY_SOFTPLUS, UNARY_TANH, UNARY_SILU, UNARY_GELU, UNARY_GELU_TANH, UNARY_EXPM1, UNARY_LOG1P, UNARY_AFFINE,
 UNARY_CLAMP, UNARY_POW) = range(21)
(BINARY_NONE, BINARY_ADD, BINARY_SUB, BINARY_MUL, BINARY_DIV, BINARY_MIN, BINARY_MAX, BINARY_GREATER) = range(8)
(REDUCE_NONE, REDUCE_MEAN, REDUCE_SUM, REDUCE_MAX, REDUCE_MIN) = range(5)
(BETTER_NONE, BETTER_SMALLER, BETTER_LARGER) = range(3)
ENCODE_ADD_SPECIAL, ENCODE_SPECIAL_AS_TEXT = 1, 2
NODE_NULL, NODE_MAP = 1, 7
KIND_ALGORITHM = 1
ABI, BUILD = 3, 4
MAX_DIMS, MAX_TERMS, TAPE_MAX_OPERANDS = 4, 4, 8

# ---- structs ----

status = c_int  # enum nrl_status


class nrl_value(Structure):
    _fields_ = [("name", c_char_p), ("unit", c_char_p), ("value", c_double)]


class nrl_sample_text(Structure):
    _fields_ = [("prompt", c_char_p), ("text", c_char_p), ("answer", c_char_p), ("tokens", c_int64), ("index", c_int32),
                ("is_cut", c_bool), ("score", POINTER(c_double))]


class nrl_run_event(Structure):
    _fields_ = [("size", c_uint32), ("kind", c_uint32), ("step", c_int64), ("loss", c_double), ("grad_norm", c_double),
                ("lr", c_double), ("epoch", c_double), ("tokens", c_double), ("tokens_per_s", c_double), ("seconds", c_double),
                ("skipped", c_bool), ("values", POINTER(nrl_value)), ("n_values", c_size_t), ("text", c_char_p),
                ("path", c_char_p), ("plan", c_void_p), ("samples", POINTER(nrl_sample_text)), ("n_samples", c_size_t)]


class nrl_environment(Structure):
    _fields_ = [("size", c_uint32), ("terminal", c_bool), ("color", c_bool), ("quiet", c_bool), ("check_only", c_bool),
                ("no_output", c_bool), ("evaluate_only", c_bool), ("no_config_plugins", c_bool), ("plugin_path", c_char_p),
                ("exe_dir", c_char_p), ("variable", c_void_p), ("public_key", c_char_p), ("weights", c_char_p),
                ("script", c_char_p), ("script_hash", c_char_p), ("script_modules", c_char_p), ("frontend", c_char_p),
                ("find_algorithm", c_void_p), ("algorithm_user", c_void_p), ("event", c_void_p), ("takes_warnings", c_bool),
                ("event_user", c_void_p), ("signal", POINTER(c_int)), ("step", POINTER(c_int64)), ("ranks", c_void_p),
                ("session", c_void_p), ("user_plugins", c_char_p), ("services", c_void_p),
                ("dry_run", c_void_p)]


class nrl_sample_options(Structure):
    _fields_ = [("size", c_uint32), ("chat", c_bool), ("keep_special", c_bool), ("max_tokens", c_int64),
                ("temperature", c_double), ("top_p", c_double), ("seed", c_uint64), ("token", c_void_p),
                ("token_user", c_void_p), ("top_k", c_int64), ("min_p", c_double), ("repetition_penalty", c_double),
                ("stop", POINTER(c_char_p)), ("n_stop", c_size_t), ("conversations", c_void_p), ("n", c_int64),
                ("top_logprobs", c_int64), ("logprobs", c_bool), ("fits_context", c_bool)]


class nrl_sampled_token(Structure):
    _fields_ = [("size", c_uint32), ("id", c_int32), ("text", c_size_t), ("n_top", c_size_t), ("piece", POINTER(ctypes.c_char)),
                ("piece_size", c_size_t), ("finish", c_uint32), ("logp", ctypes.c_float), ("top_ids", POINTER(c_int32)),
                ("top_logps", POINTER(ctypes.c_float))]


class nrl_inference_options(Structure):
    _fields_ = [("size", c_uint32), ("precision", c_uint32), ("backend", c_char_p), ("scores", c_bool)]


class nrl_inference_info(Structure):
    _fields_ = [("size", c_uint32), ("vocab_size", c_int32), ("max_positions", c_int64), ("parameters", c_int64),
                ("config", c_void_p), ("tokenizer", c_char_p), ("backend", c_char_p), ("precision", c_uint32), ("step", c_int64)]


class nrl_export_options(Structure):
    _fields_ = [("size", c_uint32), ("dtype", c_uint32), ("adapters", c_bool), ("overwrite", c_bool), ("format", c_char_p),
                ("encoding", c_char_p), ("used_dtype", POINTER(c_uint32)), ("card", c_char_p)]


class nrl_token_ids(Structure):
    _fields_ = [("ids", POINTER(c_int32)), ("starts", POINTER(c_size_t)), ("n", c_size_t), ("room", c_size_t),
                ("want_starts", c_bool)]


class nrl_tokenizer_info(Structure):
    _fields_ = [("size", c_uint32), ("vocab_size", c_int32), ("bos", c_int32), ("eos", c_int32), ("pad", c_int32),
                ("adds_bos", c_bool), ("adds_eos", c_bool), ("space_after_special", c_bool), ("space_before_text", c_bool),
                ("eos_ids", POINTER(c_int32)), ("n_eos", c_size_t), ("hash", c_char_p), ("folder", c_char_p),
                ("chat_template", c_char_p), ("tools_template", c_char_p), ("named", c_void_p), ("n_named", c_uint32),
                ("named_size", c_uint32), ("stream_room", c_size_t), ("files", POINTER(c_char_p))]


class nrl_open_tokenizer(Structure):
    _fields_ = [("size", c_uint32), ("table", c_void_p), ("self", c_void_p), ("info", POINTER(nrl_tokenizer_info))]


class nrl_checkpoint_info(Structure):
    _fields_ = [("size", c_uint32), ("world", c_int32), ("dir", c_char_p), ("step", c_int64), ("bytes", c_int64),
                ("n_tensors", c_int64), ("metric", c_double), ("is_signed", c_bool)]


class nrl_checkpoint_tensor(Structure):
    _fields_ = [("size", c_uint32), ("dtype", c_uint32), ("name", c_char_p), ("slot", c_char_p), ("n_dims", c_int32),
                ("n_shards", c_int32), ("dims", c_int64 * MAX_DIMS), ("bytes", c_int64), ("stored_bytes", c_int64)]


class nrl_mat(Structure):
    _fields_ = [("data", c_void_p), ("dtype", c_uint32), ("reserved", c_uint32), ("rows", c_int64), ("cols", c_int64),
                ("stride", c_int64)]


class nrl_plugin(Structure):
    _fields_ = [("abi", c_uint32), ("build", c_uint32), ("kind", c_uint32), ("size", c_uint32), ("n_options", c_uint32),
                ("option_size", c_uint32), ("options_size", c_uint32), ("priority", c_int32), ("name", c_char_p),
                ("version", c_char_p), ("summary", c_char_p), ("options", c_void_p), ("check", c_void_p),
                ("metrics", c_void_p), ("reserved", c_void_p * 3)]


class nrl_option(Structure):
    _fields_ = [("name", c_char_p), ("initial", c_char_p), ("choices", c_char_p), ("help", c_char_p), ("min", c_double),
                ("max", c_double), ("offset", c_uint32), ("type", c_uint32)]


class nrl_metric(Structure):
    _fields_ = [("name", c_char_p), ("unit", c_char_p), ("reduce", c_uint32), ("better", c_uint32)]


class nrl_algorithm(Structure):
    _fields_ = [("plugin", nrl_plugin), ("needs", POINTER(c_char_p)), ("metrics", POINTER(nrl_metric)), ("n_terms", c_uint32),
                ("tokenwise", c_bool), ("example_kind", c_uint32), ("create", c_void_p), ("destroy", c_void_p),
                ("weight", c_void_p), ("loss", c_void_p), ("step_end", c_void_p), ("state", c_void_p),
                ("instance_needs", c_void_p), ("initial_loss", c_void_p), ("group", c_void_p), ("detaches", c_void_p),
                ("model", c_void_p), ("bind", c_void_p), ("rollout", c_void_p), ("rollout_columns", POINTER(c_char_p)),
                ("best", POINTER(nrl_metric)), ("updates", c_void_p), ("couples", c_void_p),
                ("instance_metrics", c_void_p), ("open", c_void_p)]


class nrl_tape_record(Structure):
    _fields_ = [("size", c_uint32), ("name", c_char_p), ("inputs", c_void_p * TAPE_MAX_OPERANDS),
                ("outputs", c_void_p * TAPE_MAX_OPERANDS), ("saved", c_void_p * TAPE_MAX_OPERANDS), ("attributes", c_void_p),
                ("attributes_size", c_size_t), ("backward", c_void_p)]


class nrl_gradcheck_options(Structure):
    _fields_ = [("size", c_uint32), ("n_extra", c_uint32), ("backend", c_char_p), ("extra", POINTER(c_char_p)),
                ("tolerance", c_double)]


STRUCTS = [nrl_value, nrl_sample_text, nrl_run_event, nrl_environment, nrl_sample_options, nrl_sampled_token, nrl_inference_options,
           nrl_inference_info,
           nrl_export_options, nrl_token_ids, nrl_tokenizer_info, nrl_open_tokenizer, nrl_checkpoint_info, nrl_checkpoint_tensor, nrl_mat, nrl_plugin, nrl_option,
           nrl_metric, nrl_algorithm, nrl_tape_record, nrl_gradcheck_options]

# ---- callbacks ----

EVENT_CALL = CFUNCTYPE(status, c_void_p, c_void_p, POINTER(nrl_run_event))
FIND_CALL = CFUNCTYPE(c_void_p, c_void_p, c_char_p, POINTER(c_void_p))
TOKEN_CALL = CFUNCTYPE(status, c_void_p, POINTER(nrl_sampled_token))
WEIGHT_CALL = CFUNCTYPE(None, c_void_p, c_void_p, POINTER(c_double))
LOSS_CALL = CFUNCTYPE(status, c_void_p, c_void_p, c_void_p, POINTER(c_void_p))
BACKWARD_CALL = CFUNCTYPE(status, c_void_p, c_void_p)


def address(callback):
    """The address of a CFUNCTYPE object, for a member of a struct; keep the object alive."""
    return ctypes.cast(callback, c_void_p).value


# ---- functions ----

_P = c_void_p
_PP = POINTER(c_void_p)
_ENV = POINTER(nrl_environment)
_I32S, _I64S, _F32S = POINTER(c_int32), POINTER(c_int64), POINTER(c_float)
_SIGNATURES = {
    # status.h, node.h
    "nrl_fail": (status, [c_int, c_char_p, c_char_p]),
    "nrl_error_text": (c_char_p, []),
    "nrl_free": (None, [_P]),
    "nrl_version": (c_char_p, []),
    "nrl_arena_create": (_P, []),
    "nrl_arena_destroy": (None, [_P]),
    "nrl_json_parse": (status, [_P, c_char_p, c_char_p, c_size_t, _PP]),
    "nrl_json_write": (_P, [_P, c_int]),
    "nrl_yaml_value": (status, [_P, c_char_p, c_char_p, _PP]),
    "nrl_node_kind": (c_int, [_P]),
    "nrl_node_find": (_P, [_P, c_char_p]),
    "nrl_node_put": (None, [_P, _P, c_char_p, _P]),
    "nrl_plan_text": (_P, [_P]),
    # run.h
    "nrl_config_create": (_P, [_P]),
    "nrl_config_destroy": (None, [_P]),
    "nrl_config_read": (status, [_P, c_char_p]),
    "nrl_config_set_root": (None, [_P, _P]),
    "nrl_config_root": (_P, [_P]),
    "nrl_config_override": (None, [_P, c_char_p]),
    "nrl_config_substitute": (None, [_P, _P]),
    "nrl_run_open": (status, [_P, _ENV, _PP]),
    "nrl_run_close": (None, [_P]),
    "nrl_run_abandon": (None, [_P, status, c_char_p]),
    "nrl_run_step": (status, [_P, POINTER(nrl_run_event), POINTER(c_bool)]),
    "nrl_run_finish": (status, [_P]),
    "nrl_run_stop": (None, [_P, c_char_p]),
    "nrl_run_set_lr": (None, [_P, c_double]),
    "nrl_run_set_data": (status, [_P, _P]),
    "nrl_run_report": (None, [_P, c_char_p, c_char_p, c_double]),
    "nrl_run_steps_done": (c_int64, [_P]),
    "nrl_run_total_steps": (c_int64, [_P]),
    "nrl_run_config": (_P, [_P]),
    "nrl_run_out": (c_char_p, [_P]),
    "nrl_run_evaluate": (status, [_P, c_char_p, POINTER(POINTER(nrl_value)), POINTER(c_size_t)]),
    "nrl_run_save": (status, [_P, POINTER(c_char_p)]),
    "nrl_run_export": (status, [_P, c_char_p]),
    "nrl_run_sample": (status, [_P, POINTER(c_char_p), c_size_t, POINTER(nrl_sample_options), _PP, _I64S]),
    "nrl_run_state": (c_char_p, [_P]),
    "nrl_run_set_state": (None, [_P, c_char_p]),
    # inference.h
    "nrl_inference_services": (_P, []),
    "nrl_run_logits": (status, [_P, _I32S, _I64S, c_size_t, _F32S]),
    "nrl_run_logps": (status, [_P, _I32S, _I64S, c_size_t, _F32S]),
    "nrl_run_vocab_size": (c_int32, [_P]),
    "nrl_run_tokenizer": (_P, [_P]),
    "nrl_inference_open_with": (status, [c_char_p, _ENV, POINTER(nrl_inference_options), _PP]),
    "nrl_inference_close": (None, [_P]),
    "nrl_inference_info_fill": (None, [_P, POINTER(nrl_inference_info)]),
    "nrl_inference_logits": (status, [_P, _I32S, _I64S, c_size_t, _F32S]),
    "nrl_inference_logps": (status, [_P, _I32S, _I64S, c_size_t, _F32S]),
    "nrl_inference_set_template": (status, [_P, c_char_p]),
    "nrl_inference_sample": (status, [_P, POINTER(c_char_p), c_size_t, POINTER(nrl_sample_options), _PP, _I64S]),
    "nrl_inference_tokenizer": (_P, [_P]),
    "nrl_export": (status, [c_char_p, _ENV, c_char_p, POINTER(nrl_export_options)]),
    "nrl_import": (status, [c_char_p, _ENV, c_char_p]),
    "nrl_tokenizer_open": (status, [c_char_p, c_char_p, _ENV, _PP]),
    "nrl_tokenizer_close": (None, [_P]),
    "nrl_tokenizer_encode": (status, [_P, _P, c_char_p, c_size_t, c_uint32, POINTER(nrl_token_ids)]),
    "nrl_tokenizer_decode": (status, [_P, _I32S, c_size_t, c_bool, _PP, POINTER(c_size_t)]),
    "nrl_token_ids_free": (None, [POINTER(nrl_token_ids)]),
    # checkpoint.h
    "nrl_checkpoint_open": (status, [c_char_p, c_char_p, _PP]),
    "nrl_checkpoint_close": (None, [_P]),
    "nrl_checkpoint_info_fill": (None, [_P, POINTER(nrl_checkpoint_info)]),
    "nrl_checkpoint_node": (_P, [_P, c_char_p]),
    "nrl_checkpoint_tensor_fill": (None, [_P, c_int64, POINTER(nrl_checkpoint_tensor)]),
    "nrl_checkpoint_find": (c_int64, [_P, c_char_p, c_char_p]),
    "nrl_checkpoint_read": (status, [_P, c_int64, c_int64, c_int64, _P]),
    "nrl_dtype_name": (c_char_p, [c_int]),
    "nrl_dtype_size": (c_size_t, [c_int]),
    "nrl_dtype_f64": (c_double, [c_int, _P]),
    # tensor.h, batch.h, op.h, tape.h, algorithm.h, host.h
    "nrl_tensor_dtype": (c_int, [_P]),
    "nrl_tensor_n_dims": (c_int, [_P]),
    "nrl_tensor_dim": (c_int64, [_P, c_int]),
    "nrl_tensor_numel": (c_int64, [_P]),
    "nrl_tensor_mat": (nrl_mat, [_P]),
    "nrl_tensor_from_host": (status, [_P, c_int, c_int, _I64S, _P, _PP]),
    "nrl_tensor_fetch": (status, [_P, _P, POINTER(c_double), c_int64]),
    "nrl_ctx_host_memory": (c_bool, [_P]),
    "nrl_batch_n_tokens": (c_int64, [_P]),
    "nrl_batch_n_targets": (c_int64, [_P]),
    "nrl_batch_n_segments": (c_int64, [_P]),
    "nrl_batch_n_examples": (c_int64, [_P]),
    "nrl_batch_tokens": (_I32S, [_P]),
    "nrl_batch_cu_seqlens": (_I32S, [_P]),
    "nrl_batch_target_ids": (_I32S, [_P]),
    "nrl_batch_target_segments": (_I32S, [_P]),
    "nrl_batch_target_weights": (_F32S, [_P]),
    "nrl_batch_segment_example": (_I32S, [_P]),
    "nrl_batch_segment_side": (_I32S, [_P]),
    "nrl_batch_count": (c_double, [_P, c_char_p]),
    "nrl_batch_column": (status, [_P, _P, c_char_p, _PP]),
    "nrl_op_unary": (status, [_P, c_int, _P, c_double, c_double, _PP]),
    "nrl_op_binary": (status, [_P, c_int, _P, _P, _PP]),
    "nrl_op_where": (status, [_P, _P, _P, _P, _PP]),
    "nrl_op_detach": (status, [_P, _P, _PP]),
    "nrl_op_sum": (status, [_P, _P, _PP]),
    "nrl_op_mean": (status, [_P, _P, _PP]),
    "nrl_op_reshape": (status, [_P, _P, c_int, _I64S, _PP]),
    "nrl_op_gather_rows": (status, [_P, _P, _I32S, c_int64, _PP]),
    "nrl_op_segment_sum": (status, [_P, _P, _I32S, c_int64, c_int64, _PP]),
    "nrl_tape_push": (status, [_P, POINTER(nrl_tape_record)]),
    "nrl_tape_saved": (_P, [_P, c_int]),
    "nrl_tape_grad": (_P, [_P, c_int]),
    "nrl_tape_wants": (c_bool, [_P, c_int]),
    "nrl_tape_give": (status, [_P, _P, c_int, _P]),
    "nrl_metric_add": (status, [_P, c_uint32, _P, c_double]),
}
for _name, (_result, _arguments) in _SIGNATURES.items():
    _function = getattr(lib, _name)
    _function.restype, _function.argtypes = _result, _arguments


@functools.cache
def testing():
    """libnrl-testing (nrl/harness.h), which is installed beside libnrl."""
    library = ctypes.CDLL(os.path.join(os.path.dirname(lib._name), "libnrl-testing.so.0"))
    library.nrl_gradcheck.restype = status
    library.nrl_gradcheck.argtypes = [_ENV, POINTER(nrl_algorithm), _P, POINTER(nrl_gradcheck_options), POINTER(c_double)]
    return library


__version__ = lib.nrl_version().decode()

# ---- errors ----


class Error(Exception):
    """An error of nrl; str() is its message, with a line `hint: ...` if there is a next step."""

    status = ERR_BUG


class ConfigError(Error, ValueError):
    """A mistake in the config or in an argument."""

    status = ERR_CONFIG


class DataError(Error, ValueError):
    """A mistake in a row of a data set, a model file or a tokenizer."""

    status = ERR_DATA


class PluginError(Error):
    """A plugin cannot be used."""

    status = ERR_PLUGIN


class FileError(Error, OSError):
    """An error of the file system."""

    status = ERR_IO


class DiskFullError(FileError):
    """The disk is full."""

    status = ERR_FULL


class DeviceError(Error):
    """An error of an accelerator."""

    status = ERR_DEVICE


class OutOfMemoryError(Error, MemoryError):
    """Out of host or device memory."""

    status = ERR_MEMORY


class PeerError(Error, ConnectionError):
    """Another rank was lost."""

    status = ERR_PEER


class DivergedError(Error, ArithmeticError):
    """The run diverged: the loss or the gradient is not finite, or the loss is far above the first loss."""

    status = ERR_DIVERGED


class CorruptError(Error):
    """A checkpoint is corrupt."""

    status = ERR_CORRUPT


class StoppedError(Error):
    """A signal stopped the run; its state is saved."""

    status = ERR_STOPPED


_BY_STATUS = {c.status: c for c in (ConfigError, DataError, PluginError, FileError, DiskFullError, DeviceError, OutOfMemoryError,
                                    PeerError, DivergedError, CorruptError, StoppedError)}
_raised = threading.local()  # what a callback of this thread raised; C passes it on as a status, or ignores it


def call(function, *arguments):
    """Calls a callback's Python side; an exception becomes a status, and check() raises it again."""
    try:
        function(*arguments)
        return OK
    except BaseException as error:  # noqa: B902 - nothing may unwind through C
        return keep(error)


def keep(error):
    _raised.error = error
    code = error.status if isinstance(error, Error) else ERR_CONFIG
    return lib.nrl_fail(code, b"%s", f"{type(error).__name__}: {error}".encode())


def check(code):
    """Raises what a status means: the exception of a callback as it was, also if C has ignored it, else nrl's error."""
    error, _raised.error = getattr(_raised, "error", None), None
    if error is not None:
        raise error
    if code != OK:
        raise _BY_STATUS.get(code, Error)(lib.nrl_error_text().decode(errors="replace"))


# ---- small conversions ----


def path(value):
    return None if value is None else os.fsencode(value)


def text(value):
    return None if value is None else str(value).encode()


def allocated_text(pointer):
    """The text of an allocated pointer, which is freed."""
    try:
        return ctypes.string_at(pointer).decode(errors="replace")
    finally:
        lib.nrl_free(pointer)


class Arena:
    """Memory of trees that are passed to the library; freed with the object."""

    def __init__(self):
        self.pointer = lib.nrl_arena_create()

    def __del__(self):
        lib.nrl_arena_destroy(self.pointer)


def tree(node):
    """A borrowed nrl_node as Python values."""
    import json
    return json.loads(allocated_text(lib.nrl_json_write(node, 0))) if node else None


def values(rows, n):
    return {rows[i].name.decode(): rows[i].value for i in range(n)}


def floats(shape):
    """A new writable buffer of f32 and its address: a numpy array, else a memoryview."""
    n = 1
    for size in shape:
        n *= size
    if numpy is not None:
        array = numpy.empty(shape, dtype=numpy.float32)
        return array, array.ctypes.data_as(_F32S)
    buffer = (c_float * max(n, 1))()
    if n == 0:
        return memoryview(b"").cast("f"), buffer
    return memoryview(buffer).cast("B").cast("f", tuple(shape)), ctypes.cast(buffer, _F32S)


def view(pointer, n, kind):
    """n borrowed elements in C's memory, read-only: kind "i" or "f"."""
    if n == 0:
        empty = memoryview(b"").cast(kind)
        return numpy.asarray(empty) if numpy is not None else empty
    c_type = c_int32 if kind == "i" else c_float
    memory = memoryview((c_type * n).from_address(ctypes.cast(pointer, c_void_p).value)).cast("B").cast(kind).toreadonly()
    return numpy.frombuffer(memory, dtype=kind + "4") if numpy is not None else memory


class _stack_t(Structure):
    _fields_ = [("ss_sp", c_void_p), ("ss_flags", c_int), ("ss_size", c_size_t)]


_SS_DISABLE = 2
_signal_stacks = []  # in use until the process ends


def _use_own_signal_stack():
    """Signal handlers of this thread run on a stack of their own, unless they have one. oneDNN's generated code uses memory below
    the stack pointer, beyond the 128 bytes that a signal preserves; a handler's frame there would corrupt the heap. Python installs
    its handlers with SA_ONSTACK."""
    stack = _stack_t()
    if libc.sigaltstack(None, ctypes.byref(stack)) or not stack.ss_flags & _SS_DISABLE:
        return
    memory = ctypes.create_string_buffer(1 << 16)
    _signal_stacks.append(memory)
    libc.sigaltstack(ctypes.byref(_stack_t(ctypes.addressof(memory), 0, len(memory))), None)


def environment(plugin_path=None, public_key=None):
    """For nrl_inference_open and the like."""
    _use_own_signal_stack()
    env = nrl_environment(size=ctypes.sizeof(nrl_environment), variable=getenv)
    env.plugin_path = path(plugin_path if plugin_path is not None else os.environ.get("NRL_PLUGIN_PATH") or None)
    data = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    env.user_plugins = path(os.path.join(data, "nrl", "plugins") if os.path.isabs(data) else None)
    env.public_key = path(public_key)
    env.services = lib.nrl_inference_services()
    return env
