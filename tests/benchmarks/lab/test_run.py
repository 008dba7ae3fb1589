"""How every command that measures runs and ends: written after each round, kept when stopped, one line a fault."""

from __future__ import annotations

import copy
import io
import json
import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest

from tests import PROJECT_ROOT
from tests.builders import (
    COMPOSED,
    a_comparisons_document,
    a_costs,
    a_devices_document,
    a_fewer_bits_document,
    a_gate_check_document,
    a_measured_pipeline,
    a_measured_service,
    a_measured_trainers,
    a_measured_way,
    a_measurement_document,
    a_result,
    a_search_document,
    a_service_document,
    a_service_plan_document,
    a_sweep_document,
    a_sweep_plan,
    a_trainers_document,
    a_trial,
    a_worker_window,
    all_trained,
    an_accuracy_document,
    an_accuracy_plan,
    an_advice_document,
    samples_at,
    with_subject,
)
from tests.checks import Page, kind_of
from unstall.benchmarks.accuracy.__main__ import COMMAND as ACCURACY
from unstall.benchmarks.devices.__main__ import COMMAND as DEVICES
from unstall.benchmarks.devices.__main__ import INFERENCE
from unstall.benchmarks.gate.__main__ import CHECK as GATE_CHECK
from unstall.benchmarks.gate.__main__ import COMPARE as GATE_COMPARE
from unstall.benchmarks.lab import command as lab_command
from unstall.benchmarks.lab.command import Command, exit_code_of, run, run_plan
from unstall.benchmarks.lab.options import UserError
from unstall.benchmarks.pipeline.__main__ import COMMAND as PIPELINE
from unstall.benchmarks.pipeline.__main__ import SWEEP
from unstall.benchmarks.service.__main__ import LOCAL
from unstall.benchmarks.service.__main__ import PLAN as SERVICE_PLAN
from unstall.benchmarks.trainers.__main__ import COMMAND as TRAINERS
from unstall.benchmarks.tune.__main__ import ADVICE
from unstall.benchmarks.tune.__main__ import SEARCH as TUNE
from unstall.benchmarks.tune.samples import SearchSamples
from unstall.profiles.remedies import AS_WRITTEN, Trial
from unstall.profiles.report import RESULTS, Document, LeftOut, load, write_results
from unstall.profiles.report.show import main as show
from unstall.profiles.results import Facts
from unstall.profiles.text import Terminal

FACTS = Facts(parameters=7, optimizer="Adam", loss="mse")
MAIN_JOB = a_measurement_document(with_subject(a_result(), facts=FACTS))
DEVICES_RUN = a_devices_document()
LADDER = an_accuracy_plan(seeds=3)
SEARCH = a_search_document(a_measured_pipeline("fast", 1500.0, COMPOSED), left_out=())
ADVISED = an_advice_document(a_trial({AS_WRITTEN: samples_at(100.0, 110.0)}))
# A document of each command in which something was measured, and one in which nothing was.
COMMANDS: dict[str, tuple[Command, Document[Any, Any], Document[Any, Any]]] = {
    "pipeline": (PIPELINE, MAIN_JOB, replace(MAIN_JOB, samples=replace(MAIN_JOB.samples, subjects=(), windows={}))),
    "pipeline --sweep": (
        SWEEP,
        a_sweep_document(a_sweep_plan(), {8: (1000.0,) * 3, 32: (900.0,) * 3}),
        a_sweep_document(a_sweep_plan(), {8: (), 32: ()}),
    ),
    "accuracy": (
        ACCURACY,
        an_accuracy_document(LADDER, all_trained(LADDER, generator="1111", tuned="1111")),
        an_accuracy_document(LADDER, {}),
    ),
    "devices": (DEVICES, DEVICES_RUN, replace(DEVICES_RUN, samples=replace(DEVICES_RUN.samples, cases=()))),
    "devices --inference": (
        INFERENCE,
        a_fewer_bits_document(a_measured_way("TensorFlow float32", 1000.0)),
        a_fewer_bits_document(),
    ),
    "gate compare": (GATE_COMPARE, a_comparisons_document(), a_comparisons_document(measurements=())),
    "gate check": (GATE_CHECK, a_gate_check_document(), a_gate_check_document(processes=0)),
    "service local": (
        LOCAL,
        a_service_document(
            a_measured_service("none", 1000.0),
            a_measured_service("local:1", 2000.0, workers=(a_worker_window("host:1", 2000),)),
        ),
        a_service_document(),
    ),
    "trainers": (
        TRAINERS,
        a_trainers_document(a_measured_trainers("one-jax"), a_measured_trainers("jax-processes", 2)),
        a_trainers_document(),
    ),
    "service plan": (SERVICE_PLAN, a_service_plan_document(a_costs()), a_service_plan_document()),
    "tune": (TUNE, SEARCH, replace(SEARCH, samples=SearchSamples())),
    "tune --pipeline": (ADVICE, ADVISED, replace(ADVISED, samples=Trial())),
}


