"""What is said while data are read again, on a terminal and elsewhere."""

from __future__ import annotations

import io
from collections.abc import Mapping

import pytest
from rich import console as console_module
from rich import jupyter
from rich.console import Console

from tests.fakes import FakeClock
from unstall.profiles.text import Terminal
from unstall.profiles.trial.progress import Progress, ReadingProgress, TrialProgress

FITS = {"fit 1 (train.py:42)": "fit 1", "fit 2 (train.py:50)": "fit 2"}
FIRST = "fit 1 (train.py:42)"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    return FakeClock(monkeypatch)


def read(console: Console, clock: FakeClock, fits: Mapping[str, str] = {FIRST: "fit 1"}) -> None:
    """Acts as a reading that takes 1 s before the first of its eight runs, and 2 s for each run."""
    with ReadingProgress(console, fits) as said:
        for fit in fits:
            said.begin(fit)
            clock.sleep(1)
            for done in range(9):
                said.note(done, 8)
                clock.sleep(2)


def test_elsewhere_a_line_stands_before_the_reading_and_one_behind_it(clock: FakeClock) -> None:
    file = io.StringIO()
    read(Terminal(file=file), clock, FITS)
    assert file.getvalue() == (
        "reading the stages of 2 fits; Ctrl-C leaves them out\nreading the stages of 2 fits took 38 s\n"
    )


def test_a_terminal_says_how_far_the_reading_is(clock: FakeClock) -> None:
    file = io.StringIO()
    read(Terminal(file=file, force_terminal=True, width=120), clock, FITS)
    text = file.getvalue()
    assert "reading the stages of fit 1 (train.py:42); then fit 2 (Ctrl-C leaves them out)" in text
    assert "reading the stages of fit 1 (train.py:42): 3 of 8, about 10 s left; then fit 2 (Ctrl-C" in text
    assert "reading the stages of fit 2 (train.py:50): 7 of 8, about 2 s left (Ctrl-C leaves them out)" in text
    assert text.splitlines()[-1].endswith("reading the stages of 2 fits took 38 s\x1b[0m")


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (91, "reading the stages of fit 1 (train.py:42): 3 of 8, about 10 s left (Ctrl-C leaves them out)"),
        (80, "reading the stages of fit 1 (train.py:42): 3 of 8, about 10 s left\x1b"),
        (60, "reading the stages of fit 1: 3 of 8, about 10 s left\x1b"),
        (40, "reading fit 1: 3 of 8, about 10 s left\x1b"),
        (20, "reading fit 1: 3 of…"),
    ],
)
def test_a_narrow_terminal_keeps_to_one_line(clock: FakeClock, width: int, line: str) -> None:
    file = io.StringIO()
    read(Terminal(file=file, force_terminal=True, width=width), clock)
    assert line in file.getvalue()


def test_nothing_is_said_where_nothing_is_read(clock: FakeClock) -> None:
    file = io.StringIO()
    read(Terminal(file=file, force_terminal=True), clock, {})
    assert file.getvalue() == ""


def test_a_reading_that_was_given_up_says_nothing_more(clock: FakeClock) -> None:
    file = io.StringIO()
    with ReadingProgress(Terminal(file=file, force_terminal=True), FITS) as said:
        said.begin(FIRST)
    before = file.getvalue()
    said.note(0, 8)
    said.note(1, 8)
    assert file.getvalue() == before


def test_a_trial_says_how_far_it_is_of_its_budget_and_how_that_is_set(clock: FakeClock) -> None:
    file = io.StringIO()
    console = Terminal(file=file, force_terminal=True, width=120)
    with TrialProgress(console, "train", 60, "budget_s; Ctrl-C ends it") as progress:
        clock.sleep(7)
        progress.say("round 2: cache")
        clock.sleep(2)
    text = file.getvalue()
    assert "trying remedies for train on its own data and model, for up to 60 s (budget_s; Ctrl-C ends it)" in text
    assert "7 of 60 s: round 2: cache" in text and "trying remedies took 9 s" in text


def test_elsewhere_what_takes_long_has_a_line_before_it_and_one_behind_it(clock: FakeClock) -> None:
    file = io.StringIO()
    with Progress(Terminal(file=file), "measuring train", what="measuring") as progress:
        clock.sleep(3)
        progress.say("round 1 of 5")
    assert file.getvalue() == "\nmeasuring train\nmeasuring took 3 s\n"


def test_in_a_notebook_everything_goes_to_the_file_and_nothing_into_the_cell(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rich puts what it prints into the cell, whatever the file is, and needs ipywidgets for a line that changes."""
    monkeypatch.setattr(console_module, "_is_jupyter", lambda: True)
    monkeypatch.setattr(jupyter, "display", lambda *what: pytest.fail("something was put into the cell"))
    assert Console().is_jupyter
    file = io.StringIO()
    with Progress(Terminal(file=file), "measuring train", what="measuring") as progress:
        progress.say("round 1 of 5")
    assert file.getvalue() == "\nmeasuring train\nmeasuring took 0 s\n"


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_closed_terminal_is_no_error(clock: FakeClock, is_terminal: bool) -> None:
    file = io.StringIO()
    console = Terminal(file=file, force_terminal=is_terminal)
    file.close()
    read(console, clock)
