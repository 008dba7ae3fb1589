"""Names, errors and settings with markup, scripts, escape sequences or formulas do nothing wherever they are shown."""

from __future__ import annotations

import dataclasses
import io
import json
import pathlib
import re
import shutil
import subprocess
from typing import Any

import numpy as np
import pytest
from rich.progress import Progress
from test_benchmarks_accuracy import CPU, a_plan, all_trained
from test_benchmarks_augmentation import a_document as an_augmentation
from test_benchmarks_augmentation import a_measured, a_row
from test_benchmarks_scaling import ONE_VARIANT, plan, rows_of
from test_profiles_html_report import Page, a_document, a_telemetry, assert_harmless
from test_profiles_results import a_result
from test_profiles_stage_report import TABLE

from benchmarks import command
from benchmarks.accuracy_report import render as render_accuracy
from benchmarks.accuracy_results import to_document
from benchmarks.augmentation_report import cautions, legend
from benchmarks.augmentation_report import render as render_augmentation
from benchmarks.doctor_folder import Folder
from benchmarks.doctor_report import document as doctor_document
from benchmarks.doctor_report import print_findings, said
from benchmarks.doctor_troubles import TROUBLES, Finding
from benchmarks.options import UserError
from benchmarks.peer_report import print_left_out
from benchmarks.peer_runs import LeftOut
from benchmarks.scaling_report import Report
from benchmarks.serving import one_line
from benchmarks.splits import held_out
from pipeline import PipelineConfig, from_arrays
from pipeline.export import export
from pipeline.materialize import Prepared
from pipeline.materialize_command import Rates, describe
from pipeline.sources import ImageSource, Skipped
from profiles.html_report import render
from profiles.results import to_json, write_atomically
from profiles.stage_report import print_stages
from profiles.terminal import Terminal, printable
from profiles.text_report import print_results
from profiles.verdict import judge

PAYLOADS = {
    "script": "<script>document.title='pwned'</script>",
    "image": "<img src=x onerror=\"document.title='pwned'\">",
    "end of style": "</style><script>document.title='pwned'</script>",
    "end of title": "</title><svg onload=\"document.title='pwned'\">",
    "double quote": '" onmouseover="document.title=\'pwned\'" x="',
    "single quote": "' onclick='document.title=1' x='",
    "template": "{{ document }}{% raw %}",
    "entity": "&lt;script&gt;&#60;b&#62;",
    "comment": "--><!--[if IE]>",
    "link": "<a href='javascript:document.title=1'>x</a><base href=https://evil.example>",
    "fetched": "<link rel=stylesheet href=https://evil.example/x.css>",
    "colour": "\x1b[31mred\x1b[2J\x1b[H",
    "terminal link": "\x1b]8;;https://evil.example\x07here\x1b]8;;\x07",
    "clipboard": "\x1b]52;c;cm0gLXJmIH4=\x07\x9b31m",
    "overwritten": "harmless\rOK      \b\b\x07\x00",
    "direction": "gpj.\u202ecats\u2066\u2028",
    "no UTF-8": "latin-\udcff\udc9b",
    "rich markup": "[bold red]x[/] [/nothing] [link=https://evil.example]here[/link] :boom:",
    "formula": "=cmd|' /C calc'!A0",
    "sum": "@SUM(1+1)*cmd|' /C calc'!A0",
    "lines": "a\nstopped: nothing measured\n",
}
# What a terminal obeys: every control character but the end of a line, and what turns the direction of text.
OBEYED = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029\ud800-\udfff]")


def with_text(value: Any, text: str) -> Any:
    """The same document with every text in it another; `page_cache` is no text but one of two words."""
    if isinstance(value, dict):
        return {key: one if key == "page_cache" else with_text(one, text) for key, one in value.items()}
    if isinstance(value, list):
        return [with_text(one, text) for one in value]
    return text if isinstance(value, str) else value


def main_report(text: str) -> str:
    line = {"number": 1, "source": "x", "hits": 1, "us": 1.0, "ratio": 0.5}
    annotated = {"function": "f", "location": "train.py:1", "total_us": 1.0, "lines": [line]}
    result = dataclasses.replace(a_result(work=("w",), notes=("n",)), stages=TABLE)
    document = a_document(
        [result],
        left_out=[{"variant": "v", "model": "m", "device": "d", "reason": "r"}],
        telemetry=a_telemetry(gpus=1),
        verdicts=[one.to_dict() for one in judge([result])],
    )
    document["dataset"] |= {"skipped": 1, "skipped_files": [{"path": "p", "reason": "r"}]}
    document["results"][0]["lines"] = [annotated]
    document = with_text(document, text)
    document["provenance"]["packages"] = {text: text}
    document["provenance"][text] = text
    result_of = document["results"][0]
    return render(document, {(result_of["model"], result_of["device"]["name"]): [text]})


