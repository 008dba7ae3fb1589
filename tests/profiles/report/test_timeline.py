"""Steps and waits over time: the chart, and the trace in Chrome's form."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from tests.builders import a_gate_check_document, a_measurement_document, a_result, a_telemetry, rounds_of
from tests.checks import Page, assert_harmless
from unstall.profiles.report import document as documents
from unstall.profiles.report import show
from unstall.profiles.report.measurements import KIND
from unstall.profiles.report.timeline import timeline, trace_of
from unstall.profiles.results.result import Result

STEPS = ((3_000_000, 1_000_000), (0, 2_000_000))


def with_steps(name: str = "generator", *, rounds: int = 1) -> Result:
    """A result whose rounds kept two steps: 3 ms of waiting and 1 ms, then 2 ms without waiting."""
    samples = rounds_of("train", *(10.0 for _ in range(rounds)), wait_ms=6)
    return a_result(name, train=[dataclasses.replace(sample, first_steps_ns=STEPS) for sample in samples])


def test_steps_and_waits_are_drawn_to_one_scale() -> None:
    fast = dataclasses.replace(rounds_of("train", 5.0, wait_ms=0)[0], first_steps_ns=((1_000_000, 2_000_000),))
    chart = timeline([with_steps(), a_result("fast", train=[fast])])
    assert chart is not None
    assert_harmless(Page(chart))
    # 6 ms are the whole width; the second row has 1 ms of waiting and 2 ms of a step.
    assert re.findall(r'class="(prep_stall|compute)" x="([\d.]+)" width="([\d.]+)"', chart) == [
        ("prep_stall", "0.0", "50.0"),
        ("compute", "50.0", "16.67"),
        ("prep_stall", "66.67", "0.0"),
        ("compute", "66.67", "33.33"),
        ("prep_stall", "0.0", "16.67"),
        ("compute", "16.67", "33.33"),
    ]
    assert "6 ms" in chart


def test_without_steps_there_is_no_chart() -> None:
    assert timeline([a_result()]) is None


def test_a_trace_has_the_waits_and_steps_of_all_rounds_one_behind_the_other() -> None:
    events = trace_of([with_steps("a"), with_steps("b", rounds=2)], None, "photos")["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert [name.partition(":")[0] for name in names.values()] == ["a", "b"]
    of_b = [event for event in events if event["ph"] == "X" and names[event["pid"]].startswith("b")]
    assert [(event["name"], event["ts"], event["dur"]) for event in of_b] == [
        ("wait", 0.0, 3000.0),
        ("step", 3000.0, 1000.0),
        ("wait", 4000.0, 0.0),
        ("step", 4000.0, 2000.0),
        ("wait", 6000.0, 3000.0),
        ("step", 9000.0, 1000.0),
        ("wait", 10000.0, 0.0),
        ("step", 10000.0, 2000.0),
    ]
    assert len({(event["pid"], event["tid"]) for event in of_b}) == 2


def test_the_machine_is_counters_and_phases_of_the_trace() -> None:
    telemetry = a_telemetry("warm-up", gpus=1)
    events = trace_of([with_steps()], telemetry, "photos")["traceEvents"]
    counters = {event["name"] for event in events if event["ph"] == "C"}
    assert {"cores busy", "memory, MB", "GPU 0, %"} <= counters
    phases = [event for event in events if event["ph"] == "X" and event["pid"] == 1]
    assert len(phases) == len([mark for mark in telemetry.marks if mark.phase])
    assert all(event["dur"] >= 0 for event in phases) and phases[0]["ts"] == 1e6 * telemetry.marks[0].seconds


def test_show_prints_the_trace_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = a_measurement_document(with_steps(), telemetry=a_telemetry("a"))
    documents.write(tmp_path, document, KIND, KIND.derive(document))
    assert show.main(["show", str(tmp_path), "--as", "perfetto"]) == 0
    trace = json.loads(capsys.readouterr().out)
    assert trace["displayTimeUnit"] == "ms"
    assert [event["dur"] for event in trace["traceEvents"] if event["name"] == "step"] == [1000.0, 2000.0]


def test_a_run_that_keeps_no_steps_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from unstall.benchmarks.gate.report import CHECK

    document = a_gate_check_document()
    documents.write(tmp_path, document, CHECK, CHECK.derive(document))
    assert show.main(["show", str(tmp_path), "--as", "perfetto"], {"gate check": CHECK}) == 2
    assert capsys.readouterr().err == "--as perfetto: a run of gate check keeps no steps.\n"
