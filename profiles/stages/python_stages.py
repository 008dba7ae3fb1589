"""Measures the stages of a Keras PyDataset: times the library calls of its workers, in their threads or processes."""

from __future__ import annotations

import itertools
from typing import Any

import keras

from unstall.profiles import clock
from unstall.profiles.measure.batches import batch_images
from unstall.profiles.measure.windows import Windows
from unstall.profiles.stage_table import StageTable
from unstall.profiles.stages.call_timer import CallTimer, images_tail, note_processes, stages_of, storage_seen
from unstall.profiles.stages.decoded import pixels_decoded
from unstall.profiles.stages.note import Note, unnoted
from unstall.profiles.stages.users_lines import users_lines
from unstall.profiles.statistics import median

ROUNDS = 3
# How long a round lasts, about, and how many batches each worker makes in a round, at least.
ROUND_S, LEAST_BATCHES_PER_WORKER = 0.8, 3


def python_table(data: Any, windows: Windows, *, cores: float, files: int = 1, note: Note = unnoted) -> StageTable:
    """Measures the stages of a PyDataset, read through the queue and the workers that `fit` uses.

    Rounds with and without timed calls alternate. The rounds without say what the whole loader costs.

    Args:
      data: a `keras.utils.PyDataset`, such as one of Keras' old generators.
      windows: of the model that trains on the data. The model takes no step here.
      cores: number of cores that this process may use.
      files: from how many files the data makes a sample.
      note: called with the number of rounds that were made, and of all.
    Returns:
      The table; without stages, and with the reason, where the worker processes are not forked.
    """
    workers = max(int(getattr(data, "workers", 1) or 1), 1)
    timer = CallTimer(files)
    sent = ["sending batches between processes"] if _forks(data) else []
    scripts_processes = note_processes()
    note(0, ROUNDS)
    batches = _batches(data, workers)
    plain, timed = _Head(data, batches, None), _Head(data, batches, timer)
    samples = []
    for number in range(ROUNDS):
        samples.append(windows.loader(plain, epochs=1, ramp_steps=workers, round_=number))
        with timer.installed():
            windows.loader(timed, epochs=1, ramp_steps=workers, round_=number)
        note(number + 1, ROUNDS)
    times = timer.times
    if not times.batches:
        return StageTable(
            stages=(),
            cores=cores,
            workers=workers,
            reason="its worker processes are not forked: nothing was seen of them",
        )
    made = itertools.count()

    def make() -> Any:
        return plain[next(made) % batches]

    decoded, wanted = pixels_decoded(make, channels_axis=-1)
    lines = users_lines(make)
    cpu_ns = sum(sample.cpu_ns for sample in samples)
    images = sum(sample.epoch_images for sample in samples)
    return StageTable(
        stages=stages_of(times),
        cores=cores,
        loader_cpu_us_per_image=cpu_ns / images / 1e3,
        effective_parallelism=cpu_ns / sum(sample.epoch_ns for sample in samples),
        workers=workers,
        workers_seen=times.workers,
        epoch_end_s=plain.epoch_end_s,
        lines=lines,
        decoded_pixels=decoded,
        wanted_pixels=wanted,
        rest=", ".join([*scripts_processes(), "Keras' queue and its copies to tensors", *sent]),
        tail=images_tail(times),
        storage=storage_seen(times),
    )


def workers_seen(data: Any, windows: Windows) -> int:
    """Returns the most workers of a PyDataset that are busy at once while `fit` draws some batches."""
    workers = max(int(getattr(data, "workers", 1) or 1), 1)
    timer = CallTimer()
    windows.loader(_Head(data, _batches(data, workers), timer), epochs=1, ramp_steps=workers, round_=0)
    return timer.times.workers


def _batches(data: Any, workers: int) -> int:
    """Returns how many batches make a round: `ROUND_S` of work for all workers, judged by the time of one batch."""
    began_ns = clock.now_ns()
    data[0]
    batch_s = (clock.now_ns() - began_ns) / 1e9
    wanted = max(round(ROUND_S * workers / max(batch_s, 1e-4)), LEAST_BATCHES_PER_WORKER * workers)
    return wanted if data.num_batches is None else min(wanted, data.num_batches)


def _forks(data: Any) -> bool:
    """Whether the workers of a PyDataset are processes: Keras', or the data's own behind the threads of Keras."""
    return bool(data.use_multiprocessing or getattr(data, "worker_processes", False))


class _Head(keras.utils.PyDataset):
    """The first batches of a PyDataset, made by its own code and by as many workers."""

    def __init__(self, data: Any, batches: int, timer: CallTimer | None) -> None:
        super().__init__(workers=data.workers, use_multiprocessing=_forks(data), max_queue_size=data.max_queue_size)
        self._data = data
        # Data with worker processes of its own must make the batches in this process, where calls are timed.
        self._make = getattr(data, "make_in_caller", data.__getitem__)
        self._batches = batches
        self._timer = timer
        self._ends_s: list[float] = []

    @property
    def epoch_end_s(self) -> float | None:
        """The time of the data's own `on_epoch_end`; None where it has none, or where that was not called."""
        own = type(self._data).on_epoch_end is not keras.utils.PyDataset.on_epoch_end
        return median(self._ends_s) if own and self._ends_s else None

    @property
    def num_batches(self) -> int:
        return self._batches

    def __getitem__(self, index: int) -> Any:
        if self._timer is None:
            return self._make(index)
        return self._timer.batch(lambda: self._make(index), batch_images)

    def on_epoch_end(self) -> None:
        began_ns = clock.now_ns()
        self._data.on_epoch_end()
        self._ends_s.append((clock.now_ns() - began_ns) / 1e9)
