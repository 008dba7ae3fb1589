"""Ctrl-C that Python drops while it frees an object, or searches for garbage."""

from __future__ import annotations

import gc
import os
import signal
import time
from typing import Any

import pytest

from unstall.profiles.script.interrupts import ctrl_c_comes_through


class Interrupted:
    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):  # Python answers signals between its instructions
            pass


def interrupted_search(phase: str, facts: Any) -> None:
    gc.callbacks.remove(interrupted_search)
    Interrupted().__del__()


def frees() -> None:
    Interrupted()
    time.sleep(10)


def searches() -> None:
    gc.callbacks.append(interrupted_search)
    gc.collect()
    time.sleep(10)


@pytest.mark.parametrize("drops", [frees, searches])
def test_ctrl_c_that_python_drops_comes_again(drops: Any) -> None:
    with pytest.raises(KeyboardInterrupt), ctrl_c_comes_through():
        drops()


def test_other_errors_that_python_drops_are_told_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[type] = []
    monkeypatch.setattr("sys.unraisablehook", lambda dropped: told.append(dropped.exc_type))

    class Fails:
        def __del__(self) -> None:
            raise ValueError

    with ctrl_c_comes_through():
        Fails()
    Fails()
    assert told == [ValueError, ValueError]
