"""What computes the steps of a script's loop, and when that has finished: on a GPU or with JAX, after the host."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from unstall.profiles.devices import CPU, Device
from unstall.profiles.measure.completion import Completion

_GPU = Device(kind="gpu", name="gpu")


class Computing:
    """The GPUs that compute the steps of a pass, as they are when it begins.

    To ask for them at each step takes longer than to mark its end.
    """

    def __init__(self) -> None:
        self._gpus = _used_gpus()

    def completion(self) -> Completion | None:
        """Returns what notes when a device that computes asynchronously has finished a step; None where none does."""
        return Completion(_wait_for_all, _are_done) if self._gpus or _jax_runs() else None

    def results(self) -> Any:
        """Returns what marks the end of the work that PyTorch gave a GPU, or the arrays that JAX still computes."""
        if self._gpus:
            return _cuda_marks(self._gpus)
        # Without JAX: the script moved its model off PyTorch's GPU after this pass had begun.
        jax = sys.modules.get("jax")
        return [] if jax is None else [array for array in jax.live_arrays() if not _are_done([array])]


def device_of(frameworks: Sequence[str]) -> Device:
    """Returns a GPU if one of these frameworks of the script computes on one by now, else the CPU."""
    return _GPU if any(_ON_GPU[name]() for name in frameworks) else CPU


def _jax_runs() -> bool:
    """Whether JAX has begun to compute in this process. Asking JAX itself would begin that, and take a GPU's memory."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bool(getattr(bridge, "backends_are_initialized", lambda: False)())


def _torch_on_gpu() -> bool:
    """Whether PyTorch has begun to use a GPU in this process. Asking whether there is one would not begin that."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_initialized()


def _jax_on_gpu() -> bool:
    return _jax_runs() and bool(sys.modules["jax"].default_backend() != "cpu")


def _tensorflow_on_gpu() -> bool:
    tensorflow = sys.modules.get("tensorflow")
    return tensorflow is not None and bool(tensorflow.config.list_logical_devices("GPU"))


_ON_GPU = {"torch": _torch_on_gpu, "jax": _jax_on_gpu, "tensorflow": _tensorflow_on_gpu}


def _used_gpus() -> list[int]:
    """Returns the numbers of the GPUs on which PyTorch has tensors."""
    if not _torch_on_gpu():
        return []
    import torch

    return [gpu for gpu in range(torch.cuda.device_count()) if torch.cuda.memory_allocated(gpu)]


def _cuda_marks(gpus: Sequence[int]) -> list[Any]:
    """Marks the end of what PyTorch has given these GPUs to compute by now, without waiting for it.

    Returns:
      An event of CUDA's for each GPU that still computes, behind all that its current stream was given.
    """
    import torch

    if torch.cuda.is_current_stream_capturing():  # nothing is computed, and an event would become part of the graph
        return []
    streams = map(torch.cuda.current_stream, gpus)
    # `blocking`: who waits for the event sleeps, and keeps no core busy.
    return [stream.record_event(torch.cuda.Event(blocking=True)) for stream in streams if not stream.query()]


def _wait_for_all(results: Any) -> None:
    """Waits, without Python's lock, for arrays of JAX or events of CUDA."""
    for result in results:
        if not hasattr(result, "block_until_ready"):
            result.synchronize()
        elif not result.is_deleted():  # the step that came next may have taken the array's memory
            result.block_until_ready()


def _are_done(results: Any) -> bool:
    """Whether arrays of JAX, or events of CUDA, are there."""
    return all(
        result.is_deleted() or result.is_ready() if hasattr(result, "is_ready") else result.query()
        for result in results
    )