def scaling_report(text: str) -> str:
    planned = plan(axes={"cores": (1, 2)}, variants={text: next(iter(ONE_VARIANT.values()))}, rounds=1)
    rows = rows_of(planned, {1: (1000.0,), 2: (1100.0,)})
    rows[1] = dataclasses.replace(rows[1], measurements=(), failure=text)
    report = Report(planned, hostile_source(text), text)
    document = with_text(report._document(rows, True), text)
    document["findings"], document["doubts"] = [], [text]
    document["provenance"]["packages"] = {text: text}
    return report._page(document, rows)


def augmentation_report(text: str) -> str:
    measured = [a_measured(), a_measured(a_row("flip"), failed=text, image=None)]
    document = an_augmentation(measured)
    document["dataset"] = with_text(document["dataset"], text)
    document["provenance"] = with_text(document["provenance"], text) | {"packages": {text: text}, text: text}
    document["created"] = text
    return render_augmentation(document, measured, np.zeros((4, 4, 3), np.uint8))


def accuracy_report(text: str) -> str:
    planned = a_plan(tuned_name=text)
    splits = held_out(hostile_source(text), seed=0)
    trained = all_trained(planned, generator="11", tuned="10")
    failures = {planned.runs[0]: text}
    document = to_document(planned, splits, CPU, trained, failures, data="d", created="c", complete=False)
    for part in ("dataset", "provenance"):
        document[part] = with_text(document[part], text)
    document["provenance"] |= {"packages": {text: text}, text: text}
    document["settings"]["tested_with"] = document["settings"]["device"] = document["created"] = text
    return render_accuracy(document, planned, splits, trained)


def hostile_source(text: str) -> ImageSource:
    arrays = from_arrays(np.zeros((4, 8, 8, 3), np.uint8), np.array([0, 1, 0, 1]), class_names=(text, "b"))
    left_out = (Skipped(file=text, reason=printable(text)),)
    return dataclasses.replace(arrays, name=text, skipped=left_out, stale_skips=left_out)


PAGES = {
    "main": main_report,
    "scaling": scaling_report,
    "augmentation": augmentation_report,
    "accuracy": accuracy_report,
}


def shape(page: str) -> list[tuple[str, list[str]]]:
    """A page's tags and the names of their attributes."""
    return [(tag, sorted(attributes)) for tag, attributes in Page(page).tags]


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_the_same_tags_whatever_the_texts_in_it_are(name, payload):
    text = PAYLOADS[payload]
    page = PAGES[name](text)
    assert shape(page) == shape(PAGES[name]("harmless"))
    seen = Page(page)
    if name != "augmentation":  # its pictures are in it
        assert_harmless(seen)
    assert not OBEYED.search(page)
    shown = printable(text).replace("\n", " ")
    assert " ".join(seen.text.split()).count(" ".join(shown.split())) >= 5


