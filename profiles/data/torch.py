"""A `DataLoader` of PyTorch's, which a loop reads, or `fit` of Keras on PyTorch."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any, ClassVar

from unstall.profiles.data.base import Adapter, Copies, StageReading, Use
from unstall.profiles.data.kinds import DataKind

if TYPE_CHECKING:
    from unstall.profiles.measure.ahead import Ahead
    from unstall.profiles.measure.steps import Steady
    from unstall.profiles.remedies.data import Data
    from unstall.profiles.remedies.remedy import Need
    from unstall.profiles.remedies.room import Room
    from unstall.profiles.script.loop_step import StepNotes
    from unstall.profiles.script.loops import Loops
    from unstall.profiles.stage_table import StageTable

# How many batches each worker has ready by PyTorch's default.
_DEFAULT_FACTOR = 2


class DataLoaders(Adapter):
    """A `DataLoader`."""

    module = "torch.utils.data"
    tries = True
    reads_again = True
    traces = False
    computed_by = ("torch", "jax")
    argument_positions: ClassVar = {
        ("DataLoader", name): at
        for at, name in enumerate(
            (
                "dataset",
                "batch_size",
                "shuffle",
                "sampler",
                "batch_sampler",
                "num_workers",
                "collate_fn",
                "pin_memory",
                "drop_last",
            )
        )
    }

    def owns(self, data: Any) -> bool:
        module = sys.modules.get("torch.utils.data")
        return module is not None and isinstance(data, module.DataLoader)

    def kind(self, data: Any) -> DataKind:
        return DataKind.DATA_LOADER

    def label(self, data: Any) -> str:
        return f"a DataLoader ({data.num_workers} worker{'' if data.num_workers == 1 else 's'})"

    def identity(self, data: Any) -> Hashable:
        return id(data.dataset)

    def data_set(self, data: Any) -> Any:
        return data.dataset

    def workers(self, data: Any) -> int:
        return int(data.num_workers)

    def source(self, data: Any) -> CodeType | None:
        iterates = getattr(sys.modules["torch.utils.data"], "IterableDataset", ())
        if data.num_workers or not isinstance(data.dataset, iterates):
            return None
        return getattr(type(data.dataset).__iter__, "__code__", None)

    def ahead(self, data: Any) -> Ahead:
        from unstall.profiles.measure.ahead import Ahead

        workers = self.workers(data)
        return Ahead(parallel_batches=max(1, workers), buffered_batches=ready_batches(workers, data.prefetch_factor))

    def steady(self, data: Any, steps: int) -> Steady:
        from unstall.profiles.measure.steps import steady_part

        # While the last batches lie ready, nothing is loaded while the model trains.
        return steady_part(self.ahead(data), steps, tail=False)

    def stage_table(self, data: Any, reading: StageReading) -> StageTable:
        from unstall.profiles.stages.loader_stages import loader_table

        return loader_table(data, cores=reading.cores, files=reading.files, note=reading.note)

    def wrapped(self, data: Any, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[Any]:
        if not hasattr(data.dataset, "__len__"):  # one that is read once
            return iter(())
        return map(wrap(data.dataset.__getitem__), range(len(data.dataset)))

    def rebuilt(
        self, data: Any, use: Use, needs: Sequence[Need], *, room: Room | None = None, only: Sequence[str] = ()
    ) -> Data:
        from unstall.profiles.remedies.room import room_here
        from unstall.profiles.remedies.torch import REMEDIES
        from unstall.profiles.remedies.torch.loader_data import LoaderData

        return LoaderData(
            data,
            changes=REMEDIES,
            needs=needs,
            room=room or room_here(),
            images_per_batch=use.images_per_batch,
            pins=use.on_gpu,
            anew=use.anew,
            unkept=use.unkept,
            work=use.work,
            only=only,
        )

    def computing_on(self, threads: int) -> Callable[[int], object]:
        from unstall.profiles.remedies.torch.loader_data import computing_on

        return computing_on(threads)

    def attach(self, loops: Loops) -> Callable[[], None]:
        """Replaces `DataLoader.__iter__`, so that `loops` is told of each pass. Returns what restores it."""
        from torch.utils.data import DataLoader

        from unstall.profiles.script.drawing import Batches
        from unstall.profiles.stages.places import note_places

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

    def loop_kind(self) -> str:
        import torch

        return "a loop" if torch.is_grad_enabled() else "a loop without gradients"

    def copies(self, data: Any) -> Copies | None:
        workers = self.workers(data)
        if workers < 2:
            return None
        from torch.utils.data import IterableDataset

        return _WorkersBatches(workers) if isinstance(data.dataset, IterableDataset) else None

    def step_notes(self) -> StepNotes | None:
        try:
            from unstall.profiles.script.loop_step import StepNotes
        except ImportError:  # an old PyTorch lacks these hooks
            return None
        return StepNotes()

    def channels_axis(self) -> int:
        return 1

    def backend(self) -> dict[str, Any]:
        import torch

        gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
        return {"torch": torch.__version__, "threads": torch.get_num_threads(), "gpus": gpus}


def ready_batches(workers: int, each: int | None) -> int:
    """Returns how many batches the workers of a DataLoader hold ready.

    Args:
      each: `prefetch_factor`; None for PyTorch's default.
    """
    return workers * (_DEFAULT_FACTOR if each is None else each)


class _WorkersBatches:
    """Compares the first batch of the second worker with that of the first, as `profiles.data.base.Copies`.

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
