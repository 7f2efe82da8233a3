"""Models, tokenizers and checkpoints on disk: nrl/inference.h and nrl/checkpoint.h."""
import array
import ctypes
import json
from ctypes import POINTER, byref, c_char_p, c_int32, c_int64, c_size_t, c_void_p, cast, sizeof

from . import _lib
from ._lib import check, lib


class Tokenizer:
    """The tokenizer of a file or directory, or of an open model or run."""

    def __init__(self, path, plugin=None, plugin_path=None):
        pointer = c_void_p()
        self._env = _lib.environment(plugin_path)
        self._owned = False
        check(lib.nrl_tokenizer_open(_lib.path(path), _lib.text(plugin), byref(self._env), byref(pointer)))
        self._pointer, self._owner, self._owned = pointer, None, True

    @classmethod
    def _borrowed(cls, pointer, owner):
        self = cls.__new__(cls)
        self._pointer, self._owner, self._owned = c_void_p(pointer), owner, False
        return self

    def close(self):
        if self._owned:
            lib.nrl_tokenizer_close(self._pointer)
        self._owned, self._pointer = False, None

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def __del__(self):
        self.close()

    @property
    def _handle(self):
        if self._pointer is None or (self._owner is not None and self._owner._pointer is None):
            raise ValueError("this tokenizer is closed")
        return self._pointer

    @property
    def _info(self):
        return cast(self._handle, POINTER(_lib.nrl_open_tokenizer)).contents.info.contents

    @property
    def vocab_size(self):
        return self._info.vocab_size

    @property
    def bos(self):
        return None if self._info.bos < 0 else self._info.bos

    @property
    def eos(self):
        return None if self._info.eos < 0 else self._info.eos

    @property
    def pad(self):
        return None if self._info.pad < 0 else self._info.pad

    @property
    def hash(self):
        return self._info.hash.decode()

    def encode(self, text, special=False, special_as_text=False):
        """Returns the ids of a text. `special`: adds BOS and EOS as the tokenizer does; `special_as_text`: the text of a special
        token in it is read as characters."""
        ids = _lib.nrl_token_ids()
        data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
        flags = (_lib.ENCODE_ADD_SPECIAL if special else 0) | (_lib.ENCODE_SPECIAL_AS_TEXT if special_as_text else 0)
        try:
            check(lib.nrl_tokenizer_encode(self._handle, None, data, len(data), flags, byref(ids)))
            return ids.ids[:ids.n]
        finally:
            lib.nrl_token_ids_free(byref(ids))

    def decode(self, ids, skip_special=False):
        ids = _ids(ids)
        out, size = c_void_p(), c_size_t()
        check(lib.nrl_tokenizer_decode(self._handle, _address(ids), len(ids), skip_special, byref(out), byref(size)))
        try:
            return ctypes.string_at(out, size.value).decode(errors="replace")
        finally:
            lib.nrl_free(out)


def _ids(ids):
    """An int32 array in Python's memory."""
    if isinstance(ids, (bytes, str)):
        raise TypeError("expected token ids, got text; a tokenizer's encode() makes ids of it")
    return array.array("i", (int(i) for i in ids))


def _address(ids):
    return (c_int32 * len(ids)).from_buffer(ids) if len(ids) else None


def packed_values(call, ids, width):
    """`ids` is a sequence of ids or a list of such. call(ids, lengths, n, out) fills a packed buffer of `width` values a token
    (0: one number); returns its parts."""
    ids = list(ids)
    alone = not ids or not hasattr(ids[0], "__len__")
    rows = [_ids(row) for row in ([ids] if alone else ids)]
    lengths = (c_int64 * len(rows))(*(len(row) for row in rows))
    all_ids = array.array("i")
    for row in rows:
        all_ids.extend(row)
    total = len(all_ids)
    out, address = _lib.floats((total, width) if width else (total,))
    check(call(_address(all_ids), lengths, len(rows), address))
    parts, at = [], 0
    for row in rows:
        if _lib.numpy is not None or not width:
            part = out[at:at + len(row)]
        else:  # a memoryview of two dimensions has no slices
            flat = out.cast("B").cast("f")[at * width:(at + len(row)) * width]
            part = flat.cast("B").cast("f", (len(row), width))
        parts.append(part)
        at += len(row)
    return parts[0] if alone else parts


def _conversations(rows):
    """Conversations as an array of trees and the arena that holds them."""
    memory = _lib.Arena()
    nodes = (c_void_p * len(rows))()
    for i, row in enumerate(rows):
        text = json.dumps(row).encode()
        node = c_void_p()
        check(lib.nrl_json_parse(memory.pointer, b"conversation", text, len(text), byref(node)))
        nodes[i] = node
    return nodes, memory


class Sample(str):
    """A text that was generated, with its tokens: `ids`; `finish`, "stop" or "length"; with `logprobs` the log-prob of each
    token, and in `top` its most likely alternatives, {id: log-prob}."""

    def __new__(cls, text, prompt_index, tokens, finish, has_logprobs):
        self = super().__new__(cls, text)
        self.prompt_index, self.finish = prompt_index, finish
        self.ids = [token[0] for token in tokens]
        self.logprobs = [token[1] for token in tokens] if has_logprobs else None
        self.top = [token[2] for token in tokens] if has_logprobs else None
        return self


