"""What only the edges of epochs show: decoding in front of a shuffle that holds all images, and a slow start."""

from __future__ import annotations

import functools
import json
import pathlib

import pytest

from tests import PROJECT_ROOT
from tests.fakes import GateChildHere
from tests.planted import planted
from unstall.benchmarks.gate import __main__ as gate
from unstall.benchmarks.gate import child, processes
from unstall.profiles.gate import anchors
from unstall.profiles.gate.feed import Feed
from unstall.profiles.measure.schedule import epochs_for

SLOWER = [("decoded_once", "decoded_twice"), ("quick_start", "slow_start")]
# Figures that may decide. Behind a shuffle that holds the epoch no step is steady: both figures are the epoch's own.
JUDGED = {"decoded_twice": {"steady", "epoch"}, "slow_start": {"epoch"}}


@pytest.fixture
def in_this_process(monkeypatch, tmp_path):
    """Measures a short window in this process for each that would be a fresh one, beside anchors that never change."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(processes, "Child", GateChildHere)
    monkeypatch.setattr(processes, "WINDOWS", 1)
    monkeypatch.setattr(child, "Feed", functools.cache(Feed))  # warmed up once
    monkeypatch.setattr("unstall.profiles.gate.fit_windows.epochs_for", functools.partial(epochs_for, window_s=0.05))
    monkeypatch.setattr("unstall.profiles.gate.loop_windows.TRAIN_WINDOW_S", 0.05)
    for name, rate in (("decode", 2000.0), ("copy", 100.0)):
        monkeypatch.setattr(anchors, name, lambda rate=rate: rate)
    monkeypatch.setattr(anchors, "Resident", lambda: lambda: 500.0)


def decision(words):
    code = gate.main([*words, "--out", "out"])
    values = json.loads(pathlib.Path("out/results.json").read_text())
    if "comparisons" in values:
        (values,) = values["comparisons"].values()
    return code, values["decision"]


def assert_a_regression(words, slower, capsys):
    """Runs the gate, holds that it finds the slower loader's regression, and returns the figures that it compared."""
    code, decided = decision(words)
    print(capsys.readouterr().out)
    assert (code, decided["verdict"]) == (1, "regression") and decided["figure"] in JUDGED[slower]
    return decided["figures"]


@pytest.mark.long
@planted
@pytest.mark.parametrize(("a", "b"), [pytest.param(*SLOWER[0], marks=pytest.mark.claims), SLOWER[1]])
def test_a_slower_epoch_is_a_regression(in_this_process, capsys, a, b):
    figures = assert_a_regression(("compare", f"tests.edges:{a}", f"tests.edges:{b}"), b, capsys)
    assert figures["epoch"]["ratio"] < 0.7
    steady = figures["epoch"]["ratio"] if "steady" in JUDGED[b] else 1.0
    assert figures["steady"]["ratio"] == pytest.approx(steady, abs=0.1)


@planted
@pytest.mark.claims
@pytest.mark.parametrize(("a", "b"), SLOWER)
def test_a_check_finds_a_slower_epoch(in_this_process, monkeypatch, capsys, a, b):
    from tests import edges

    words = ("--subject", f"tests.edges:{a}", "--baselines", "speed")
    assert gate.main(["record", "loader", *words, "--out", "out"]) == 0
    monkeypatch.setattr(edges, a, getattr(edges, b))
    assert_a_regression(("check", "loader", *words), b, capsys)


@planted
@pytest.mark.claims
@pytest.mark.parametrize(("a", "b"), SLOWER)
def test_a_slower_epoch_does_not_reach_a_floor(in_this_process, capsys, a, b):
    assert_a_regression(("compare", f"tests.edges:{a}", f"tests.edges:{b}", "--at-least", "0.9"), b, capsys)


@pytest.mark.slow
@planted
@pytest.mark.parametrize(("a", "b"), SLOWER)
def test_fresh_processes_find_it_too(monkeypatch, tmp_path, capsys, a, b):
    monkeypatch.chdir(PROJECT_ROOT)
    out = tmp_path / "out"
    assert gate.main(["compare", f"tests.edges:{a}", f"tests.edges:{b}", "--out", str(out)]) == 1
    (comparison,) = json.loads((out / "results.json").read_text())["comparisons"].values()
    assert comparison["decision"]["figure"] in JUDGED[b]
