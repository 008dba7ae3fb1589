"""Measures the stages of a Keras PyDataset: times the library calls of its workers, in their threads or processes."""

from __future__ import annotations

import contextlib
import multiprocessing
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import Any

import keras

from profiles import clock
from profiles.measure.batches import batch_images
from profiles.measure.windows import Windows
from profiles.stage_table import ImageTail, Stage, StageTable, tail_of
from profiles.stages.progress import Note, unnoted


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryCall:
    """A library function that loaders spend their time in.

    Attributes:
      kind: the library, as the stage table names it.
      name: the public name of the function.
      module, path: the module that is patched, and the attribute there ("Image.load").
      reads: whether the first argument names the image file. Then a call is taken for the beginning of an image.
      python: whether the function holds the interpreter's lock.
    """

    kind: str
    name: str
    module: str
    path: str
    reads: bool = False
    python: bool = False


def _calls(
    kind: str, module: str, prefix: str, *paths: str, reads: bool = False, python: bool = False
) -> list[LibraryCall]:
    return [
        LibraryCall(kind=kind, name=f"{prefix}.{path}", module=module, path=path, reads=reads, python=python)
        for path in paths
    ]


LIBRARY_CALLS = (
    *_calls("Pillow", "PIL.Image", "PIL.Image", "open", reads=True),
    *_calls("Pillow", "PIL.Image", "PIL", "Image.load", "Image.convert", "Image.resize", "Image.transform"),
    LibraryCall(kind="Pillow", name="PIL.Image.load", module="PIL.ImageFile", path="ImageFile.load"),
    *_calls("OpenCV", "cv2", "cv2", "imread", reads=True),
    *_calls("OpenCV", "cv2", "cv2", "imdecode", "cvtColor", "resize", "warpAffine", "remap", "flip", "copyMakeBorder"),
    *_calls(
        "SciPy", "scipy.ndimage", "scipy.ndimage", "affine_transform", "map_coordinates", "zoom", "rotate", "shift"
    ),
    # Keras' ImageDataGenerator calls the function through this private module.
    *_calls("SciPy", "scipy.ndimage._interpolation", "scipy.ndimage", "affine_transform"),
    *_calls("Keras", "keras.src.utils.image_utils", "keras.utils", "load_img", reads=True, python=True),
    *_calls("Keras", "keras.src.utils.image_utils", "keras.utils", "img_to_array", "array_to_img", python=True),
    LibraryCall(
        kind="albumentations",
        name="albumentations.Compose",
        module="albumentations.core.composition",
        path="Compose.__call__",
        python=True,
    ),
    *_calls("NumPy", "numpy", "numpy", "fromfile", "load", reads=True),
)
# Stands for the time inside `__getitem__` that is in no library call.
REST = LibraryCall(kind="other python", name="other python", module="", path="", python=True)
_NAMES = tuple(dict.fromkeys(call.name for call in (*LIBRARY_CALLS, REST)))
# Slots of the shared totals: images, batches, wall and CPU time of whole batches, workers busy now, the most that were
# busy at once; from `_FIRST` on, wall and CPU time of each name.
_IMAGES, _BATCHES, _WALL, _CPU, _BUSY, _MOST_BUSY, _FIRST = range(7)
# How many times of single images are kept, of the threads of this process only.
_MOST_IMAGES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTimes:
    """The time that the workers spent on all batches that they made, in nanoseconds.

    Attributes:
      workers: the most workers that were busy at once.
      by_call: (call, wall time, CPU time) of each known call, without the known calls inside it, and of `REST`.
      image_ns: (file, wall time until the next file) of images that began with a known call.
    """

    images: int
    batches: int
    wall_ns: int
    cpu_ns: int
    workers: int
    by_call: tuple[tuple[LibraryCall, int, int], ...]
    image_ns: tuple[tuple[str, int], ...]


