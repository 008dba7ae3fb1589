"""Times the calls that Python loaders are made of, in whichever thread or forked process they run."""

from __future__ import annotations

import contextlib
import multiprocessing
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import Any

from profiles import clock


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCall:
    """A function that loaders spend their time in.

    Attributes:
      kind: whose it is, as a reader would say it.
      name: how a user knows it.
      module, path: where its callers find it.
      reads: whether its first argument names the image file, so that a call begins an image.
      python: whether it holds the interpreter's lock.
    """

    kind: str
    name: str
    module: str
    path: str
    reads: bool = False
    python: bool = False


def _calls(
    kind: str, module: str, shown: str, *paths: str, reads: bool = False, python: bool = False
) -> list[KnownCall]:
    return [
        KnownCall(kind=kind, name=f"{shown}.{path}", module=module, path=path, reads=reads, python=python)
        for path in paths
    ]


KNOWN_CALLS = (
    *_calls("Pillow", "PIL.Image", "PIL.Image", "open", reads=True),
    *_calls("Pillow", "PIL.Image", "PIL", "Image.load", "Image.convert", "Image.resize", "Image.transform"),
    KnownCall(kind="Pillow", name="PIL.Image.load", module="PIL.ImageFile", path="ImageFile.load"),
    *_calls("OpenCV", "cv2", "cv2", "imread", reads=True),
    *_calls("OpenCV", "cv2", "cv2", "imdecode", "cvtColor", "resize", "warpAffine", "remap", "flip", "copyMakeBorder"),
    *_calls(
        "SciPy", "scipy.ndimage", "scipy.ndimage", "affine_transform", "map_coordinates", "zoom", "rotate", "shift"
    ),
    # Keras' ImageDataGenerator comes by this way.
    *_calls("SciPy", "scipy.ndimage._interpolation", "scipy.ndimage", "affine_transform"),
    *_calls("Keras", "keras.src.utils.image_utils", "keras.utils", "load_img", reads=True, python=True),
    *_calls("Keras", "keras.src.utils.image_utils", "keras.utils", "img_to_array", "array_to_img", python=True),
    KnownCall(
        kind="albumentations",
        name="albumentations.Compose",
        module="albumentations.core.composition",
        path="Compose.__call__",
        python=True,
    ),
    *_calls("NumPy", "numpy", "numpy", "fromfile", "load", reads=True),
)
# The rest of the time inside `__getitem__`.
REST = KnownCall(kind="other python", name="other python", module="", path="", python=True)
_NAMES = tuple(dict.fromkeys(call.name for call in (*KNOWN_CALLS, REST)))
# Slots of the shared totals: images, batches, wall and CPU of whole batches, workers busy now and at most, then wall
# and CPU of each name.
_IMAGES, _BATCHES, _WALL, _CPU, _BUSY, _MOST_BUSY, _FIRST = range(7)
# Per-image times that are kept, by threads of this process only.
_MOST_IMAGES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTimes:
    """What the workers spent, over all batches that they made; nanoseconds.

    Attributes:
      workers: busy at once, at most.
      by_call: wall and CPU time in each known call by itself, without the known calls inside it, and in the rest.
      image_ns: (file, wall time until the next file) of images that began with a known call.
    """

    images: int
    batches: int
    wall_ns: int
    cpu_ns: int
    workers: int
    by_call: tuple[tuple[KnownCall, int, int], ...]
    image_ns: tuple[tuple[str, int], ...]


class CallTimer:
    """Times known calls while a batch is made; threads and forked processes add to the same totals."""

    def __init__(self) -> None:
        self._totals = multiprocessing.RawArray("q", _FIRST + 2 * len(_NAMES))
        self._lock = multiprocessing.Lock()
        self._here = threading.local()
        self._image_ns: list[tuple[str, int]] = []

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Puts a timed function in the place of each known one that is imported by now, and takes it out again."""
        replaced: list[tuple[Any, str, Any]] = []
        try:
            for call in KNOWN_CALLS:
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

    def _timed(self, function: Callable[..., Any], call: KnownCall) -> Callable[..., Any]:
        @wraps(function)
        def timed(*arguments: Any, **options: Any) -> Any:
            frames = getattr(self._here, "frames", None)
            if not frames:  # nobody's batch
                return function(*arguments, **options)
            if call.reads and not any(frame.reads for frame in frames):
                self._next_image(arguments)
            frames.append(_Frame(call.name, call.reads))
            try:
                return function(*arguments, **options)
            finally:
                frames.pop().close(frames[-1], self._here.spent)

        return timed

    def _next_image(self, arguments: tuple[Any, ...]) -> None:
        now_ns = clock.now_ns()
        self._close_image(now_ns)
        name = arguments[0] if arguments else ""
        self._here.image = (name if isinstance(name, str) else str(getattr(name, "name", name)), now_ns)

    def _close_image(self, now_ns: int) -> None:
        image = getattr(self._here, "image", None)
        if image is not None and len(self._image_ns) < _MOST_IMAGES:
            self._image_ns.append((image[0], now_ns - image[1]))
        self._here.image = None

    def batch(self, make: Callable[[], Any], images: Callable[[Any], int]) -> Any:
        """Makes a batch and adds its times to the totals."""
        with self._lock:
            self._totals[_BUSY] += 1
            self._totals[_MOST_BUSY] = max(self._totals[_MOST_BUSY], self._totals[_BUSY])
        whole = _Frame(REST.name, reads=False)
        self._here.frames, self._here.spent, self._here.image = [whole], {}, None
        try:
            batch = make()
        finally:
            self._close_image(clock.now_ns())
            self._here.frames = None
            with self._lock:
                self._totals[_BUSY] -= 1
        outside = _Frame("", reads=False)
        whole.close(outside, self._here.spent)
        with self._lock:
            self._totals[_IMAGES] += images(batch)
            self._totals[_BATCHES] += 1
            self._totals[_WALL] += outside.inner_wall_ns
            self._totals[_CPU] += outside.inner_cpu_ns
            for name, (wall_ns, cpu_ns) in self._here.spent.items():
                slot = _FIRST + 2 * _NAMES.index(name)
                self._totals[slot] += wall_ns
                self._totals[slot + 1] += cpu_ns
        return batch

    @property
    def times(self) -> CallTimes:
        """What was spent so far."""
        shown = {call.name: call for call in (*KNOWN_CALLS, REST)}
        slots = {name: _FIRST + 2 * number for number, name in enumerate(_NAMES)}
        return CallTimes(
            images=self._totals[_IMAGES],
            batches=self._totals[_BATCHES],
            wall_ns=self._totals[_WALL],
            cpu_ns=self._totals[_CPU],
            workers=self._totals[_MOST_BUSY],
            by_call=tuple(
                (shown[name], self._totals[slot], self._totals[slot + 1])
                for name, slot in slots.items()
                if self._totals[slot]
            ),
            image_ns=tuple(self._image_ns),
        )


class _Frame:
    """A call that runs: its own time is what the calls inside it leave."""

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
