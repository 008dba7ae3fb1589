"""The kinds of data that scripts loop over: a `DataLoader` of PyTorch's, a `tf.data.Dataset`, and any other."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from unstall.profiles.devices import CPU, Device
from unstall.profiles.measure.completion import Completion
from unstall.profiles.remedies.loop_data import loader_kind
from unstall.profiles.script import tracing
from unstall.profiles.script.loops import Copies, Loops, Pass, Source
from unstall.profiles.stages.places import note_places, place_of
from unstall.profiles.unit import SAMPLE, Unit, unit_of

if TYPE_CHECKING:
    from unstall.profiles.script.loop_step import StepNotes

_GPU = Device(kind="gpu", name="gpu")


class AnyData(Source):
    """Loops over data that the script has marked by `profiles.watch`.

    The steps compute in whichever framework the script uses.
    """

    # The GPUs that PyTorch uses, as of the last pass: to ask for them takes longer than to mark a step.
    _gpus: Sequence[int] = ()

    def kind_of(self, data: Any) -> str:
        return f"data of type {type(data).__name__}"

    def identity_of(self, data: Any) -> Hashable:
        return type(data).__name__

    def device(self) -> Device:
        """Returns a GPU if a framework of the script computes on one by now, else the CPU."""
        if _torch_on_gpu():
            on_gpu = True
        elif _jax_runs():
            on_gpu = sys.modules["jax"].default_backend() != "cpu"
        else:
            tensorflow = sys.modules.get("tensorflow")
            on_gpu = tensorflow is not None and bool(tensorflow.config.list_logical_devices("GPU"))
        return _GPU if on_gpu else CPU

    def completion(self) -> Completion | None:
        self._gpus = _used_gpus()
        return Completion(_wait_for_all, _are_done) if self._gpus or _jax_runs() else None

    def results(self) -> Any:
        """Returns what marks the end of the work that PyTorch gave a GPU, or the arrays that JAX still computes."""
        if self._gpus:
            return _cuda_marks(self._gpus)
        # Without JAX: the script moved its model off PyTorch's GPU after this pass had begun.
        jax = sys.modules.get("jax")
        return [] if jax is None else [array for array in jax.live_arrays() if not _are_done([array])]

    def unit_in(self, batch: Any) -> Unit:
        return _unit_in(batch, channels_axis=1 if "torch" in sys.modules else -1)

    def backend(self) -> dict[str, Any]:
        """Returns the versions of the frameworks that the script has imported."""
        imported = {name: sys.modules.get(name) for name in ("tensorflow", "torch", "jax")}
        return {name: module.__version__ for name, module in imported.items() if module is not None}


class TorchLoaders(AnyData):
    """Loops over a `DataLoader`."""

    traces = False
    tries = True
    reads_again = True

    def attach(self, loops: Loops) -> Callable[[], None]:
        """Replaces `DataLoader.__iter__`, so that `loops` is told of each pass. Returns what restores it."""
        from torch.utils.data import DataLoader

        end_notes = note_places(DataLoader)
        original = DataLoader.__iter__

        @functools.wraps(original)
        def __iter__(loader: Any) -> Any:
            place = loops.place_of(sys._getframe(1))
            if place is None:
                return original(loader)
            loader = loops.applied(place, loader)
            return Batches(loops.begin(self, loader, place), lambda: original(loader))

        def detach() -> None:
            DataLoader.__iter__ = original
            end_notes()

        DataLoader.__iter__ = __iter__
        return detach

    def kind_of(self, data: Any) -> str:
        return loader_kind(data)

    def identity_of(self, data: Any) -> Hashable:
        return id(data.dataset)

    def workers_of(self, data: Any) -> int:
        return int(data.num_workers)

    def copies(self, data: Any) -> Copies | None:
        workers = self.workers_of(data)
        if workers < 2:
            return None
        from torch.utils.data import IterableDataset

        return _WorkersBatches(workers) if isinstance(data.dataset, IterableDataset) else None

    def loop_kind(self) -> str:
        import torch

        return "a loop" if torch.is_grad_enabled() else "a loop without gradients"

    def device(self) -> Device:
        """Returns the GPU if the script has used one by now, else the CPU."""
        return _GPU if _torch_on_gpu() else CPU

    def completion(self) -> Completion | None:
        self._gpus = _used_gpus()
        return Completion(_wait_for_all, _are_done) if self._gpus else None

    def step_notes(self) -> StepNotes | None:
        try:
            from unstall.profiles.script.loop_step import StepNotes
        except ImportError:  # an old PyTorch lacks these hooks
            return None
        return StepNotes()

    def unit_in(self, batch: Any) -> Unit:
        return _unit_in(batch, channels_axis=1)

    def backend(self) -> dict[str, Any]:
        import torch

        gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
        return {"torch": torch.__version__, "threads": torch.get_num_threads(), "gpus": gpus}


class TfDatasets(AnyData):
    """Loops over a `tf.data.Dataset`; the steps compute in TensorFlow or in JAX."""

    tries = True
    reads_again = True

    def attach(self, loops: Loops) -> Callable[[], None]:
        """Replaces `Dataset.__iter__`, so that `loops` is told of each pass of Python's. Returns what restores it."""
        import tensorflow as tf

        original = tf.data.Dataset.__iter__

        @functools.wraps(original)
        def __iter__(dataset: Any) -> Any:
            place = loops.place_of(sys._getframe(1)) if tf.executing_eagerly() else None
            if place is None:
                return original(dataset)
            dataset = loops.applied(place, dataset)
            watched = loops.begin(self, dataset, place)
            return told(original(dataset), watched)

        tf.data.Dataset.__iter__ = __iter__
        untime_traces = tracing.attach()

        def restore() -> None:
            tf.data.Dataset.__iter__ = original
            untime_traces()

        return restore

    def kind_of(self, data: Any) -> str:
        return "a tf.data.Dataset"

    def identity_of(self, data: Any) -> Hashable:
        # Scripts shuffle or repeat a dataset anew for each epoch, and one function may loop over several datasets.
        return str(data.element_spec), place_of(data)

    def unit_in(self, batch: Any) -> Unit:
        return _unit_in(batch, channels_axis=-1)


