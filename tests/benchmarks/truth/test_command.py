"""The command that holds our figures against planted truth: its arithmetic, and a small run of each part."""

from __future__ import annotations

import pytest

from benchmarks.truth import __main__ as truth
from benchmarks.truth import watching
from benchmarks.truth.__main__ import Check, main
from benchmarks.truth.planted import Metronome, Sleeper
from tests.planted import planted


def a_check(off: float, bound: float = 3.0) -> Check:
    return Check(group="loading, %", case="a case", truth=50.0, found=50.0 + off, off=off, bound=bound)


@pytest.mark.parametrize(("off", "holds"), [(0.0, True), (3.0, True), (-3.0, True), (3.1, False), (-3.1, False)])
def test_a_figure_holds_up_to_its_bound(off: float, holds: bool) -> None:
    assert a_check(off).holds is holds


@pytest.mark.parametrize(("offs", "exit_code"), [([0.5, -1.0], 0), ([0.5, 9.0], 1)])
def test_the_exit_code_says_whether_every_figure_holds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], offs: list[float], exit_code: int
) -> None:
    def planted() -> list[Check]:
        """Planted."""
        return [a_check(off) for off in offs]

    monkeypatch.setitem(truth._GROUPS, "edges", planted)
    assert main(["--only", "edges"]) == exit_code
    shown = capsys.readouterr().out
    assert f"{2 - exit_code} of 2 figures" in shown


@pytest.mark.slow
@planted
def test_a_cell_of_the_grid_is_near_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truth, "_EPOCH_S", 0.5)
    share, rate = truth._grid_cell("emulated", 0, 20.0, 20.0)
    assert share.truth == pytest.approx(50, abs=5)
    assert abs(share.off) < 6
    assert rate.truth == pytest.approx(250, rel=0.1)  # measured by hand, in a loop that sleeps
    assert abs(rate.off) < 0.1


@planted
def test_counting_finds_a_loader_of_known_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truth, "STEPS_TO_COUNT", (20,))
    (check,) = truth.counting()
    assert abs(check.off) < 0.05  # one step too many or too few would be more


def test_a_metronome_keeps_its_time_whatever_comes_between() -> None:
    metronome, between = Metronome(0.02), Sleeper(0.01)
    whole = Sleeper(0.0)
    metronome()
    before = metronome._next_ns
    for _ in range(5):
        between()
        metronome()
    assert before is not None and metronome._next_ns is not None
    assert metronome._next_ns - before == pytest.approx(5 * 0.02e9)
    assert whole.s == 0.0


@pytest.mark.slow
def test_every_part_of_it_runs() -> None:
    for name in ("edges", "interference", "stages"):
        assert truth._GROUPS[name]()


@pytest.mark.parametrize(
    ("intervals", "exit_code", "line"),
    [
        ([(1.0, 0.995, 1.005)], 0, "The monitor changes images/sec by less than 1 %."),
        ([(0.95, 0.93, 0.98)], 1, "The monitor costs more than 1 %."),
        ([(1.05, 1.02, 1.07)], 1, "Training was more than 1 % faster with the monitor: the comparison is wrong."),
        ([(1.0, 0.9, 1.005)], 4, "Not shown that the monitor changes images/sec by less than 1 %"),
        ([(1.0, 0.995, 1.1)], 4, "Not shown that the monitor changes images/sec by less than 1 %"),
        ([(1.0, 0.9, 1.1)], 4, "Not shown that the monitor changes images/sec by less than 1 %"),
        ([(1.0, 0.9, 1.1), (0.95, 0.93, 0.98)], 1, "The monitor costs more than 1 %."),
        ([(1.0, 0.995, 1.005), (1.0, 0.9, 1.1)], 4, "Not shown that the monitor changes images/sec by less than 1 %"),
    ],
    ids=[
        "inside",
        "below",
        "above",
        "reaches below",
        "reaches above",
        "too wide",
        "refuted and not shown",
        "shown and not shown",
    ],
)
def test_the_monitors_cost_is_judged_on_both_sides_of_1(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    intervals: list[tuple[float, float, float]],
    exit_code: int,
    line: str,
) -> None:
    measured = iter([(ratio, (low, high)) for ratio, low, high in intervals])
    monkeypatch.setattr(watching, "_VARIANTS", ("tf-data-cache", "tf-data-prefetch")[: len(intervals)])
    monkeypatch.setattr(watching, "_ratio", lambda *_: next(measured))
    assert watching.main(["--pairs", "3"]) == exit_code
    assert capsys.readouterr().out.splitlines()[-1].startswith(line)
