"""Loaders that are neither Keras' nor tf.data's, read by a plain loop, on a clock of planted times."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from unstall.profiles.gate.feed import CALLS, FIT, LOOP, Feed
from unstall.profiles.gate.loop_windows import LoopWindows

BATCH = np.zeros((5, 4, 4, 3), np.float32), np.zeros(5)


class Planted:
    """Batches of five images: the first of an epoch takes 100 ms, the others 10 ms, the end 50 ms.

    Attributes:
      epochs: how many were read.
    """

    num_workers = 0

    def __init__(self, batches: int, advance: Callable[[float], None]) -> None:
        self._batches, self._advance, self.epochs = batches, advance, 0

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        self.epochs += 1
        for number in range(self._batches):
            self._advance(0.01 if number else 0.1)
            yield BATCH
        self._advance(0.05)


@pytest.fixture
def advance(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    now_ns = [0]
    monkeypatch.setattr("unstall.profiles.clock.now_ns", lambda: now_ns[0])

    def go_on(seconds: float) -> None:
        now_ns[0] += round(seconds * 1e9)

    return go_on


def test_steady_steps_and_whole_epochs_have_the_planted_rates(advance: Callable[[float], None]) -> None:
    data = Planted(21, advance)
    windows = LoopWindows(data, 1, 10.0)
    assert (windows.images, data.epochs) == (105, 2)
    assert windows.rates() == pytest.approx({"steady": 500.0, "epoch": 105 / 0.35})
    assert data.epochs == 4  # half a second of epochs of 350 ms


def test_batches_of_workers_that_arrive_together_are_counted_in_whole_turns(advance: Callable[[float], None]) -> None:
    """Of 21 batches by four workers the first five are not steady: 4, and the 21st that fills no turn."""
    windows = LoopWindows(Planted(21, advance), 4, 10.0)
    assert windows._steady.first == 5
    assert windows.rates()["steady"] == pytest.approx(500.0)


def test_the_only_batch_of_an_epoch_stands_for_its_steady_steps(advance: Callable[[float], None]) -> None:
    """As where `fit` reads: the step counts, and the end of the epoch is an edge."""
    assert LoopWindows(Planted(1, advance), 1, 10.0).rates() == pytest.approx({"steady": 5 / 0.1, "epoch": 5 / 0.15})


def test_all_steps_of_an_epoch_too_short_for_two_turns_of_its_workers_count(advance: Callable[[float], None]) -> None:
    """As where `fit` reads: 7 batches by four workers take 160 ms, and the end of the epoch 50 ms."""
    rates = LoopWindows(Planted(7, advance), 4, 10.0).rates()
    assert rates == pytest.approx({"steady": 35 / 0.16, "epoch": 35 / 0.21})


def test_an_epoch_that_takes_too_long_is_ended(advance: Callable[[float], None]) -> None:
    with pytest.raises(ValueError, match=r"An epoch must end within 0 s\. Received: 32 batches and no end\."):
        LoopWindows(Planted(10**9, advance), 1, 0.4)


@pytest.mark.parametrize(
    ("feed", "reading"), [([BATCH] * 3, LOOP), (lambda: iter([BATCH] * 3), LOOP), (lambda: 7, CALLS)]
)
def test_data_of_neither_are_read_so_whether_keras_is_there_or_not(
    feed: object, reading: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unstall.profiles.gate.loop_windows.TRAIN_WINDOW_S", 0.001)
    monkeypatch.setattr("unstall.profiles.gate.feed.TRAIN_WINDOW_S", 0.001)
    with_keras = Feed(feed)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("keras", "tensorflow")]:
        monkeypatch.setitem(sys.modules, name, None)
    without = Feed(feed)
    assert with_keras.reading == without.reading == reading != FIT
    assert with_keras.images_served == without.images_served
    assert with_keras.rates().keys() == without.rates().keys()
