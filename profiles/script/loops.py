"""Watches the loops of a PyTorch script: each pass over a `DataLoader` is an epoch, each batch a step."""

from __future__ import annotations

import functools
import random
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profiles import clock
from profiles.devices import Device
from profiles.script.epochs import KEPT_EPOCHS, EpochRecord, Tally
from profiles.script.loop_trial import HeldLoop
from profiles.script.results import Ceilings, FitRecord
from profiles.script.run import wait_for_threads
from profiles.stages.places import is_library, note_places
from profiles.unit import SAMPLE, Unit, images_in, unit_of

if TYPE_CHECKING:
    from profiles.script.applying import Applied
    from profiles.script.loop_step import StepNotes, Work

# The first steps of an epoch are not steady, as in a `fit`: buffers fill. There are more of them with more workers.
_RAMP_STEPS = 2
# The step of an epoch whose modules and optimizers are noted: one that is not steady, because noting takes time.
_NOTED_STEP = 1


class Loops:
    """Collects a record of each of a script's loops over a `DataLoader`.

    A step is what the script does from one batch to the next; in a loop that trains, the model's forward and backward
    pass. This package cannot run such a step by itself, so that the rate of the model alone stays unknown.

    Args:
      max_steps: number of steps, over the whole script, after which the loop raises SystemExit(0); None for no limit.
      tries: whether remedies are to be tried afterwards. Then the last loader of each place is held.
      applies: puts remedies in place before each loop; None where none are wanted.

    Attributes:
      fits: a record for each place in the script with a loop that made a step, in order.
      readable_data: empty: the data of a loop are not read again.
    """

    readable_data: Mapping[str, Any] = {}

    def __init__(self, *, max_steps: int | None, tries: bool = False, applies: Applied | None = None) -> None:
        self._tries = tries
        self._applies = applies
        self._max_steps = max_steps
        self._steps = 0
        self._ended = False
        self._loops: dict[tuple[str, bool, int], _Loop] = {}
        self._running: weakref.WeakSet[_Pass] = weakref.WeakSet()
        self._noting = threading.Lock()

    @property
    def fits(self) -> list[FitRecord]:
        loops = [loop for loop in self._loops.values() if loop.epochs]
        return [loop.record(f"loop {number} ({loop.place})") for number, loop in enumerate(loops, 1)]

    @property
    def held(self) -> HeldLoop | None:
        """The loop that took longest, of those whose waiting is known; None unless remedies are to be tried."""
        loops = [loop for loop in self._loops.values() if loop.epochs]
        candidates = [
            HeldLoop(
                name=fit.name,
                took_ns=sum(epoch.outer_ns for epoch in fit.epochs),
                epochs=loop.begun,
                loader=loop.loader,
                record=fit,
                threads=loop.step_threads,
                work=loop.work,
            )
            for fit, loop in zip(self.fits, loops, strict=True)
            if loop.loader is not None and not loop.mixed
        ]
        return max(candidates, key=lambda loop: loop.took_ns, default=None)

    def attach(self) -> None:
        """Replaces `DataLoader.__iter__`."""
        from torch.utils.data import DataLoader

        note_places(DataLoader)

        original, loops = DataLoader.__iter__, self

        @functools.wraps(original)
        def __iter__(loader: Any) -> Any:
            place = _place(sys._getframe(1))
            if loops._ended or place is None:
                return original(loader)
            if loops._applies is not None:
                loader = loops._applies.to_loop(Path(place).name, loader)
            return loops._watched(loader, original, place)

        DataLoader.__iter__ = __iter__

    def wait(self) -> None:
        """Waits for all threads that may train."""
        wait_for_threads()

    def pause(self) -> None:
        """Stops watching, and ends the passes that the script has begun and not finished."""
        self._ended = True
        for unfinished in list(self._running):
            unfinished.close(whole=False)

    def backend(self) -> dict[str, Any]:
        """Describes PyTorch."""
        import torch

        gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
        return {"torch": torch.__version__, "threads": torch.get_num_threads(), "gpus": gpus}

    def _watched(self, loader: Any, original: Callable[[Any], Iterator[Any]], place: str) -> _Pass:
        import torch

        # A generator of the script can loop over several loaders on one line, and make each anew for every epoch. So a
        # loop is identified by its place and its data.
        key = place, torch.is_grad_enabled(), id(loader.dataset)
        with self._noting:
            loop = self._loops.get(key)
            if loop is None:
                loop = self._loops[key] = _Loop(Path(place).name, loader)
            for other in list(self._running):
                if other.place == place and other.runs:
                    other.mark_mixed()
                    loop.mixed = True
            watched = _Pass(place, loader, original, loop, self._count)
            self._running.add(watched)
            loop.loader = loader if self._tries else None
        return watched

    def _count(self) -> None:
        self._steps += 1
        if self._max_steps is not None and self._steps >= self._max_steps:
            raise SystemExit(0)


