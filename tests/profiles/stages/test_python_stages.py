"""Known calls inside a batch: each is charged its own time, whichever thread or process makes the batch."""

from __future__ import annotations

import multiprocessing
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import PIL.Image
import pytest

from tests.builders import MS
from tests.fakes import FakeClock
from tests.planted import planted
from unstall.profiles import clock
from unstall.profiles.stages import call_timer
from unstall.profiles.stages.call_timer import LIBRARY_CALLS, REST, CallTimer, LibraryCall, note_processes


def spend(cpu_s: float = 0.0, wait_s: float = 0.0) -> None:
    until = time.thread_time() + cpu_s
    while time.thread_time() < until:
        pass
    time.sleep(wait_s)


class Library:
    """Stands for a library whose functions are known."""

    @staticmethod
    def read(path: str) -> None:
        spend(cpu_s=0.004)
        Library.inner()

    @staticmethod
    def inner() -> None:
        spend(wait_s=0.006)


@pytest.fixture
def exact(known: None, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the known calls spend the time of a fake clock."""
    monkeypatch.setitem(globals(), "spend", fake_clock.spend)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    module = __name__
    calls = (
        LibraryCall(kind="Library", name="read", module=module, path="Library.read", reads=True),
        LibraryCall(kind="Library", name="inner", module=module, path="Library.inner"),
    )
    monkeypatch.setattr(call_timer, "LIBRARY_CALLS", calls)
    monkeypatch.setattr(call_timer, "_NAMES", ("read", "inner", REST.name))


def one_image(images: int = 1) -> int:
    return images


def make() -> int:
    Library.read("cats/1.jpg")
    Library.read("cats/2.jpg")
    spend(cpu_s=0.01)
    return 2


def ms_of(timer: CallTimer) -> dict[str, tuple[float, float]]:
    return {call.name: (wall_ns / 1e6, cpu_ns / 1e6) for call, wall_ns, cpu_ns in timer.times.by_call}


@pytest.mark.usefixtures("exact")
def test_each_call_is_charged_its_own_time() -> None:
    timer = CallTimer()
    with timer.installed():
        assert timer.batch(make, one_image) == 2
    assert ms_of(timer) == {"read": (8, 8), "inner": (12, 0), "other python": (10, 10)}
    times = timer.times
    assert (times.images, times.batches, times.wall_ns, times.cpu_ns) == (2, 1, 30 * MS, 18 * MS)


@pytest.mark.usefixtures("exact")
def test_an_image_lasts_from_its_file_to_the_next() -> None:
    timer = CallTimer()
    with timer.installed():
        timer.batch(make, one_image)
    # What follows the last image is part of it.
    assert timer.times.image_ns == (("cats/1.jpg", 10 * MS), ("cats/2.jpg", 20 * MS))


@planted
@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_workers_add_to_the_same_totals(kind: str) -> None:
    timer = CallTimer()

    def work() -> None:
        for _ in range(3):
            timer.batch(make, one_image)

    with timer.installed():
        context = multiprocessing.get_context("fork")
        workers: list[Any] = [
            threading.Thread(target=work) if kind == "threads" else context.Process(target=work) for _ in range(2)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(30)
    times = timer.times
    assert (times.batches, times.images, times.workers) == (6, 12, 2)
    assert ms_of(timer)["read"][1] == pytest.approx(6 * 8, rel=0.3)


@pytest.mark.parametrize("kind", ["map", "imap", "executor"])
def test_work_in_a_pool_of_the_scripts_is_waited_for_in_the_pool_and_its_processes_are_named(kind: str) -> None:
    context, timer = multiprocessing.get_context("fork"), CallTimer()
    with context.Pool(1) as pool, ProcessPoolExecutor(1, mp_context=context) as executor, timer.installed():
        list(executor.map(spend, [0.0]))
        worked = note_processes()
        assert worked() == []
        ways = {"map": pool.map, "imap": pool.imap, "executor": executor.map}
        timer.batch(lambda: len(list(ways[kind](spend, [0.06]))), one_image)
        assert worked() == ["the script's own processes"]
    name = "concurrent.futures" if kind == "executor" else "multiprocessing.Pool"
    times = ms_of(timer)
    assert max(times, key=lambda call: times[call][0]) == name and times[name][0] > 50
    assert note_processes()() == []


@pytest.mark.usefixtures("known")
def test_calls_outside_a_batch_are_nobodys() -> None:
    timer = CallTimer()
    with timer.installed():
        Library.read("cats/1.jpg")
    assert timer.times.by_call == ()


@pytest.mark.usefixtures("known")
def test_functions_are_put_back_after_an_error() -> None:
    before = Library.read
    timer = CallTimer()

    def fail() -> int:
        Library.read("cats/1.jpg")
        raise OSError("broken")

    with pytest.raises(OSError, match="broken"), timer.installed():
        timer.batch(fail, one_image)
    assert Library.read is before
    assert timer.times.batches == 0


def test_pillow_and_opencv_are_known(tmp_path: Path) -> None:
    image = np.random.default_rng(0).integers(0, 255, (400, 400, 3)).astype(np.uint8)
    path = str(tmp_path / "photo.jpg")
    cv2.imwrite(path, image)
    PIL.Image.open(path).close()  # the very first imports the decoders
    timer = CallTimer()

    def load() -> int:
        with PIL.Image.open(path) as opened:
            opened.convert("L").resize((64, 64))
        cv2.resize(cv2.imread(path), (64, 64))
        return 2

    with timer.installed():
        timer.batch(load, one_image)
    found = ms_of(timer)
    assert {"PIL.Image.open", "PIL.Image.load", "PIL.Image.resize", "cv2.imread", "cv2.resize"} <= set(found)
    assert found["PIL.Image.load"][1] > found["PIL.Image.open"][1]  # Pillow decodes in `load`


def test_every_known_call_that_can_be_imported_is_there() -> None:
    import importlib
    import importlib.util

    missing = []
    for call in LIBRARY_CALLS:
        if call.kind == "torchvision" and importlib.util.find_spec("torchvision") is None:
            continue  # no requirement of ours, and not installed
        owner: Any = importlib.import_module(call.module)
        for part in call.path.split("."):
            owner = getattr(owner, part, None)
        if not callable(owner):
            missing.append(call)
    assert missing == []


def test_a_timer_costs_little() -> None:
    timer = CallTimer()
    image = np.zeros((8, 8, 3), np.uint8)

    def many() -> int:
        for _ in range(1000):
            cv2.flip(image, 1)
        return 1000

    with timer.installed():
        timer.batch(many, one_image)
    began_ns = clock.thread_cpu_ns()
    many()
    plain_ns = clock.thread_cpu_ns() - began_ns
    assert (timer.times.cpu_ns - plain_ns) / 1000 < 20_000  # well below what decoding a photo costs
