"""Times the library calls that a loader in Python makes for a batch, in its threads or forked processes."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import Any

import psutil

from unstall.profiles import clock
from unstall.profiles.machine.mounts import Storage, storage_of
from unstall.profiles.stage_table import OTHER_PYTHON, ImageTail, Stage, image_name, tail_of


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
    *(
        LibraryCall(kind="Python", name="multiprocessing.Pool", module="multiprocessing.pool", path=path)
        for path in ("ApplyResult.get", "IMapIterator.next", "IMapIterator.__next__")
    ),
    LibraryCall(kind="Python", name="concurrent.futures", module="concurrent.futures", path="Future.result"),
    *_calls("NumPy", "numpy", "numpy", "fromfile", "load", reads=True),
    *_calls(
        "torchvision",
        "torchvision.transforms.functional",
        "torchvision",
        *("to_tensor", "normalize", "resize", "crop", "center_crop", "resized_crop", "hflip", "vflip", "rotate"),
        *("affine", "adjust_brightness", "adjust_contrast", "adjust_saturation", "adjust_hue"),
    ),
)
# What makes a sample, and a batch of single samples, in a `DataLoader` of PyTorch's.
ITEM = LibraryCall(kind="PyTorch", name="__getitem__", module="", path="", python=True)
COLLATE = LibraryCall(kind="PyTorch", name="collate_fn", module="", path="")
# Stands for the time inside `__getitem__` that is in no library call.
REST = LibraryCall(kind=OTHER_PYTHON, name=OTHER_PYTHON, module="", path="", python=True)
_OTHERS = (ITEM, COLLATE, REST)
_NAMES = tuple(dict.fromkeys(call.name for call in (*LIBRARY_CALLS, *_OTHERS)))
# Slots of the shared totals: images, batches, wall and CPU time of whole batches, workers busy now, the most that were
# busy at once; from `_FIRST` on, wall and CPU time of each name.
_IMAGES, _BATCHES, _WALL, _CPU, _BUSY, _MOST_BUSY, _FIRST = range(7)
# Processes that took more CPU time than this have worked.
_WORKED_NS = 20_000_000
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
                    setattr(owner, name, self.timed(original, call))
                    replaced.append((owner, name, original))
            yield
        finally:
            for owner, name, original in reversed(replaced):
                setattr(owner, name, original)

    def timed(self, function: Callable[..., Any], call: LibraryCall) -> Callable[..., Any]:
        """Returns the function with its time added to that of a known call, while its thread makes a batch."""

        @wraps(function)
        def call_timed(*arguments: Any, **options: Any) -> Any:
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

        return call_timed

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
        calls = {call.name: call for call in (*LIBRARY_CALLS, *_OTHERS)}
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


def stages_of(times: CallTimes) -> tuple[Stage, ...]:
    """Returns a stage for each known call."""
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


def note_processes() -> Callable[[], list[str]]:
    """Notes which processes the script has, such as a pool's.

    Returns:
      A function that returns their name, for what the stages leave open, if they have worked since; else nothing.
    """
    numbers = {child.pid for child in multiprocessing.active_children()}
    processes = [child for child in psutil.Process().children() if child.pid in numbers]
    began_ns = clock.cpu_ns_of(processes)
    return lambda: ["the script's own processes"] if clock.cpu_ns_of(processes) - began_ns > _WORKED_NS else []


def storage_seen(times: CallTimes) -> Storage | None:
    """Returns the storage of the first file that a known call has read; None where none was seen."""
    return next((storage_of(name) for name, _ in times.image_ns if os.path.exists(name)), None)


def images_tail(times: CallTimes) -> ImageTail | None:
    """Returns the times of single images; None where fewer than two began with a known call."""
    if len(times.image_ns) < 2:
        return None
    return tail_of([(image_name(name), ns / 1e3) for name, ns in times.image_ns])