class _Loop:
    """A place in a script that loops over a `DataLoader`, and the epochs of these loops.

    Attributes:
      begun: number of passes that have begun.
      mixed: whether another loader is drawn from on the same line while this one runs.
      unit: what the batches hold; None before the first.
      loader: of the last pass, where remedies are to be tried.
      work: the modules and optimizers of a step, where remedies are to be tried and these could be noted.
    """

    def __init__(self, place: str, loader: Any) -> None:
        import torch

        self.place = place
        self.epochs: deque[EpochRecord] = deque(maxlen=KEPT_EPOCHS)
        self.begun = 0
        self.mixed = False
        self.unit: Unit | None = None
        self.loader: Any = None
        self.work: Work | None = None
        self._steps_ns = self._steps_cpu_ns = 0
        self.device = _device()
        workers = loader.num_workers
        self._data_kind = f"a DataLoader ({workers} worker{'' if workers == 1 else 's'})"
        self._model = "a loop" if torch.is_grad_enabled() else "a loop without gradients"
        self._canary_ns = clock.canary_ns()

    def note_step(self, wall_ns: int, cpu_ns: int) -> None:
        """Adds the time of a step, and the CPU time of this process in it."""
        self._steps_ns += wall_ns
        self._steps_cpu_ns += cpu_ns

    @property
    def step_threads(self) -> int:
        """How many threads a step keeps busy, on average; at least 1."""
        return max(1, round(self._steps_cpu_ns / self._steps_ns)) if self._steps_ns else 1

    def record(self, name: str) -> FitRecord:
        epochs = tuple(self.epochs)
        if self.mixed:
            epochs = tuple(replace(epoch, steady_wait_ns=None) for epoch in epochs)
        return FitRecord(
            name=name,
            model=self._model,
            data_kind=self._data_kind,
            epochs=epochs,
            device=self.device,
            ceilings=Ceilings(samples=(), reason="a loop's steps are the script's own"),
            canary_ns=self._canary_ns,
            training={"data": self._data_kind},
            why_unknown="several loaders are drawn from in one line, each while a step of the other runs",
            loop=True,
            unit=self.unit or SAMPLE,
        )


class _Pass:
    """Takes the place of the iterator of one pass, and notes when a batch is asked for and when it arrives."""

    def __init__(
        self, place: str, loader: Any, original: Callable[[Any], Iterator[Any]], loop: _Loop, count: Callable[[], None]
    ) -> None:
        self.place = place
        self._loop: _Loop | None = loop
        self._count = count
        self._drawn: tuple[int, int, int | None] | None = None
        self._step_cpu_ns = 0
        self._notes: StepNotes | None = None
        self._tally = Tally(
            epoch=loop.begun,
            expected_steps=None,
            ramp_steps=max(_RAMP_STEPS, loader.num_workers),
            random_=random.Random(loop.begun),  # not the global random state, which is the user's
        )
        loop.begun += 1
        self._batches = original(loader)

    def __iter__(self) -> _Pass:
        return self

    def __next__(self) -> Any:
        asked_ns = clock.now_ns()
        try:
            if self._end_step(asked_ns):
                self._count()
            batch = next(self._batches)
        except BaseException as error:
            self.close(whole=isinstance(error, StopIteration))
            raise
        if self._tally.steps == _NOTED_STEP:
            self._notes = self._step_notes()
        self._drawn = asked_ns, clock.now_ns(), images_in(batch)
        self._step_cpu_ns = clock.own_cpu_ns()
        if self._loop is not None and self._loop.unit is None:
            self._loop.unit = _unit_in(batch)
        return batch

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name == "_batches":  # `copy` asks for attributes of an object before the object has any
            raise AttributeError(name)
        return getattr(self._batches, name)

    @property
    def runs(self) -> bool:
        """Whether this epoch has not ended."""
        return self._loop is not None

    def mark_mixed(self) -> None:
        """Notes that another loader is drawn from on the same line."""
        if self._loop is not None:
            self._loop.mixed = True

    def __del__(self) -> None:
        with suppress(Exception):  # while Python ends, modules that `close` needs may be gone
            self.close()

    def close(self, *, whole: bool = True) -> None:
        """Ends the epoch. Leaves out a last batch after which none was asked for: the end of its step is unknown.

        Args:
          whole: whether the script ended the loop itself, at the end of the data or before by `break`.
        """
        self._end_notes()
        loop, self._loop = self._loop, None
        if loop is not None and self._tally.steps:
            self._tally.end_steps(whole=whole)
            loop.device = _device()
            loop.epochs.append(self._tally.record(asynchronous=loop.device.asynchronous))

    def _step_notes(self) -> StepNotes | None:
        """Begins to note a step, where remedies are to be tried and none was noted yet.

        On a GPU none is noted: a sleep takes the place of its steps.
        """
        loop = self._loop
        if loop is None or loop.loader is None or loop.work is not None or _device().kind == "gpu":
            return None
        try:
            from profiles.script.loop_step import StepNotes
        except ImportError:  # an old PyTorch lacks these hooks
            return None
        return StepNotes()

    def _end_notes(self) -> None:
        notes, self._notes = self._notes, None
        work = notes.close() if notes is not None else None
        if self._loop is not None and work is not None:
            self._loop.work = work

    def _end_step(self, now_ns: int) -> bool:
        if self._drawn is None:
            return False
        (asked_ns, came_ns, images), self._drawn = self._drawn, None
        self._end_notes()
        if self._loop is not None:
            self._loop.note_step(now_ns - came_ns, clock.own_cpu_ns() - self._step_cpu_ns)
        self._tally.add(asked_ns, came_ns, now_ns, images, 1, traced=False)
        return True


def _unit_in(batch: Any) -> Unit:
    """Returns what a batch holds: images or other samples. PyTorch has the channels of an image on its second axis."""
    try:
        return unit_of(batch[0] if isinstance(batch, tuple | list) else batch, channels_axis=1)
    except Exception:  # a batch can be any object of the script, and its attributes can run any code
        return SAMPLE


def _place(frame: Any) -> str | None:
    """Returns where the user's own code began the loop, as "/home/train.py:12"; None if Keras' `fit` began it."""
    places = []
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith("keras."):
            return None
        places.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    of_script = (place for place in places if not is_library(place[0]))
    file, line = next(of_script, places[0])
    return f"{file}:{line}"


def _device() -> Device:
    """Returns the device that PyTorch computes on: the GPU if the script has used one by now, else the CPU."""
    import torch

    return Device(kind="gpu", name="gpu") if torch.cuda.is_initialized() else Device(kind="cpu", name="cpu")
