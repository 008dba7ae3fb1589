"""The gate's truth: what is kept, what goes on where it was stopped, and what counts as held."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest

from tests.builders import a_counting_group, a_truth_document
from unstall.benchmarks.gate import processes
from unstall.benchmarks.gate.samples import Process
from unstall.benchmarks.lab.show import show
from unstall.benchmarks.truth import gate, gate_faults
from unstall.benchmarks.truth.__main__ import main
from unstall.benchmarks.truth.gate_faults import Fault, faults
from unstall.benchmarks.truth.promises import GATE_PARTS
from unstall.benchmarks.truth.report import KIND
from unstall.pipeline.commands.terminal import Stopped
from unstall.profiles.report import load, write


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

    monkeypatch.setattr(processes, "measure", measure)
    return counted


def run(out, *words):
    return main(["--only", "gate", "--out", str(out), *words])


def attempts_in(out):
    document, _ = load(out, {"truth": KIND})
    return {case.name: case.attempts for group in document.samples.groups for case in group.cases}


def test_every_try_is_kept_and_summed_up(rates, tmp_path, capsys):
    assert run(tmp_path, "--only", "slower-20", "--tries", "3") == 0
    attempts = attempts_in(tmp_path)["slower-20"]
    assert [attempt.answer for attempt in attempts] == ["regression"] * 3
    assert {len(attempt.figures["A epoch"]) for attempt in attempts} == {10}
    printed = capsys.readouterr().out
    assert "20 % planted" in printed and "regr. 95%" in printed
    table = printed.partition("results and report")[0]
    assert max(map(len, table.splitlines())) <= 80
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "results.json"]


def test_a_run_goes_on_where_it_was_stopped(rates, tmp_path, capsys):
    words = ("--only", "slower-20", "--tries", "3")
    rates["stops_at"] = 45  # in the third try, of twenty measurements each
    assert run(tmp_path, *words) == 130
    assert capsys.readouterr().err == f"stopped: what was measured so far is in {tmp_path}\n"
    before = attempts_in(tmp_path)["slower-20"]
    assert len(before) == 2
    rates["asked"] = 100
    assert run(tmp_path, *words) == 0
    assert rates["asked"] == 120
    assert attempts_in(tmp_path)["slower-20"][:2] == before and len(attempts_in(tmp_path)["slower-20"]) == 3
    assert run(tmp_path, "--only", "same", "--tries", "1") == 0
    assert {name: len(attempts) for name, attempts in attempts_in(tmp_path).items()} == {"slower-20": 3, "same": 1}
    capsys.readouterr()
    assert show([str(tmp_path)]) == 0
    assert "2 of 2 figures are as near to the truth as promised." in capsys.readouterr().out


@pytest.mark.parametrize("content", ["mine", "another part"])
def test_results_of_something_else_are_not_overwritten(rates, tmp_path, capsys, content):
    if content == "mine":
        (tmp_path / "results.json").write_text("mine")
    else:
        document = a_truth_document(a_counting_group(1000.0))
        write(tmp_path, document, KIND, KIND.derive(document))
    before = (tmp_path / "results.json").read_bytes()
    assert run(tmp_path, "--only", "slower-20", "--tries", "1") == 2
    assert f"--out {tmp_path} holds results.json already" in capsys.readouterr().err
    assert (tmp_path / "results.json").read_bytes() == before and rates["asked"] == 0


def test_what_does_not_hold_is_exit_code_1(rates, tmp_path, monkeypatch):
    monkeypatch.setattr(gate, "subject", lambda loss: gate.Subject(label="as_it_is", kind="", text=""))
    assert run(tmp_path, "--only", "slower-20", "--tries", "1") == 1


def test_a_try_that_cannot_be_measured_has_failed_and_leaves_its_log(tmp_path, monkeypatch):
    def measure(subject, setting, log):
        log.write_text("Traceback")
        raise processes.MeasureError("it died")

    monkeypatch.setattr(processes, "measure", measure)
    assert run(tmp_path, "--only", "same", "--tries", "2") == 1
    assert [attempt.answer for attempt in attempts_in(tmp_path)["same"]] == ["failed"] * 2
    assert {path.name for path in tmp_path.glob("*.log")} == {"children.log", "children-2.log"}


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
    assert GATE_PARTS[part].holds(Counter(verdicts)) is holds


def test_false_alarms_are_simulated_with_the_spread_of_this_machine(rates, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(gate, "SIMULATED", 500)
    assert run(tmp_path, "--only", "simulation") == 0
    assert "supposed: nothing was measured yet" in capsys.readouterr().out
    run(tmp_path, "--only", "same", "--only", "simulation", "--tries", "1")
    printed = capsys.readouterr().out.partition("results and report")[0]
    assert re.search(
        r"one measurement varies by 0\.\d% \(of this machine, by 6 pairs of the same\)", " ".join(printed.split())
    )
    assert max(map(len, printed.splitlines())) <= 80


def test_a_fault_with_another_exit_code_is_found(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(gate, "faults", lambda: (Fault(name="no data", run=lambda: 1, promised=3),))
    assert run(tmp_path, "--only", "faults") == 1
    assert "no data" in capsys.readouterr().out
    (check,) = json.loads((tmp_path / "results.json").read_text())["checks"]
    assert (check["truth"], check["measured"], check["holds"]) == (3, 1, False)


def test_a_signal_ends_the_gate_of_a_fault(tmp_path, monkeypatch):
    class Waits:
        """A process that is waited for until a signal comes."""

        killed = False

        def __init__(self, *words, **options):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *error):
            assert self.killed  # a real one is waited for here

        def wait(self, timeout=None):
            raise Stopped(2)

        def kill(self):
            self.killed = True

    monkeypatch.setattr(gate_faults.subprocess, "Popen", Waits)
    with pytest.raises(Stopped):
        gate_faults._run(tmp_path, "compare")


def test_no_fault_may_end_with_1():
    assert {fault.promised for fault in faults()} == {3, 130}


@pytest.mark.parametrize(
    "name", ["another machine's baseline", "a baseline of one sample", "no data: the folder is empty"]
)
def test_faults_that_need_no_tensorflow_end_as_promised(name):
    (fault,) = (fault for fault in faults() if fault.name == name)
    assert fault.run() == fault.promised


@pytest.mark.slow
def test_every_other_fault_ends_as_promised():
    assert {fault.name: fault.run() for fault in faults()} == {fault.name: fault.promised for fault in faults()}
