"""The stage table of a Keras PyDataset: what its workers do while they make batches."""

from __future__ import annotations

from typing import Any

import keras

from profiles import clock
from profiles.batches import batch_images
from profiles.python_calls import CallTimer, CallTimes
from profiles.stages import ImageTail, Stage, StageTable, tail_of
from profiles.windows import Windows

ROUNDS = 3
# A round reads about so many seconds' worth of batches, and at least so many batches a worker.
ROUND_S, LEAST_BATCHES_PER_WORKER = 0.8, 3


def python_table(data: Any, windows: Windows, *, cores: float) -> StageTable:
    """Measures what the workers of a PyDataset spend, through the queue and the workers that `fit` uses.

    Rounds with and without the timers alternate: those without say what the loader costs.

    Args:
      data: a `keras.utils.PyDataset`, Keras' old generators among them.
      windows: of the model that trains on it; it takes no step here.
      cores: that this process may use.
    """
    workers = max(int(getattr(data, "workers", 1) or 1), 1)
    timer = CallTimer()
    batches = _batches(data, workers)
    plain, timed = _Head(data, batches, None), _Head(data, batches, timer)
    samples = []
    for number in range(ROUNDS):
        samples.append(windows.loader(plain, epochs=1, ramp_steps=workers, round_=number))
        with timer.installed():
            windows.loader(timed, epochs=1, ramp_steps=workers, round_=number)
    times = timer.times
    if not times.batches:
        return StageTable(
            stages=(),
            cores=cores,
            workers=workers,
            reason="its worker processes are not forked: nothing was seen of them",
        )
    cpu_ns = sum(one.cpu_ns for one in samples)
    images = sum(one.epoch_images for one in samples)
    return StageTable(
        stages=_stages(times),
        cores=cores,
        loader_cpu_us_per_image=cpu_ns / images / 1e3,
        effective_parallelism=cpu_ns / sum(one.epoch_ns for one in samples),
        workers=workers,
        workers_seen=times.workers,
        rest="Keras' queue and its copies to tensors"
        + (", and sending batches between processes" if _forks(data) else ""),
        tail=_tail(times),
    )


def workers_seen(data: Any, windows: Windows) -> int:
    """Returns how many workers of a PyDataset are busy at once, at most, while `fit` draws some batches."""
    workers = max(int(getattr(data, "workers", 1) or 1), 1)
    timer = CallTimer()
    windows.loader(_Head(data, _batches(data, workers), timer), epochs=1, ramp_steps=workers, round_=0)
    return timer.times.workers


def _stages(times: CallTimes) -> tuple[Stage, ...]:
    stages = []
    for call, wall_ns, cpu_ns in times.by_call:
        stages.append(
            Stage(
                name=call.name,
                kind=call.kind,
                python=call.python,
                cpu_us_per_image=cpu_ns / times.images / 1e3,
                wait_us_per_image=(wall_ns - cpu_ns) / times.images / 1e3,
            )
        )
    return tuple(stages)


def _tail(times: CallTimes) -> ImageTail | None:
    if len(times.image_ns) < 2:
        return None
    return tail_of([("/".join(name.split("/")[-2:]), ns / 1e3) for name, ns in times.image_ns])


def _batches(data: Any, workers: int) -> int:
    """Returns the batches of a round: about `ROUND_S` of work for all workers, from the time that one takes."""
    began_ns = clock.now_ns()
    data[0]
    batch_s = (clock.now_ns() - began_ns) / 1e9
    wanted = max(round(ROUND_S * workers / max(batch_s, 1e-4)), LEAST_BATCHES_PER_WORKER * workers)
    return wanted if data.num_batches is None else min(wanted, data.num_batches)


def _forks(data: Any) -> bool:
    """Tells whether the workers of a PyDataset are processes: those of Keras, or its own behind Keras' threads."""
    return bool(data.use_multiprocessing or getattr(data, "worker_processes", False))


class _Head(keras.utils.PyDataset):
    """The first batches of a PyDataset, made as it makes them, by as many workers."""

    def __init__(self, data: Any, batches: int, timer: CallTimer | None) -> None:
        super().__init__(workers=data.workers, use_multiprocessing=_forks(data), max_queue_size=data.max_queue_size)
        self._data = data
        # Data that hands its batches on to workers of its own has to make them here, where the timer is.
        self._make = getattr(data, "make_in_caller", data.__getitem__)
        self._batches = batches
        self._timer = timer

    @property
    def num_batches(self) -> int:
        return self._batches

    def __getitem__(self, index: int) -> Any:
        if self._timer is None:
            return self._make(index)
        return self._timer.batch(lambda: self._make(index), batch_images)

    def on_epoch_end(self) -> None:
        self._data.on_epoch_end()
