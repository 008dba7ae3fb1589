"""The lines of a user's code that a loader spends its time in, and how large its images are decoded."""

from __future__ import annotations

import functools
import io
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.planted import planted
from unstall.profiles.stages.decoded import pixels_decoded
from unstall.profiles.stages.users_lines import LinesWithin, users_lines

MODULE = """
import time
import textwrap


class Words:
    def __getitem__(self, index):
        tokens = self.tokens(
            index,
        )
        time.sleep(0.001)
        return [token for token in tokens]

    def tokens(self, index):
        time.sleep(0.008); return [index]
"""


@pytest.fixture
def words(tmp_path: Path) -> Any:
    """A data set in a file of the user's, that sleeps 8 ms on one line and 1 ms on another."""
    (tmp_path / "words.py").write_text(MODULE)
    names: dict[str, Any] = {}
    exec(compile(MODULE, str(tmp_path / "words.py"), "exec"), names)
    return names["Words"]()


@planted
def test_the_line_is_named_with_what_it_calls_and_its_part_of_the_time(words: Any) -> None:
    first, second = users_lines(lambda: words[3])
    assert (first.location, first.code) == ("words.py:15", "time.sleep(...)")
    assert first.ratio == pytest.approx(8 / 9, abs=0.05)
    assert (second.location, second.code) == ("words.py:11", "time.sleep(...)")


@planted
def test_what_a_library_does_counts_for_the_line_that_calls_it(tmp_path: Path) -> None:
    source = "import textwrap\n\ndef fill(text):\n    return textwrap.TextWrapper(width=20).fill(text=text)\n"
    (tmp_path / "fills.py").write_text(source)
    names: dict[str, Any] = {}
    exec(compile(source, str(tmp_path / "fills.py"), "exec"), names)
    [line] = users_lines(lambda: names["fill"]("a word and another " * 200))
    assert (line.location, line.code) == ("fills.py:4", "textwrap.TextWrapper(...).fill(...)")
    assert line.ratio > 0.9


BUSY = """
import time

def work(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        sum(range(200))

def make():
    work(0.02)
    time.sleep(0.02)
"""


@planted
def test_a_line_that_holds_pythons_lock_counts_for_its_whole_time(tmp_path: Path) -> None:
    (tmp_path / "busy.py").write_text(BUSY)
    names: dict[str, Any] = {}
    exec(compile(BUSY, str(tmp_path / "busy.py"), "exec"), names)
    lines = users_lines(names["make"])
    slept = sum(line.ratio for line in lines if line.location == "busy.py:11")
    assert slept == pytest.approx(0.5, abs=0.1)


GENERATES = """
import time

def batches():
    while True:
        time.sleep(0.012)
        yield read()

def read():
    time.sleep(0.004)
    return 1
"""


@planted
def test_a_generator_that_another_thread_reads_is_looked_at_and_not_what_reads_it(tmp_path: Path) -> None:
    (tmp_path / "generates.py").write_text(GENERATES)
    names: dict[str, Any] = {}
    exec(compile(GENERATES, str(tmp_path / "generates.py"), "exec"), names)
    batches = names["batches"]()
    watched = LinesWithin(batches.gi_code)
    watched.begin()

    def train() -> None:
        for _ in range(60):
            next(batches)
            time.sleep(0.01)

    trains = threading.Thread(target=train)
    trains.start()
    trains.join()
    watched.end()
    assert [(line.location, line.code) for line in watched.seen] == [
        ("generates.py:6", "time.sleep(...)"),
        ("generates.py:10", "time.sleep(...)"),
    ]
    assert watched.seen[0].ratio == pytest.approx(3 / 4, abs=0.1)


@planted
def test_code_without_lines_of_the_users_has_none() -> None:
    assert users_lines(functools.partial(time.sleep, 0.01)) == ()


@pytest.fixture
def jpeg() -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.zeros((96, 128, 3), np.uint8)).save(file, "JPEG")
    return file.getvalue()


def test_images_are_told_as_they_are_decoded_and_as_the_batch_has_them(jpeg: bytes) -> None:
    import cv2
    from PIL import Image

    def by_pillow() -> Any:
        image = Image.open(io.BytesIO(jpeg)).convert("RGB").resize((16, 8)).resize((16, 8))
        return np.asarray(image)[None], 0

    def by_opencv() -> Any:
        image = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_REDUCED_COLOR_2)
        return cv2.resize(image, (16, 8)).transpose(2, 0, 1)[None], 0

    def by_draft() -> Any:
        image = Image.open(io.BytesIO(jpeg))
        image.draft("RGB", (32, 24))
        return np.asarray(image)[None]

    assert pixels_decoded(by_pillow, channels_axis=-1) == (96 * 128, 8 * 16)
    assert pixels_decoded(by_opencv, channels_axis=1) == (48 * 64, 8 * 16)
    assert pixels_decoded(by_draft, channels_axis=-1) == (24 * 32, 24 * 32)
    assert pixels_decoded(lambda: [np.zeros(3)], channels_axis=-1) == (None, None)
    assert pixels_decoded(by_pillow, channels_axis=1)[1] is None