@dataclass
class FakeLab:
    """Measures nothing: two rounds, of which the first leaves the document behind."""

    measured: Document[Any, Any]
    nothing: Document[Any, Any]
    in_round: Callable[[int], object] = lambda number: None
    rounds: int = 0
    ended: list[str] = field(default_factory=list)

    def measure(self, after_round: Callable[[], object]) -> None:
        for number in range(2):
            self.in_round(number)
            self.rounds += 1
            after_round()

    def document(self, *, complete: bool) -> Document[Any, Any]:
        return replace(self.measured if self.rounds else self.nothing, complete=complete)

    def close(self) -> None:
        self.ended.append("closed")

    def kill(self) -> None:
        self.ended.append("killed")

    def write_products(self, console: object, derived: object) -> tuple[Path, ...]:
        return ()


LABS: list[FakeLab] = []


def the_lab(plan: Any, progress: Any, errors: Any) -> FakeLab:
    return LABS[-1]


class Ran:
    """A command run on a lab that measures nothing: its exit code, its two outputs, and its folder."""

    def __init__(self, name: str, lab: FakeLab, out: Path, *, as_json: bool = False) -> None:
        command = replace(COMMANDS[name][0], lab=f"{__name__}:the_lab")
        self.lab, self.out = lab, out
        console, errors = (Terminal(file=io.StringIO(), width=100) for _ in range(2))
        LABS.append(lab)
        try:
            plan = SimpleNamespace(out=out)
            self.code = exit_code_of(lambda: run_plan(command, plan, console, errors, as_json=as_json), errors, out)
        finally:
            LABS.pop()
        self.printed: str = console.file.getvalue()  # type: ignore[attr-defined]
        self.errors: str = errors.file.getvalue()  # type: ignore[attr-defined]

    @property
    def files(self) -> list[str]:
        return sorted(path.name for path in self.out.iterdir()) if self.out.exists() else []

    def results(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.out / "results.json").read_text())
        return content


def a_lab(name: str, **changes: Any) -> FakeLab:
    _, measured, nothing = COMMANDS[name]
    return FakeLab(measured=measured, nothing=nothing, **changes)


@pytest.fixture(params=COMMANDS)
def name(request: pytest.FixtureRequest) -> str:
    text: str = request.param
    return text


def kept(out: Path) -> str:
    partial = f"These results are partial; unstall show {out} shows them"
    return f"stopped: what was measured so far is in {out}. {partial}\n"


def test_a_run_prints_writes_both_files_and_closes_its_lab(name: str, tmp_path: Path) -> None:
    ran = Ran(name, a_lab(name), tmp_path / "out")
    assert (ran.code, ran.errors, ran.files) == (0, "", ["report.html", "results.json"])
    more = (f"results and report: {ran.out}/results.json, {ran.out}/report.html", f"show {ran.out} --details")
    assert ran.printed.rstrip().endswith(more)
    assert ran.results()["complete"] is True and ran.lab.ended == ["closed"]


