"""How long windows last."""

from __future__ import annotations

import pytest

from tests.builders import MS, a_sample
from unstall.profiles.measure.schedule import (
    LEAST_STEPS,
    LOADER_ROUNDS,
    READY_WINDOW_S,
    ROUNDS,
    TRAIN_WINDOW_S,
    epochs_for,
    steps_for,
)


def test_the_schedule_is_that_of_the_design() -> None:
    assert ROUNDS >= 5 and LOADER_ROUNDS >= 3
    assert (TRAIN_WINDOW_S, READY_WINDOW_S) == (0.5, 0.3)


@pytest.mark.parametrize(
    ("epoch_ms", "epochs"), [(500, 1), (501, 1), (5000, 1), (499, 2), (250, 2), (249, 3), (100, 5), (1, 500)]
)
def test_epochs_fill_a_window(epoch_ms: int, epochs: int) -> None:
    assert epochs_for(a_sample("warmup", epoch_ns=epoch_ms * MS)) == epochs


@pytest.mark.parametrize(("step_ms", "steps"), [(14, 22), (10, 30), (1, 300)])
def test_steps_fill_a_window(step_ms: int, steps: int) -> None:
    assert steps_for(a_sample("resident", ms=step_ms)) == steps


def test_slow_steps_are_never_fewer_than_the_least() -> None:
    assert steps_for(a_sample("resident", ms=1000)) == LEAST_STEPS
