"""Fine-tuning of language models: the run API of libnrl (nrl/run.h, nrl/inference.h) through ctypes alone.

    import nrl

    with nrl.open("configs/sft.yaml", "train.epochs=1", out="runs/first") as run:
        for step in run.steps():
            print(step.step, step.loss)
        print(run.sample("What is two plus two?", chat=True, max_tokens=16))

numpy is optional: with it, logits and log-probs are arrays over nrl's own memory; without it, memoryviews.
A run belongs to the thread that opened it. Errors are exceptions with nrl's text: nrl.Error and its subclasses.
"""
from ._lib import (ConfigError, CorruptError, DataError, DeviceError, DiskFullError, DivergedError, Error, FileError,
                   OutOfMemoryError, PeerError, PluginError, StoppedError, __version__)
from .inference import Checkpoint, Model, Tokenizer, export_model, import_model
from .loss import Batch, Loss, Tensor, gradcheck, loss, reward, where
from .run import Event, Run, open  # noqa: A004 - nrl.open, as in the Lua frontend

__all__ = [
    "Batch", "Checkpoint", "ConfigError", "CorruptError", "DataError", "DeviceError", "DiskFullError", "DivergedError", "Error",
    "Event", "FileError", "Loss", "Model", "OutOfMemoryError", "PeerError", "PluginError", "Run", "StoppedError", "Tensor", "Tokenizer",
    "__version__", "export_model", "gradcheck", "import_model", "loss", "open", "reward", "where",
]
