"""Names, errors and settings do nothing on a terminal or in a file, whatever they hold: they are read, and no more."""

from __future__ import annotations

import csv
import dataclasses
import importlib
import io
import json
import pathlib
import re
from typing import Any

import pytest
from rich.progress import Progress

from tests import PROJECT_ROOT
from tests.builders import (
    COMPOSED,
    GATE_INVARIANTS,
    ONE_VARIANT,
    a_comparisons_document,
    a_costs,
    a_doctor_document,
    a_fewer_bits_document,
    a_gate_check_document,
    a_hostile_trial,
    a_measured_pipeline,
    a_measured_service,
    a_measured_trainers,
    a_measured_way,
    a_result,
    a_search_document,
    a_service_document,
    a_service_plan_document,
    a_sweep_document,
    a_sweep_plan,
    a_trainers_document,
    a_worker_window,
    an_advice_document,
    gate_measurements,
)
from tests.builders import STAGE_TABLE as TABLE
from tests.hostile_texts import OBEYED, PAYLOADS, hostile_source
from unstall.benchmarks.cli import VERBS
from unstall.benchmarks.devices.fewer_bits.report import KIND as FEWER_BITS
from unstall.benchmarks.doctor.plan import Asked as DoctorAsked
from unstall.benchmarks.doctor.report import KIND as DOCTOR
from unstall.benchmarks.doctor.results import TROUBLES, Finding
from unstall.benchmarks.gate.report import CHECK as GATE_CHECK
from unstall.benchmarks.gate.report import COMPARISONS
from unstall.benchmarks.lab import command
from unstall.benchmarks.lab.options import UserError
from unstall.benchmarks.lab.serve import one_line
from unstall.benchmarks.lab.show import show
from unstall.benchmarks.pipeline.sweep.report import KIND as SWEEP
from unstall.benchmarks.service.planning.report import KIND as SERVICE_PLAN
from unstall.benchmarks.service.report import KIND as SERVICE
from unstall.benchmarks.trainers.report import KIND as TRAINERS
from unstall.benchmarks.tune.own.report import KIND as ADVICE
from unstall.benchmarks.tune.report import KIND as TUNE
from unstall.pipeline import PipelineConfig
from unstall.pipeline.commands.materialize import Rates, describe
from unstall.pipeline.export import export
from unstall.pipeline.prepared.write import Prepared
from unstall.pipeline.sources.names import FileNames
from unstall.pipeline.sources.source import Skipped
from unstall.profiles.devices import Device
from unstall.profiles.report import LeftOut, print_document, write
from unstall.profiles.report.document import content_of
from unstall.profiles.report.terminal import print_results, print_stages
from unstall.profiles.report.writing_files import to_json, write_atomically
from unstall.profiles.results.verdict import judge
from unstall.profiles.text import Terminal, printable
from unstall.profiles.unit import IMAGE

# Terminals