class CallTimer:
    """Times known calls while a batch is made; threads and forked processes add to the same totals.

    Args:
      files: from how many files a sample is made: every so many of the calls that name a file, the next sample begins.
    """

    def __init__(self, files: int = 1) -> None:
        self._files = files
        self._totals = multiprocessing.RawArray("q", _FIRST + 2 * len(_NAMES))
        self._lock = multiprocessing.Lock()
        self._thread = threading.local()
        self._image_ns: list[tuple[str, int]] = []

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Replaces each known function whose module is imported by a timed one, until the block ends."""
        replaced: list[tuple[Any, str, Any]] = []
        try:
            for call in LIBRARY_CALLS:
                owner: Any = sys.modules.get(call.module)
                *outer, name = call.path.split(".")
                for part in outer:
                    owner = getattr(owner, part, None)
                original = getattr(owner, name, None)
                if callable(original):
                    setattr(owner, name, self._timed(original, call))
                    replaced.append((owner, name, original))
            yield
        finally:
            for owner, name, original in reversed(replaced):
                setattr(owner, name, original)

    def _timed(self, function: Callable[..., Any], call: LibraryCall) -> Callable[..., Any]:
        @wraps(function)
        def timed(*arguments: Any, **options: Any) -> Any:
            frames = getattr(self._thread, "frames", None)
            if not frames:  # this thread makes no batch
                return function(*arguments, **options)
            if call.reads and not any(frame.reads for frame in frames):
                self._next_file(arguments)
            frames.append(_Frame(call.name, call.reads))
            try:
                return function(*arguments, **options)
            finally:
                frames.pop().close(frames[-1], self._thread.spent)

        return timed

    def _next_file(self, arguments: tuple[Any, ...]) -> None:
        """Begins the next image where the file is the first of its files."""
        self._thread.files += 1
        if self._thread.files % self._files != 1 % self._files:
            return
        now_ns = clock.now_ns()
        self._close_image(now_ns)
        name = arguments[0] if arguments else ""
        self._thread.image = (name if isinstance(name, str) else str(getattr(name, "name", name)), now_ns)

    def _close_image(self, now_ns: int) -> None:
        image = getattr(self._thread, "image", None)
        if image is not None and len(self._image_ns) < _MOST_IMAGES:
            self._image_ns.append((image[0], now_ns - image[1]))
        self._thread.image = None

    def batch(self, make: Callable[[], Any], images: Callable[[Any], int]) -> Any:
        """Calls `make` for a batch, adds the times of the calls inside to the totals, and returns the batch.

        Args:
          images: returns the number of images in the batch.
        """
        with self._lock:
            self._totals[_BUSY] += 1
            self._totals[_MOST_BUSY] = max(self._totals[_MOST_BUSY], self._totals[_BUSY])
        whole = _Frame(REST.name, reads=False)
        self._thread.frames, self._thread.spent, self._thread.image, self._thread.files = [whole], {}, None, 0
        try:
            batch = make()
        finally:
            self._close_image(clock.now_ns())
            self._thread.frames = None
            with self._lock:
                self._totals[_BUSY] -= 1
        outside = _Frame("", reads=False)
        whole.close(outside, self._thread.spent)
        with self._lock:
            self._totals[_IMAGES] += images(batch)
            self._totals[_BATCHES] += 1
            self._totals[_WALL] += outside.inner_wall_ns
            self._totals[_CPU] += outside.inner_cpu_ns
            for name, (wall_ns, cpu_ns) in self._thread.spent.items():
                slot = _FIRST + 2 * _NAMES.index(name)
                self._totals[slot] += wall_ns
                self._totals[slot + 1] += cpu_ns
        return batch

    @property
    def times(self) -> CallTimes:
        """The times so far."""
        calls = {call.name: call for call in (*LIBRARY_CALLS, REST)}
        slots = {name: _FIRST + 2 * number for number, name in enumerate(_NAMES)}
        return CallTimes(
            images=self._totals[_IMAGES],
            batches=self._totals[_BATCHES],
            wall_ns=self._totals[_WALL],
            cpu_ns=self._totals[_CPU],
            workers=self._totals[_MOST_BUSY],
            by_call=tuple(
                (calls[name], self._totals[slot], self._totals[slot + 1])
                for name, slot in slots.items()
                if self._totals[slot]
            ),
            image_ns=tuple(self._image_ns),
        )


class _Frame:
    """A running call. Its own time is its whole time less that of the known calls inside it."""

    __slots__ = ("began_cpu_ns", "began_ns", "inner_cpu_ns", "inner_wall_ns", "name", "reads")

    def __init__(self, name: str, reads: bool) -> None:
        self.name = name
        self.reads = reads
        self.inner_wall_ns = self.inner_cpu_ns = 0
        self.began_cpu_ns = clock.thread_cpu_ns()
        self.began_ns = clock.now_ns()

    def close(self, outer: _Frame, spent: dict[str, tuple[int, int]]) -> None:
        wall_ns, cpu_ns = clock.now_ns() - self.began_ns, clock.thread_cpu_ns() - self.began_cpu_ns
        outer.inner_wall_ns += wall_ns
        outer.inner_cpu_ns += cpu_ns
        before = spent.get(self.name, (0, 0))
        spent[self.name] = (before[0] + wall_ns - self.inner_wall_ns, before[1] + cpu_ns - self.inner_cpu_ns)


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
    cpu_ns = sum(sample.cpu_ns for sample in samples)
    images = sum(sample.epoch_images for sample in samples)
    return StageTable(
        stages=_stages(times),
        cores=cores,
        loader_cpu_us_per_image=cpu_ns / images / 1e3,
        effective_parallelism=cpu_ns / sum(sample.epoch_ns for sample in samples),
        workers=workers,
        workers_seen=times.workers,
        rest="Keras' queue and its copies to tensors"
        + (", and sending batches between processes" if _forks(data) else ""),
        tail=_tail(times),
    )


def workers_seen(data: Any, windows: Windows) -> int:
    """Returns the most workers of a PyDataset that are busy at once while `fit` draws some batches."""
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

    @property
    def num_batches(self) -> int:
        return self._batches

    def __getitem__(self, index: int) -> Any:
        if self._timer is None:
            return self._make(index)
        return self._timer.batch(lambda: self._make(index), batch_images)

    def on_epoch_end(self) -> None:
        self._data.on_epoch_end()