@pytest.mark.parametrize("name", PAGES)
def test_a_page_forbids_itself_everything_but_its_own_style_and_pictures(name):
    [policy] = [
        a["content"] for _, a in Page(PAGES[name]("x")).tags if a.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    for _, attributes in Page(PAGES[name]("x")).tags:
        assert all((attributes.get(key) or "data:").startswith("data:") for key in ("src", "href", "xlink:href"))


def test_every_template_of_a_page_is_among_those_that_are_tried():
    root = pathlib.Path(__file__).resolve().parents[1]
    pages = {path.name for path in root.glob("*/templates/*.html.j2") if "<!doctype html>" in path.read_text()}
    assert pages == {"report.html.j2", "scaling.html.j2", "augmentation.html.j2", "accuracy.html.j2"}


def in_a_browser(page: str, folder: pathlib.Path) -> tuple[str, str]:
    """A page's title when a browser has run all that it runs, and what the browser had to say."""
    write_atomically(folder / "page.html", page)
    words = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile"]
    done = subprocess.run(
        [*words, "--dump-dom", f"file://{folder}/page.html"], capture_output=True, text=True, timeout=60, check=True
    )
    title = re.findall(r"<title>(.*?)</title>", done.stdout)[0]  # a graph's lines have titles, too
    return title, done.stderr


needs_browser = pytest.mark.skipif(shutil.which("chromium") is None, reason="no Chromium here")


@needs_browser
@pytest.mark.parametrize("name", PAGES)
def test_a_browser_runs_nothing_of_a_page(name, tmp_path):
    title, said = in_a_browser(PAGES[name]("".join(PAYLOADS.values())), tmp_path)
    assert title.startswith("unstall") and "pwned" not in title
    assert "evil.example" not in said


@needs_browser
def test_the_browser_would_run_what_is_not_escaped(tmp_path):
    page = f"<!doctype html><html><head><title>safe</title></head><body>{PAYLOADS['script']}</body></html>"
    assert in_a_browser(page, tmp_path)[0] == "pwned"


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
    print_stages(console, text, dataclasses.replace(TABLE, stages=stages))
    print_stages(console, text, dataclasses.replace(TABLE, stages=(), reason=text))


def show_scaling(console: Terminal, text: str) -> None:
    planned = plan(axes={"cores": (1, 2)}, variants=ONE_VARIANT, rounds=1)
    rows = rows_of(planned, {1: (1000.0,), 2: (1100.0,)})
    rows[1] = dataclasses.replace(rows[1], measurements=(), failure=text)
    Report(planned, hostile_source(text), text).print(console, rows)


def show_doctor(console: Terminal, text: str) -> None:
    findings = [Finding(path=text, trouble=trouble, detail=text) for trouble in TROUBLES]
    folder = Folder(root=pathlib.Path(text.replace("\0", "")), classes={"": (text,)}, files=(text,), findings=())
    print_findings(console, folder, findings, 1.0)
    console.print(said([], findings, pathlib.Path("out")), markup=False)


def show_left_out(console: Terminal, text: str) -> None:
    command.say_left_out(console, hostile_source(text))


def show_errors(console: Terminal, text: str) -> None:
    command.say(console, UserError(text))
    command.say_unwritable(console, pathlib.Path(text.replace("\0", "")), OSError(28, text))
    console.print(one_line(ValueError(text)), markup=False)


def show_peers(console: Terminal, text: str) -> None:
    print_left_out(console, [LeftOut(work=text, name=text, reason=text)])


def show_materialized(console: Terminal, text: str) -> None:
    folder = pathlib.Path(text.replace("\0", ""))
    prepared = Prepared(folder=folder, form="raw", images=1, source_bytes=1, prepared_bytes=1, seconds=1.0)
    console.print(describe(prepared, Rates(before=(1.0,), after=(2.0,))), markup=False)


def show_cautions(console: Terminal, text: str) -> None:
    document = an_augmentation([a_measured(failed=text)])
    for line in (*legend(document), *cautions(document)):
        console.print(line, markup=False)


TERMINALS = {
    "results": show_results,
    "stages": show_stages,
    "scaling": show_scaling,
    "doctor": show_doctor,
    "left out": show_left_out,
    "errors": show_errors,
    "peers": show_peers,
    "materialize": show_materialized,
    "augmentation": show_cautions,
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
    console.print("\x1b[2J", style="bold red", markup=False)
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
def test_the_doctors_file_names_what_it_shows(payload):
    text = PAYLOADS[payload]
    folder = Folder(root=pathlib.Path("x"), classes={text: (text,)}, files=(text,), findings=())
    written = to_json(doctor_document(folder, [], [Finding(path=text, trouble="hangs", detail=text)]))
    assert not OBEYED.search(json.loads(written)["findings"][0]["path"])


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_written_script_holds_a_name_as_a_text_and_nothing_of_it_as_code(payload, tmp_path):
    import ast

    text = PAYLOADS[payload].replace("\0", "").replace("/", "")
    source = dataclasses.replace(
        hostile_source(text),
        root=tmp_path / text,
        files=tuple(f"{text}/{index}.jpg" for index in range(4)),
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
    assert assigned == {"CLASSES": [text, "b"], "SKIPPED": [text], "FOLDER": str(tmp_path / text)}


def test_a_results_page_with_a_name_that_is_no_utf8_is_written_all_the_same(tmp_path):
    write_atomically(tmp_path / "report.html", "latin-\udcff")
    assert (tmp_path / "report.html").read_bytes() == rb"latin-\udcff"


def test_no_command_writes_tables_for_spreadsheets():
    """A formula needs a file that a spreadsheet opens: there is none."""
    root = pathlib.Path(__file__).resolve().parents[1]
    packages = ("pipeline", "models", "profiles", "benchmarks")
    written = re.compile(r"^\s*(import|from) (csv|openpyxl|pandas)\b|\.csv\b|\.tsv\b", re.MULTILINE)
    assert [path for name in packages for path in (root / name).rglob("*.py") if written.search(path.read_text())] == []
