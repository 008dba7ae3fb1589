"""The document of a script: what ended it before its end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from unstall.profiles.measure.epochs import KEPT_EPOCHS
from unstall.profiles.script.report import _broken, report_on


def a_watcher(**steps: int | list[int]) -> Any:
    """Returns a watcher whose fits have epochs of so many steps, none of which says what was loading."""

    def a_fit(name: str, epochs: list[int]) -> Any:
        trains = name not in ("evaluate", "predict")
        return SimpleNamespace(trains=trains, epochs=[SimpleNamespace(steps=each) for each in epochs])

    fits = [a_fit(name, each if isinstance(each, list) else [each]) for name, each in steps.items()]
    return SimpleNamespace(fits=fits)


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ({"fit": [20, 13], "loop": 4, "evaluate": 7, "predict": 9}, "ValueError after 37 steps"),
        ({"fit": 1}, "ValueError after 1 step"),
        ({"fit": [10] * KEPT_EPOCHS}, f"ValueError after at least {10 * KEPT_EPOCHS:,} steps"),
    ],
)
def test_what_ended_a_script_is_told_with_its_steps_of_training(steps: dict[str, Any], said: str) -> None:
    assert _broken(ValueError("no more"), [a_watcher(**steps)]) == said


def test_a_script_that_an_error_ended_has_a_document_that_is_not_complete() -> None:
    assert not report_on([], script="train.py", broken_by=ValueError()).complete
    assert report_on([], script="train.py").samples.broken is None