def printed(show: Any, *, width: int = 200) -> str:
    """What a function writes to a terminal that has no colours."""
    console = Terminal(file=io.StringIO(), width=width, force_terminal=False)
    show(console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def show_results(console: Terminal, text: str) -> None:
    hostile = a_result(text, model=text, notes=(text,), work=(text,))
    print_results(console, judge([hostile]), baseline=text, left_out=[(text, text)])


def show_stages(console: Terminal, text: str) -> None:
    stages = tuple(dataclasses.replace(one, name=text, kind=text, location=text) for one in TABLE.stages)
    print_stages(console, text, dataclasses.replace(TABLE, stages=stages), IMAGE)
    print_stages(console, text, dataclasses.replace(TABLE, stages=(), reason=text), IMAGE)


def show_sweep(console: Terminal, text: str) -> None:
    planned = a_sweep_plan(sweeps={"cores": (1, 2)}, variants={text: next(iter(ONE_VARIANT.values()))}, models=(text,))
    rates = {1: (1000.0,) * 3, 2: (1100.0,) * 3}
    document = a_sweep_document(planned, rates, note=text, left_out=(LeftOut(who=text, reason=text),))
    SWEEP.print(console, document, SWEEP.derive(document))
    document = dataclasses.replace(document, typed={document.plan.data: text})
    print_document(console, document, SWEEP, SWEEP.derive(document))


def show_comparison(console: Terminal, text: str) -> None:
    changed = dataclasses.replace(GATE_INVARIANTS, stages=(text,))
    for left_out in ((), (LeftOut(who=text, reason=text),)):
        document = a_comparisons_document(gate_measurements(invariants=changed), name=text, left_out=left_out)
        COMPARISONS.print(console, document, COMPARISONS.derive(document))


def show_gate_check(console: Terminal, text: str) -> None:
    asked = dataclasses.replace(a_gate_check_document().plan, name=text, subject=text)
    document = a_gate_check_document(plan=asked)
    GATE_CHECK.print(console, document, GATE_CHECK.derive(document))


def show_doctor(console: Terminal, text: str) -> None:
    findings = [Finding(path=text, trouble=trouble, detail=text) for trouble in TROUBLES]
    document = a_doctor_document(*findings, plan=DoctorAsked(folder=text))
    DOCTOR.print(console, document, DOCTOR.derive(document))


def show_left_out(console: Terminal, text: str) -> None:
    command.say_left_out(console, hostile_source(text))


def show_errors(console: Terminal, text: str) -> None:
    command.say(console, UserError(text))
    command.say_unwritable(console, pathlib.Path(text.replace("\0", "")), OSError(28, text))
    console.print(one_line(ValueError(text)))


def show_materialized(console: Terminal, text: str) -> None:
    folder = pathlib.Path(text.replace("\0", ""))
    prepared = Prepared(folder=folder, form="raw", images=1, source_bytes=1, prepared_bytes=1, seconds=1.0)
    console.print(describe(prepared, Rates(before=(1.0,), after=(2.0,))))


def show_fewer_bits(console: Terminal, text: str) -> None:
    document = a_fewer_bits_document(a_measured_way(text, 1000.0), left_out=(LeftOut(who=text, reason=text),))
    plan = dataclasses.replace(document.plan, model=text)
    samples = dataclasses.replace(document.samples, tested_with=text)
    document = dataclasses.replace(document, plan=plan, samples=samples)
    FEWER_BITS.print(console, document, FEWER_BITS.derive(document))


def show_service(console: Terminal, text: str) -> None:
    measured = a_measured_service(text, 2000.0, workers=(a_worker_window(text, 1000),), repaired=1)
    [facts] = measured.facts
    facts = dataclasses.replace(facts, functions=(text,), costs_us={text: 1.0})
    measured = dataclasses.replace(measured, facts=(facts,))
    document = a_service_document(
        a_measured_service("none", 1000.0), measured, left_out=(LeftOut(who=text, reason=text),)
    )
    document = dataclasses.replace(document, plan=dataclasses.replace(document.plan, device=text, data=text))
    SERVICE.print(console, document, SERVICE.derive(document))


def show_trainers(console: Terminal, text: str) -> None:
    document = a_trainers_document(a_measured_trainers("one-jax"), left_out=(LeftOut(who=text, reason=text),))
    document = dataclasses.replace(document, plan=dataclasses.replace(document.plan, model=text, data=text))
    TRAINERS.print(console, document, TRAINERS.derive(document))


def show_service_plan(console: Terminal, text: str) -> None:
    left_out = (LeftOut(who=text, reason=text),)
    document = a_service_plan_document(a_costs(), model=text, device=Device(kind="gpu", name=text), left_out=left_out)
    SERVICE_PLAN.print(console, document, SERVICE_PLAN.derive(document))
    device, hosts = Device(kind="emulated", name=text, images_per_sec=1000.0), document.plan.hosts
    hosts = dataclasses.replace(hosts, accelerators=4, per_host=2)
    document = a_service_plan_document(a_costs(), device=device, hosts=hosts, images=1_000_000)
    SERVICE_PLAN.print(console, document, SERVICE_PLAN.derive(document))


def show_tuner(console: Terminal, text: str) -> None:
    document = a_search_document(a_measured_pipeline("fast", 1500.0, COMPOSED))
    plan = dataclasses.replace(document.plan, model=text, device=Device(kind="gpu", name=text))
    document = dataclasses.replace(document, plan=plan, left_out=(LeftOut(who=text, reason=text),))
    TUNE.print(console, document, TUNE.derive(document))


def show_advice(console: Terminal, text: str) -> None:
    document = an_advice_document(a_hostile_trial(text))
    gpu = Device(kind="gpu", name=text)
    plan = dataclasses.replace(document.plan, pipeline=text, model=text, device=gpu)
    document = dataclasses.replace(document, plan=plan, left_out=(LeftOut(who=text, reason=text),))
    ADVICE.print(console, document, ADVICE.derive(document))


TERMINALS = {
    "results": show_results,
    "stages": show_stages,
    "pipeline --sweep": show_sweep,
    "doctor": show_doctor,
    "devices --inference": show_fewer_bits,
    "service local": show_service,
    "trainers": show_trainers,
    "service plan": show_service_plan,
    "comparison": show_comparison,
    "gate check": show_gate_check,
    "left out": show_left_out,
    "errors": show_errors,
    "materialize": show_materialized,
    "tuner": show_tuner,
    "advice": show_advice,
}


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("name", TERMINALS)
def test_a_terminal_is_given_nothing_to_obey(name, payload):
    text = PAYLOADS[payload]
    shown = printed(lambda console: TERMINALS[name](console, text), width=400)
    assert not OBEYED.search(shown)
    if not OBEYED.search(text):  # markup and emoji codes stay what they are
        first = text.strip().splitlines()[0]
        expected = str(pathlib.Path(first)) if name == "materialize" else first
        assert "".join(expected.split()) in "".join(shown.split())


# What a command needs before it comes to a word that it does not know.
NEEDED = {
    "materialize": ("--data=pets", "--out=copy", "--as=raw"),
    "train": ("--data=pets", "--out=x.keras"),
    "predict": ("x.keras", "1.jpg"),
    "accuracy": ("--data=pets",),
    "migrate": ("train.py",),
    "doctor": ("--data=pets",),
    "service": ("local",),
    "service dispatcher": ("dispatcher",),
    "service worker": ("worker", "--dispatcher=trainer:5050", "--data=pets"),
    "gate": ("check", "mine"),
    "service plan": ("plan",),
    "show": ("results.json",),
    "compare": ("a", "b"),
}
MODULES = {
    **{verb: function for verb, (function, _) in VERBS.items()},
    **{f"service {part}": VERBS["service"][0] for part in ("dispatcher", "worker", "plan")},
}


@pytest.mark.parametrize("verb", MODULES)
def test_a_word_that_a_command_does_not_know_is_repeated_harmlessly(verb, capsys):
    word = "--" + "".join(PAYLOADS.values()).replace(" ", "")
    module, _, name = MODULES[verb].partition(":")
    main = getattr(importlib.import_module(module), name)
    words = [word, "script.py"] if verb == "profile" else [*NEEDED.get(verb, ()), word]
    with pytest.raises(SystemExit, match="2"):
        main(words)
    said = capsys.readouterr().err
    assert not OBEYED.search(said)
    assert len([line for line in said.splitlines() if "unrecognized arguments: --<script>" in line]) == 1
    assert "\nstopped: nothing measured" not in said and "\\x1b[31mred" in said


@pytest.mark.parametrize("payload", PAYLOADS)
def test_the_bar_of_a_long_command_shows_a_name_as_it_is(payload):
    text = PAYLOADS[payload]
    console = Terminal(file=io.StringIO(), width=200, force_terminal=True)
    progress = command.progress_bar(console)
    assert isinstance(progress, Progress)
    with progress:
        progress.add_task(f"reading {text}", total=None)
        progress.refresh()
    written = console.file.getvalue()
    own = re.sub(r"\x1b\[[\d;?]*[A-Za-z]|\r", "", written)  # colours, the cursor
    assert not OBEYED.search(own)
    if payload == "rich markup":
        assert "[/nothing]" in own and ":boom:" in own


def test_text_that_is_printable_stays_as_it_is_and_the_rest_is_escaped():
    assert printable("Kätzchen, 猫, 🐈\nzwei") == "Kätzchen, 猫, 🐈\nzwei"
    assert printable("\x1b[31m\t\u202e\udcff\u2028\x9b") == r"\x1b[31m\t\u202e\udcff\u2028\x9b"


def test_the_consoles_own_colours_are_kept():
    console = Terminal(file=io.StringIO(), width=80, force_terminal=True)
    console.print("\x1b[2J", style="bold red")
    written = console.file.getvalue()
    assert set(re.findall(r"\x1b\[[\d;]*[A-Za-z]", written)) == {"\x1b[1;31m", "\x1b[0m"}
    assert re.sub(r"\x1b\[[\d;]*m", "", written) == "\\x1b[2J\n"


# Files


@pytest.mark.parametrize("payload", PAYLOADS)
def test_json_is_ascii_and_gives_the_text_back(payload, tmp_path):
    text = PAYLOADS[payload]
    document = {"dataset": hostile_source(text).to_dict(), "text": text}
    write_atomically(tmp_path / "results.json", to_json(document))
    written = (tmp_path / "results.json").read_bytes()
    assert not re.search(rb"[^\x0a\x20-\x7e]", written)
    assert json.loads(written)["text"] == text


@pytest.mark.parametrize("payload", PAYLOADS)
def test_the_doctors_file_names_what_is_printed_and_has_the_name_itself_beside_it(payload):
    text = PAYLOADS[payload]
    document = a_doctor_document(Finding(path=text, trouble="hangs", detail=text))
    written = json.loads(to_json(content_of(document, DOCTOR, DOCTOR.derive(document))))
    assert not OBEYED.search(written["findings"][0]["path"])
    assert written["samples"]["files"][0]["path"] == text


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_written_script_holds_a_name_as_a_text_and_nothing_of_it_as_code(payload, tmp_path):
    import ast

    text = PAYLOADS[payload].replace("\0", "").replace("/", "")
    source = dataclasses.replace(
        hostile_source(text),
        root=tmp_path / text,
        files=FileNames.of(f"{text}/{index}.jpg" for index in range(4)),
        formats=("JPEG",),
        arrays=None,
        skipped=(Skipped(file=text, reason=text),),
    )
    code = export(PipelineConfig(augmentation=None), source)
    harmless = export(PipelineConfig(augmentation=None), dataclasses.replace(source, class_names=("a", "b")))
    assert not OBEYED.search(code)

    def statements(script: str) -> list[str]:
        return [type(node).__name__ for node in ast.walk(ast.parse(script))]

    assert statements(code) == statements(harmless)
    assigned = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(code).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.isupper()
        if node.targets[0].id in ("CLASSES", "SKIPPED", "FOLDER")
    }
    assert assigned == {"CLASSES": [text, "b"], "SKIPPED": {text}, "FOLDER": str(tmp_path / text)}