def test_the_answer_is_one_object_of_the_schema_in_the_repository(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = json.loads((PROJECT_ROOT / "docs" / "answer.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    ran = Ran(name, a_lab(name), tmp_path / "out", as_json=True)
    answer = json.loads(ran.printed)
    jsonschema.validate(answer, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**answer, "exit_code": "0"}, schema)
    assert (answer["command"], answer["complete"], answer["exit_code"]) == (COMMANDS[name][1].command, True, ran.code)
    kind = kind_of(COMMANDS[name][0])
    screens = [] if kind.screens is None else kind.screens(COMMANDS[name][1], kind.derive(COMMANDS[name][1]))
    assert [[line["label"] for line in one["verdict"]] for one in answer["answers"]] == [
        [line.label for line in screen.verdict] for screen in screens
    ]
    assert ran.files == ["report.html", "results.json"] and "results.json" in ran.errors
    assert show(["show", str(ran.out), "--json"], {COMMANDS[name][1].command: kind}) == 0
    assert json.loads(capsys.readouterr().out)["answer"] == {**answer, "exit_code": None}


def test_the_report_begins_with_what_the_first_screens_say(name: str, tmp_path: Path) -> None:
    ran = Ran(name, a_lab(name), tmp_path / "out")
    kind, document = kind_of(COMMANDS[name][0]), COMMANDS[name][1]
    page = Page((ran.out / "report.html").read_text())
    screens = () if kind.screens is None else kind.screens(document, kind.derive(document))
    for screen in screens:
        lines = [*screen.verdict, *screen.why, *screen.next]
        said = [text for line in lines for text in (line.label, line.text, *line.code)]
        said += [bar.name for bar in screen.picture.bars] if screen.picture else []
        assert [text for text in said if " ".join(text.split()) not in " ".join(page.text.split())] == []
    assert (("section", {"class": "first"}) in page.tags) == bool(screens)


def test_what_was_printed_is_shown_again(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    ran = Ran(name, a_lab(name), tmp_path / "out")
    kind = kind_of(COMMANDS[name][0])
    assert show(["show", str(ran.out)], {COMMANDS[name][1].command: kind}) == 0
    assert ran.printed.startswith(capsys.readouterr().out)
    document, _ = load(ran.out, {COMMANDS[name][1].command: kind})
    assert document == COMMANDS[name][1]


def test_results_are_written_after_every_round(name: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    seen = []

    def look(number: int) -> None:
        path = out / "results.json"
        seen.append(json.loads(path.read_text())["complete"] if path.exists() else None)

    Ran(name, a_lab(name, in_round=look), out)
    assert seen == [None, False]


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_what_was_measured(name: str, sent: int, code: int, tmp_path: Path) -> None:
    ran = Ran(name, a_lab(name, in_round=lambda number: number and os.kill(os.getpid(), sent)), tmp_path / "out")
    assert ran.code == code and ran.lab.ended == ["killed"] and ran.printed == ""
    assert ran.errors == kept(ran.out)
    assert ran.files == ["report.html", "results.json"] and ran.results()["complete"] is False


def test_a_signal_before_the_first_round_leaves_nothing(name: str, tmp_path: Path) -> None:
    ran = Ran(name, a_lab(name, in_round=lambda number: os.kill(os.getpid(), signal.SIGINT)), tmp_path / "out")
    assert (ran.code, ran.errors, ran.out.exists()) == (130, "stopped: nothing measured\n", False)


def test_nothing_measured_is_exit_code_3_with_the_reasons(name: str, tmp_path: Path) -> None:
    why = replace(COMMANDS[name][2], left_out=(LeftOut(who="a subject", reason="it hung"),))
    ran = Ran(name, replace(a_lab(name), measured=why, nothing=why), tmp_path / "out")
    assert (ran.code, ran.out.exists()) == (3, False)
    assert ran.errors == "nothing could be measured. a subject: it hung\n"


def test_what_the_user_can_mend_is_one_line_and_keeps_no_half_of_a_run(name: str, tmp_path: Path) -> None:
    def refuse(number: int) -> None:
        raise UserError("--model needs another Keras.")

    ran = Ran(name, a_lab(name, in_round=refuse), tmp_path / "out")
    assert (ran.code, ran.errors, ran.out.exists()) == (2, "--model needs another Keras.\n", False)
    assert ran.lab.ended == ["killed"]


def test_what_the_user_can_mend_in_a_later_round_leaves_what_was_measured(name: str, tmp_path: Path) -> None:
    def refuse(number: int) -> None:
        if number:
            raise UserError("--data lost a file.")

    ran = Ran(name, a_lab(name, in_round=refuse), tmp_path / "out")
    assert ran.code == 2 and ran.files == ["report.html", "results.json"]
    assert ran.errors == f"{kept(ran.out)}--data lost a file.\n"


def test_an_error_of_ours_keeps_what_was_measured_and_is_no_bad_answer(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(number: int) -> None:
        if number:
            raise ZeroDivisionError("ours")

    lab = a_lab(name, in_round=fail)
    ran = Ran(name, lab, tmp_path / "out")
    assert (ran.code, lab.ended) == (3, ["killed"])
    assert (
        ran.errors.endswith("could not measure: ZeroDivisionError: ours\n") and "Traceback" in capsys.readouterr().err
    )
    assert json.loads((tmp_path / "out" / "results.json").read_text())["complete"] is False


def test_a_full_disk_is_one_line(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(lab_command, "write_results", full)
    monkeypatch.setattr(lab_command, "write", full)
    ran = Ran(name, a_lab(name), tmp_path / "out")
    assert (ran.code, ran.files) == (3, [])
    assert ran.errors.splitlines()[-1] == f"{ran.out}: No space left on device."


def test_a_folder_that_cannot_be_written_to_is_refused_before_anything_is_measured(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    lab = a_lab(name)
    ran = Ran(name, lab, tmp_path / "file" / "out")
    assert ran.code == 2 and lab.rounds == 0 and ran.errors.count("\n") == 1
    assert (tmp_path / "file").read_text() == "mine"


def test_an_earlier_run_is_not_overwritten(name: str, tmp_path: Path) -> None:
    Ran(name, a_lab(name), tmp_path / "out")
    before = (tmp_path / "out" / "results.json").read_bytes()
    again = Ran(name, a_lab(name), tmp_path / "out")
    assert again.code == 2 and again.lab.rounds == 0
    assert again.errors.endswith("holds results.json already: nothing is overwritten. Choose another folder.\n")
    assert (tmp_path / "out" / "results.json").read_bytes() == before


@pytest.mark.parametrize("words", [["--rounds", "0"], ["--rounds", "x"], ["--nonsense"]])
def test_wrong_words_are_exit_code_2_and_leave_nothing(
    name: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = COMMANDS[name][0]
    with suppress(SystemExit):  # argparse ends so, by itself with 2
        assert run(command, words) == 2
    assert capsys.readouterr().err and list(tmp_path.iterdir()) == []


# A results file that somebody has edited, or that is damaged.

EDITS = 30
VALUES: tuple[Any, ...] = (None, True, 0, -1, 1e308, 0.5, "", "a text", [], {}, [1], {"a": 1})


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yields each list or object in a JSON value with each of its indices or keys."""
    for key in value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from places(value[key])


def edit(content: dict[str, Any], draw: random.Random) -> None:
    """Removes, repeats or replaces one value of the plan, the samples or what else is read back."""
    read = {name: content[name] for name in ("plan", "samples", "provenance", "dataset", "left_out", "telemetry")}
    holder, key = draw.choice(list(places(read)))
    if holder is read:
        holder = content
    action = draw.choice(("remove", "repeat", "replace", "replace"))
    if action == "remove":
        del holder[key]
    elif action == "repeat" and isinstance(holder, list):
        holder.insert(key, copy.deepcopy(holder[key]))
    elif isinstance(holder[key], (int, float)) and draw.random() < 0.7:  # of the same type, so that decoding lets it by
        holder[key] = (
            draw.choice((0, -1, 7, 10**9)) if isinstance(holder[key], int) else draw.choice((0.0, -1.0, 1e308))
        )
    else:
        holder[key] = draw.choice(VALUES)


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # NumPy, of a rate of 0
@pytest.mark.parametrize("name", COMMANDS)
def test_an_edited_file_is_shown_or_refused_in_one_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command, document, _ = COMMANDS[name]
    kind = kind_of(command)
    write_results(tmp_path, document, kind, kind.derive(document))
    content = json.loads((tmp_path / RESULTS).read_text())
    codes = []
    for number in range(EDITS):
        edited = copy.deepcopy(content)
        edit(edited, random.Random(number))
        (tmp_path / RESULTS).write_text(json.dumps(edited))
        page = tmp_path / f"{number}.html"
        form = ([], ["--json"], ["--html", str(page)])[number % 3]
        codes.append(show(["show", str(tmp_path), *form], {document.command: kind}))
        errors = capsys.readouterr().err
        assert codes[-1] in (0, 2), (number, errors)
        if codes[-1] == 2:
            assert errors.count("\n") == 1 and len(errors) < 1000, (number, errors)
            assert not page.exists()
    assert 0 < codes.count(2) < EDITS  # some edits are refused, and some leave a document that can be shown


def test_a_terminal_that_lacks_a_letter_is_no_fault_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, document, _ = COMMANDS["tune"]  # prints bars
    kind = kind_of(command)
    write_results(tmp_path, document, kind, kind.derive(document))
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    with pytest.raises(UnicodeEncodeError):
        show(["show", str(tmp_path), "--details"], {document.command: kind})