def sampled(call, prompts, max_tokens=64, temperature=0.0, top_p=1.0, seed=0, chat=False, keep_special=False, on_token=None, top_k=0,
            min_p=0.0, repetition_penalty=1.0, stop=(), n=1, logprobs=None):
    """call(prompts, n, options, texts, counts) of nrl_run_sample and nrl_inference_sample."""
    is_chat = isinstance(prompts, dict) or (isinstance(prompts, list) and prompts and isinstance(prompts[0], (dict, list)))
    alone = isinstance(prompts, (str, bytes, dict)) or (is_chat and isinstance(prompts[0], dict) and "role" in prompts[0])
    rows = [prompts] if alone else list(prompts)
    if n < 1:
        raise ValueError(f"n is {n}, expected 1 or more")
    n_texts = len(rows) * n
    stops = [s.encode() for s in ([stop] if isinstance(stop, str) else stop)]
    options = _lib.nrl_sample_options(size=sizeof(_lib.nrl_sample_options), chat=chat, keep_special=keep_special,
                                      max_tokens=max_tokens, temperature=temperature, top_p=top_p, seed=seed, top_k=top_k,
                                      min_p=min_p, repetition_penalty=repetition_penalty, stop=(c_char_p * len(stops))(*stops),
                                      n_stop=len(stops), n=n, logprobs=logprobs is not None, top_logprobs=logprobs or 0)
    texts_in = None
    if is_chat:
        nodes, memory = _conversations(rows)
        options.conversations = ctypes.addressof(nodes)
    else:
        texts_in = (c_char_p * max(len(rows), 1))(
            *(row if isinstance(row, bytes) else row.encode("utf-8", "surrogateescape") for row in rows))
    tokens, finish = [[] for _ in range(n_texts)], [None] * n_texts

    def take(token):
        top = {token.top_ids[i]: token.top_logps[i] for i in range(token.n_top)}
        tokens[token.text].append((token.id, token.logp, top))
        finish[token.text] = _FINISH[token.finish]
        if on_token is not None:
            on_token(token.text, token.id, ctypes.string_at(token.piece, token.piece_size).decode(errors="replace"))

    callback = _lib.TOKEN_CALL(lambda _user, token: _lib.call(take, token.contents))
    options.token = _lib.address(callback)
    texts = (c_void_p * max(n_texts, 1))()
    check(call(texts_in, len(rows), byref(options), texts, None))
    out = [Sample(_lib.allocated_text(texts[i]), i // n, tokens[i], finish[i], logprobs is not None) for i in range(n_texts)]
    return out[0] if alone and n == 1 else out


_FINISH = {0: None, 1: "stop", 2: "length"}


class Model:
    """A model for inference: the directory of a run (its newest checkpoint), a checkpoint, or a model on disk. It belongs to the
    thread that opened it. `backend` and `precision` ("f32", "bf16") as for `nrl sample`; None: the backend of the run, or else the CPU."""

    def __init__(self, path, template=None, plugin_path=None, public_key=None, backend=None, precision=None):
        pointer = c_void_p()
        self._pointer = None
        self._env = _lib.environment(plugin_path, public_key)
        options = _lib.nrl_inference_options(size=sizeof(_lib.nrl_inference_options), backend=_lib.text(backend),
                                             precision=_DTYPES[precision] if precision else 0)
        check(lib.nrl_inference_open_with(_lib.path(path), byref(self._env), byref(options), byref(pointer)))
        self._pointer = pointer
        if template is not None:
            check(lib.nrl_inference_set_template(pointer, _lib.text(template)))

    def close(self):
        if getattr(self, "_pointer", None) is not None:
            lib.nrl_inference_close(self._pointer)
        self._pointer = None

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def __del__(self):
        self.close()

    @property
    def _handle(self):
        if self._pointer is None:
            raise ValueError("this model is closed")
        return self._pointer

    @property
    def _info(self):
        info = _lib.nrl_inference_info(size=sizeof(_lib.nrl_inference_info))
        lib.nrl_inference_info_fill(self._handle, byref(info))
        return info

    @property
    def vocab_size(self):
        """The number of values in a row of logits."""
        return self._info.vocab_size

    @property
    def max_positions(self):
        """The maximum number of tokens of a sequence; 0: no limit."""
        return self._info.max_positions

    @property
    def parameters(self):
        return self._info.parameters

    @property
    def config(self):
        """The description of the model, config.json."""
        return _lib.tree(self._info.config)

    @property
    def tokenizer(self):
        """The tokenizer of the model, or None."""
        pointer = lib.nrl_inference_tokenizer(self._handle)
        return Tokenizer._borrowed(pointer, self) if pointer else None

    def logits(self, ids):
        """Logits of a sequence of ids, [tokens, vocab_size] f32: row t predicts token t + 1. For a list of sequences, a list."""
        return packed_values(lambda *a: lib.nrl_inference_logits(self._handle, *a), ids, self.vocab_size)

    def logps(self, ids):
        """Log-probs of a sequence of ids, [tokens] f32; 0 for the first token. For a list of sequences, a list."""
        return packed_values(lambda *a: lib.nrl_inference_logps(self._handle, *a), ids, 0)

    def sample(self, prompts, **options):
        """Continues a prompt, or a list of prompts together; returns the new text or a list of them. A text is a Sample: a str with
        the ids of its tokens. A conversation, a list of messages {"role", "content"} or a map with "messages" and "tools", may
        replace each prompt.

        Options and their defaults: max_tokens=64, temperature=0.0 (the most likely token), top_p=1.0, top_k=0 (all), min_p=0.0,
        repetition_penalty=1.0, seed=0; chat=False (True: prompts are user messages); stop=() (a text ends before any of these);
        n=1 (texts for each prompt, one list of all); logprobs=None (K: log-probs, with the K most likely tokens);
        keep_special=False; on_token=None, a function that is called as on_token(index of the text, id, text) for each token."""
        return sampled(lambda *a: lib.nrl_inference_sample(self._handle, *a), prompts, **options)


_DTYPES = {"f32": _lib.DTYPE_F32, "bf16": _lib.DTYPE_BF16, "f16": _lib.DTYPE_F16}


def export_model(path, folder, dtype=None, format=None, adapters=False, overwrite=False, plugin_path=None, public_key=None):
    """Writes the model of a run, a checkpoint or a model on disk to a folder, with its tokenizer. `format` names the plugin that
    writes; `adapters`: these alone. `dtype` is f32, bf16, f16, or an encoding of the format such as q8_0 of gguf; None: that of the
    model's config.json."""
    encoding = None if dtype in _DTYPES else dtype
    options = _lib.nrl_export_options(size=sizeof(_lib.nrl_export_options), dtype=_DTYPES.get(dtype, 0),
                                      adapters=adapters, overwrite=overwrite, format=_lib.text(format),
                                      encoding=_lib.text(encoding))
    env = _lib.environment(plugin_path, public_key)
    check(lib.nrl_export(_lib.path(path), byref(env), _lib.path(folder), byref(options)))


def import_model(path, out, plugin_path=None, public_key=None):
    """Writes a model as checkpoint 0 of a run in the folder `out`."""
    env = _lib.environment(plugin_path, public_key)
    check(lib.nrl_import(_lib.path(path), byref(env), _lib.path(out)))


class Checkpoint:
    """A checkpoint, or the newest complete one of a run: its trees and its tensors."""

    def __init__(self, path, public_key=None):
        pointer = c_void_p()
        self._pointer = None
        check(lib.nrl_checkpoint_open(_lib.path(path), _lib.path(public_key), byref(pointer)))
        self._pointer = pointer
        info = _lib.nrl_checkpoint_info(size=sizeof(_lib.nrl_checkpoint_info))
        lib.nrl_checkpoint_info_fill(pointer, byref(info))
        self.path, self.step, self.bytes, self.world = info.dir.decode(errors="surrogateescape"), info.step, info.bytes, info.world
        self._n = info.n_tensors

    def close(self):
        if getattr(self, "_pointer", None) is not None:
            lib.nrl_checkpoint_close(self._pointer)
        self._pointer = None

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def __del__(self):
        self.close()

    @property
    def _handle(self):
        if self._pointer is None:
            raise ValueError("this checkpoint is closed")
        return self._pointer

    def tree(self, key):
        """The tree that the run saved under a key: "config", "progress", "model", ...; None if there is none."""
        return _lib.tree(lib.nrl_checkpoint_node(self._handle, key.encode()))

    def _tensor(self, i):
        t = _lib.nrl_checkpoint_tensor(size=sizeof(_lib.nrl_checkpoint_tensor))
        lib.nrl_checkpoint_tensor_fill(self._handle, i, byref(t))
        return t

    def tensors(self):
        """(name, slot, shape, dtype) of each tensor."""
        rows = (self._tensor(i) for i in range(self._n))
        return [(t.name.decode(), t.slot.decode(), tuple(t.dims[:t.n_dims]), lib.nrl_dtype_name(t.dtype).decode()) for t in rows]

    def read(self, name, slot="weight"):
        """The values of a tensor as f32, whatever its dtype: a numpy array, or a memoryview without numpy."""
        i = lib.nrl_checkpoint_find(self._handle, name.encode(), slot.encode())
        if i < 0:
            raise KeyError(f"{self.path}: no tensor '{name}' with slot '{slot}'")
        t = self._tensor(i)
        shape, n, width = tuple(t.dims[:t.n_dims]), 1, lib.nrl_dtype_size(t.dtype)
        for size in shape:
            n *= size
        out, address = _lib.floats(shape)
        if t.dtype == _lib.DTYPE_F32:
            check(lib.nrl_checkpoint_read(self._handle, i, 0, n, address))
            return out
        raw = ctypes.create_string_buffer(n * width)
        check(lib.nrl_checkpoint_read(self._handle, i, 0, n, raw))
        begin = ctypes.addressof(raw)
        for k in range(n):
            address[k] = lib.nrl_dtype_f64(t.dtype, begin + k * width)
        return out