def test_a_results_page_with_a_name_that_is_no_utf8_is_written_all_the_same(tmp_path):
    write_atomically(tmp_path / "report.html", "latin-\udcff")
    assert (tmp_path / "report.html").read_bytes() == rb"latin-\udcff"


def test_no_command_but_show_writes_tables_for_spreadsheets():
    """A formula needs a file that a spreadsheet opens."""
    root = PROJECT_ROOT
    packages = ("pipeline", "models", "profiles", "benchmarks")
    written = re.compile(r"^\s*(import|from) (csv|openpyxl|pandas)\b|\.csv\b|\.tsv\b", re.MULTILINE)
    writing = [path for name in packages for path in (root / name).rglob("*.py") if written.search(path.read_text())]
    assert writing == [root / "profiles" / "report" / "show.py"]


@pytest.mark.parametrize("text", [PAYLOADS["formula"], PAYLOADS["sum"], "+1", "-1"])
def test_a_table_for_spreadsheets_holds_no_formula(text, tmp_path, capsys):
    document = a_doctor_document(Finding(path=text, trouble="hangs", detail=text))
    write(tmp_path, document, DOCTOR, DOCTOR.derive(document))
    assert show([str(tmp_path), "--csv"]) == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (row["path"], row["detail"]) == (f"'{text}", f"'{text}")
