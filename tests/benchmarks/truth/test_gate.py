"""The gate's truth: what is kept, what goes on where it was stopped, and what counts as held."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest

from benchmarks.gate.samples import Process
from benchmarks.truth import gate
from benchmarks.truth.gate import PARTS
from benchmarks.truth.gate_faults import Fault, faults
from pipeline.commands.terminal import Stopped


@pytest.fixture
def rates(monkeypatch):
    """Made-up rates by label; A is `as_it_is`."""
    made_up = {"as_it_is": 1000.0, "slower_by_20": 800.0}
    counted = {"asked": 0, "stops_at": None}

    def measure(subject, setting, log):
        counted["asked"] += 1
        if counted["asked"] == counted["stops_at"]:
            raise Stopped(2)
        return Process(rates={"epoch": (made_up[subject.label] + counted["asked"] % 7,)})

    monkeypatch.setattr(gate, "measure", measure)
    return counted


def test_every_try_is_kept_and_summed_up(rates, tmp_path, capsys):
    assert gate.main(["--out", str(tmp_path), "--only", "slower-20", "--tries", "3"]) == 0
    tries = [json.loads(line) for line in (tmp_path / "slower-20.jsonl").read_text().splitlines()]
    assert [one["decision"]["verdict"] for one in tries] == ["regression"] * 3
    printed = capsys.readouterr().out
    assert "20 % planted" in printed and "regr. 95%" in printed
    assert max(map(len, printed.splitlines())) <= 80


def test_it_goes_on_where_it_was_stopped(rates, tmp_path, capsys):
    words = ["--out", str(tmp_path), "--only", "slower-20", "--tries", "3"]
    rates["stops_at"] = 45  # in the third try, of twenty measurements each
    assert gate.main(words) == 130
    assert "call it again with the same --out" in capsys.readouterr().err
    path = tmp_path / "slower-20.jsonl"
    assert path.read_text().count("\n") == 2
    rates["asked"] = 100
    assert gate.main(words) == 0
    assert rates["asked"] == 120
    assert path.read_text().count("\n") == 3


def test_a_try_behind_one_that_was_written_half_is_not_lost(rates, tmp_path):
    words = ["--out", str(tmp_path), "--only", "slower-20", "--tries", "2"]
    assert gate.main(words) == 0
    path = tmp_path / "slower-20.jsonl"
    path.write_text(path.read_text()[:-100])
    assert gate.main(words) == 0
    assert len(gate._read(path)) == 2


def test_what_does_not_hold_is_exit_code_1(rates, tmp_path, monkeypatch):
    monkeypatch.setattr(gate, "_subject", lambda loss: gate.Subject(label="as_it_is", kind="", text=""))
    assert gate.main(["--out", str(tmp_path), "--only", "slower-20", "--tries", "1"]) == 1


@pytest.mark.parametrize(
    ("part", "verdicts", "holds"),
    [
        ("same", {"same": 19, "inconclusive": 1}, True),
        ("same", {"same": 19, "regression": 1}, False),
        ("same", {"same": 19, "improved": 1}, False),
        ("slower-5", {"inconclusive": 15, "regression": 5}, True),
        ("slower-5", {"improved": 1}, False),
        ("slower-20", {"regression": 19, "inconclusive": 1}, True),
        ("slower-20", {"regression": 18, "inconclusive": 2}, False),
        ("same-burned", {"inconclusive": 20}, True),
        ("same-burned", {"inconclusive": 19, "failed": 1}, False),
        ("slower-5", {"failed": 20}, False),
        ("same-burned", {"inconclusive": 19, "regression": 1}, False),
    ],
)
def test_what_is_promised_of_each_part(part, verdicts, holds):
    assert PARTS[part].holds(Counter(verdicts)) is holds


def test_no_tries_is_bad_input(tmp_path, capsys):
    assert gate.main(["--out", str(tmp_path), "--tries", "0"]) == 2
    assert "--tries must be at least 1. Received: 0." in capsys.readouterr().err


def test_false_alarms_are_simulated_with_the_spread_of_this_machine(rates, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(gate, "_MANY", 2000)
    assert gate.main(["--out", str(tmp_path), "--only", "simulation"]) == 0
    assert "supposed: nothing was measured yet" in capsys.readouterr().out
    gate.main(["--out", str(tmp_path), "--only", "same", "--only", "simulation", "--tries", "1"])
    printed = capsys.readouterr().out
    assert re.search(
        r"one measurement varies by 0\.\d% \(of this machine, by 6 pairs of the same\)", " ".join(printed.split())
    )
    assert max(map(len, printed.splitlines())) <= 80


def test_a_fault_with_another_exit_code_is_found(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(gate, "faults", lambda: (Fault(name="no data", run=lambda: 1, promised=3),))
    assert gate.main(["--out", str(tmp_path), "--only", "faults"]) == 1
    assert "no data" in capsys.readouterr().out


def test_no_fault_may_end_with_1():
    assert {fault.promised for fault in faults()} == {3, 130}


@pytest.mark.parametrize(
    "name", ["another machine's baseline", "a baseline of one sample", "no data: the folder is empty"]
)
def test_faults_that_need_no_tensorflow_end_as_promised(name):
    (fault,) = (one for one in faults() if one.name == name)
    assert fault.run() == fault.promised


@pytest.mark.slow
def test_every_other_fault_ends_as_promised():
    assert {fault.name: fault.run() for fault in faults()} == {fault.name: fault.promised for fault in faults()}
