"""TraceML beside our own attribution: what is made of the runs, and a run of each where TraceML is installed."""

from __future__ import annotations

import json
from pathlib import Path

import psutil
import pytest

from tests.builders import TRACEML_PAIRS, a_truth_document
from tests.planted import planted
from unstall.benchmarks.lab.options import UserError
from unstall.benchmarks.truth import attributers
from unstall.benchmarks.truth.parser import parser
from unstall.benchmarks.truth.plan import Plan, read
from unstall.benchmarks.truth.report import KIND
from unstall.benchmarks.truth.results import derive
from unstall.benchmarks.truth.samples import Figure, Group
from unstall.profiles.text import Terminal


def shares(**measured: tuple[float, ...]) -> Group:
    truths = (20.0, 22.0)
    figures = [Figure(case="load 5 ms", name=tool, truth=truths, measured=each) for tool, each in measured.items()]
    return Group(name="shares", figures=tuple(figures))


@pytest.mark.parametrize(
    ("ours", "theirs", "held"), [((20.5, 21.0), (40.0, 22.0), True), ((29.0, 30.0), (20.0, 22.0), False)]
)
def test_only_our_shares_are_promised_anything(ours, theirs, held, capsys):
    document = a_truth_document(
        shares(unstall=ours, TraceML=theirs), TRACEML_PAIRS, part="attributers", options={"rounds": 2, "pairs": 3}
    )
    results = derive(document)
    assert results.exit_code == int(not held)
    KIND.print(Terminal(width=80), document, results)
    shown = capsys.readouterr().out
    assert f"{ours[0] - 20:+.1f}" in shown and f"{theirs[0] - 20:+.1f}" in shown
    assert "TraceML      3           1            1        1        0.900 to 1.050" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_what_is_missing_is_said_with_the_remedy(monkeypatch, tmp_path):
    monkeypatch.setattr(attributers.importlib.util, "find_spec", lambda module: None if module == "traceml_ai" else 1)
    plan: Plan = read("attributers", parser("attributers").parse_args([]), tmp_path)
    with pytest.raises(UserError, match="pip install traceml-ai==0.5.0"):
        attributers.open_run(plan, None, None)
    monkeypatch.setattr(attributers.importlib.util, "find_spec", lambda module: 1)
    monkeypatch.setattr(attributers, "_PROGRAM", tmp_path / "traceml")
    with pytest.raises(UserError, match="needs traceml beside this Python"):
        attributers.open_run(plan, None, None)


@pytest.mark.slow  # 10 s for what `benchmarks.truth --only attributers` does first of all
@planted
@pytest.mark.needs("torch")
def test_the_script_notes_its_own_waiting_and_we_find_it(tmp_path):
    (tmp_path / "planted.py").write_text(attributers._SCRIPT)
    truth, share = attributers._by_unstall(tmp_path, ["10", "10", "0", "60"])
    assert 0.35 < truth < 0.6
    assert share == pytest.approx(truth, abs=0.05)


@pytest.mark.slow  # 60 s: TraceML starts several processes for each run
@pytest.mark.needs("traceml_ai")
def test_traceml_is_run_and_its_share_and_comparison_are_read(tmp_path: Path):
    (tmp_path / "planted.py").write_text(attributers._SCRIPT)
    truth, share = attributers._by_traceml(tmp_path, ["10", "10", "0", "60"])
    assert share == pytest.approx(truth, abs=0.05)
    compared = attributers._pair(tmp_path, ["5", "5", "0", "60"])
    assert compared.answer in ("regression", "improvement", "equivalent")
    assert 0.5 < compared.figures["ratio"][0] < 2
    assert json.loads((tmp_path / "compared.json").read_text())["verdict"]


def test_another_version_of_traceml_is_refused_in_a_line():
    with pytest.raises(UserError, match="as version 0.5.0 writes it"), attributers._its_own_fields():
        {}["step_time"]


def test_a_run_that_hangs_is_ended_with_all_that_it_has_started(tmp_path, monkeypatch):
    monkeypatch.setattr(attributers, "_TIMEOUT_S", 1.0)
    with pytest.raises(UserError, match="did not end within 1 s"):
        attributers._run(tmp_path, ["sh", "-c", "sleep 77.25 & sleep 77.25"], {})
    started = [one for one in psutil.process_iter(["cmdline"]) if one.info["cmdline"] == ["sleep", "77.25"]]
    _, left = psutil.wait_procs(started, timeout=5)  # the kernel ends a killed process a moment later
    assert left == []


def test_a_run_that_fails_ends_with_what_it_said_last(tmp_path):
    (tmp_path / "planted.py").write_text("raise RuntimeError('no such loader')\n")
    with pytest.raises(UserError, match="no such loader"):
        attributers._by_unstall(tmp_path, ["0", "0", "0", "1"])