class _WorkersBatches:
    """Compares the first batch of the second worker with that of the first, as `profiles.script.loops.Copies`.

    The workers of a `DataLoader` give batches in turn. Where each has an `IterableDataset` of its own that is not
    divided among them, all give the same.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._first: Any = None
        self._looks = 0

    def look(self, batch: Any) -> int:
        self._looks += 1
        if self._looks == 1:
            self._first = batch
        first = self._first
        if self._looks == 2:
            self._first = None
        try:
            return self._workers if self._looks == 2 and _are_equal(first, batch) else 0
        except Exception:  # tensors of other layouts cannot be compared
            return 0


class Batches:
    """Takes the place of the iterator of one pass, and tells its `Pass` of each batch.

    Args:
      begin: returns the iterator; called at once, when the epoch has begun.
    """

    def __init__(self, watched: Pass, begin: Callable[[], Iterator[Any]]) -> None:
        self._pass = watched
        self._batches = begin()

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Any:
        return self._pass.draw(lambda: next(self._batches))

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name == "_batches":  # `copy` asks for attributes of an object before the object has any
            raise AttributeError(name)
        return getattr(self._batches, name)


def told(iterator: Any, watched: Pass) -> Any:
    """Returns the iterator, which from now on tells a `Pass` of each batch that Python draws.

    TensorFlow and Grain ask for the type of an iterator that a script passes on, so that the object stays the iterator.
    One of a type that cannot be changed so, such as a generator, is wrapped.
    """
    try:
        owner: Any = type(iterator)
        iterator.__class__ = _watched_type(owner)
        iterator._unstall_pass = watched
    except TypeError:
        return Batches(watched, lambda: iterator)
    return iterator


@functools.cache
def _watched_type(owner: Any) -> Any:
    """Returns the type of an iterator that tells its `Pass`, in `_unstall_pass`, of each batch that Python draws."""

    class Watched(owner):
        _unstall_pass: Pass

        def __next__(self) -> Any:
            return self._unstall_pass.draw(super().__next__)

        def get_next(self) -> Any:
            return self._unstall_pass.draw(super().get_next)

    Watched.__name__, Watched.__qualname__, Watched.__module__ = owner.__name__, owner.__qualname__, owner.__module__
    return Watched


def _jax_runs() -> bool:
    """Whether JAX has begun to compute in this process. Asking JAX itself would begin that, and take a GPU's memory."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bool(getattr(bridge, "backends_are_initialized", lambda: False)())


def _torch_on_gpu() -> bool:
    """Whether PyTorch has begun to use a GPU in this process. Asking whether there is one would not begin that."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_initialized()


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


def _are_equal(first: Any, second: Any) -> bool:
    """Whether two batches of PyTorch's hold the same numbers."""
    import torch

    if isinstance(first, torch.Tensor):
        return isinstance(second, torch.Tensor) and torch.equal(first, second)
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(_are_equal(part, second[key]) for key, part in first.items())
    if isinstance(first, tuple | list) and isinstance(second, tuple | list):
        return len(first) == len(second) > 0 and all(map(_are_equal, first, second))
    return isinstance(first, str | bytes | int | float) and first == second


def _unit_in(batch: Any, *, channels_axis: int) -> Unit:
    try:
        return unit_of(batch[0] if isinstance(batch, tuple | list) else batch, channels_axis=channels_axis)
    except Exception:  # a batch can be any object of the script, and its attributes can run any code
        return SAMPLE
