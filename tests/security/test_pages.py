"""Pages of results have the same tags whatever names, errors and settings hold; they run nothing and fetch nothing."""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import html
import json
import os
import pathlib
import re
import shutil
import subprocess
from typing import Any

import pytest

from tests import PROJECT_ROOT
from tests.builders import (
    COMPOSED,
    GATE_INVARIANTS,
    GATE_QUESTION,
    ONE_VARIANT,
    a_comparisons_document,
    a_costs,
    a_devices_document,
    a_doctor_document,
    a_document,
    a_fewer_bits_document,
    a_hostile_trial,
    a_measured_case,
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
    a_telemetry,
    a_trainers_document,
    a_worker_window,
    all_trained,
    an_accuracy_document,
    an_advice_document,
    gate_measurements,
    gate_provenance,
    rounds_of,
)
from tests.builders import STAGE_TABLE as TABLE
from tests.builders import an_accuracy_plan as a_plan
from tests.checks import PAGE_SCRIPT, Page, assert_harmless
from tests.hostile_texts import OBEYED, PAYLOADS, hostile_source, with_text
from unstall.benchmarks.accuracy.report import KIND as ACCURACY
from unstall.benchmarks.devices.fewer_bits.report import KIND as FEWER_BITS
from unstall.benchmarks.devices.report import KIND as DEVICES
from unstall.benchmarks.devices.report import Measurements as DevicesMeasurements
from unstall.benchmarks.doctor.plan import Asked as DoctorAsked
from unstall.benchmarks.doctor.report import KIND as DOCTOR
from unstall.benchmarks.doctor.results import TROUBLES, Finding
from unstall.benchmarks.gate.report import COMPARISONS
from unstall.benchmarks.pipeline.sweep.report import KIND as SWEEP
from unstall.benchmarks.service.planning.model import Hosts
from unstall.benchmarks.service.planning.report import KIND as SERVICE_PLAN
from unstall.benchmarks.service.report import KIND as SERVICE
from unstall.benchmarks.trainers.report import KIND as TRAINERS
from unstall.benchmarks.tune.own.report import KIND as ADVICE
from unstall.benchmarks.tune.report import KIND as TUNE
from unstall.profiles.devices import Device
from unstall.profiles.report.document import LeftOut
from unstall.profiles.report.html import render, with_answer
from unstall.profiles.report.screen import Screen, ScreenLine
from unstall.profiles.report.writing_files import write_atomically
from unstall.profiles.results.verdict import judge
from unstall.profiles.text import printable


def hostile_provenance(text: str) -> dict[str, Any]:
    provenance: dict[str, Any] = with_text(a_document([])["provenance"], text)
    return provenance | {"packages": {text: text}, text: text}


def main_report(text: str) -> str:
    line = {"number": 1, "source": "x", "hits": 1, "us": 1.0, "ratio": 0.5}
    annotated = {"function": "f", "location": "train.py:1", "total_us": 1.0, "lines": [line]}
    result = dataclasses.replace(a_result(work=("w",), notes=("n",)), stages=TABLE)
    document = a_document(
        [result],
        left_out=[{"who": "v", "reason": "r"}],
        verdicts=[one.to_dict() for one in judge([result])],
    )
    document["dataset"] |= {"skipped": 1, "skipped_files": [{"path": "p", "reason": "r"}]}
    document["results"][0]["lines"] = [annotated]
    document = with_text(document, text)
    document["provenance"]["packages"] = {text: text}
    document["provenance"][text] = text
    result_of = document["results"][0]
    return render(document, {(result_of["model"], result_of["device"]["name"]): [text]}, a_telemetry(text, gpus=1))


def sweep_report(text: str) -> str:
    planned = a_sweep_plan(sweeps={"cores": (1, 2)}, variants={text: next(iter(ONE_VARIANT.values()))}, models=(text,))
    document = a_sweep_document(
        planned,
        {1: (1000.0,) * 3, 2: (1100.0,) * 3},
        note=text,
        left_out=(LeftOut(who=text, reason=text),),
        dataset=with_text(hostile_source(text).to_dict(), text),
        provenance=hostile_provenance(text),
        created=text,
    )
    return SWEEP.page(document, SWEEP.derive(document))


def accuracy_report(text: str) -> str:
    planned = a_plan(tuned_name=text)
    trained = all_trained(planned, generator="11", tuned="10")
    document = an_accuracy_document(
        planned,
        trained,
        provenance=hostile_provenance(text),
        left_out=(LeftOut(who=text, reason=text),),
        created=text,
        complete=False,
    )
    photos = with_text(hostile_source(text).to_dict(), text) | {"images": 4}
    document = dataclasses.replace(
        document,
        dataset={"train": photos, "test": photos},
        samples=dataclasses.replace(document.samples, device=text, tested_with=text),
    )
    return ACCURACY.page(document, ACCURACY.derive(document))


def devices_report(text: str) -> str:
    backends = {"cpu": {"keras_backend": text, "gpus": [text]}, text: {"keras_backend": text, "gpus": [text]}}
    document = a_devices_document(
        provenance=hostile_provenance(text) | {"backends": backends},
        samples=DevicesMeasurements(cases=(a_measured_case(backend=text, notes=(text,)),)),
        left_out=(LeftOut(who=text, reason=text), LeftOut(who="gpu", reason=text)),
        created=text,
        telemetry=a_telemetry(text, gpus=1),
    )
    return DEVICES.page(document, DEVICES.derive(document))


def doctor_report(text: str) -> str:
    document = a_doctor_document(
        *(Finding(path=text, trouble=trouble, detail=text) for trouble in TROUBLES),
        plan=DoctorAsked(folder=text),
        provenance=hostile_provenance(text),
        created=text,
    )
    return DOCTOR.page(document, DOCTOR.derive(document))


def hostile_parts(text: str) -> dict[str, Any]:
    """Fields of a document whose every text is this one."""
    provenance = with_text(a_document([])["provenance"], text) | {"packages": {text: text}, text: text}
    return {
        "provenance": provenance | {"usable_cores": 2.0},
        "left_out": (LeftOut(who=text, reason=text),),
        "created": text,
    }


def tune_report(text: str) -> str:
    dataset = with_text(hostile_source(text).to_dict(), text)
    chosen = a_measured_pipeline(text, 1500.0, COMPOSED, spread=0.001)
    document = a_search_document(chosen, {"rejected": {text: 3}}, dataset=dataset, **hostile_parts(text))
    document = dataclasses.replace(document, plan=dataclasses.replace(document.plan, model=text))
    return TUNE.page(document, TUNE.derive(document))


def advice_report(text: str) -> str:
    document = an_advice_document(a_hostile_trial(text), **hostile_parts(text))
    document = dataclasses.replace(document, plan=dataclasses.replace(document.plan, pipeline=text, model=text))
    return ADVICE.page(document, ADVICE.derive(document))


def fewer_bits_report(text: str) -> str:
    document = a_fewer_bits_document(a_measured_way(text, 1000.0), **hostile_parts(text))
    samples = dataclasses.replace(document.samples, tested_with=text)
    plan = dataclasses.replace(a_fewer_bits_document().plan, model=text, data=text)
    document = dataclasses.replace(document, plan=plan, samples=samples)
    document = dataclasses.replace(document, dataset=dict.fromkeys(("train", "test"), document.dataset))
    return FEWER_BITS.page(document, FEWER_BITS.derive(document))


def service_report(text: str) -> str:
    measured = a_measured_service(text, 2000.0, workers=(a_worker_window(text, 1000),), repaired=1)
    [facts] = measured.facts
    facts = dataclasses.replace(facts, functions=(text,), costs_us={text: 1.0})
    measured = dataclasses.replace(measured, facts=(facts,))
    document = a_service_document(
        a_measured_service("none", 1000.0),
        measured,
        dataset=with_text(hostile_source(text).to_dict(), text) | {"images": 4},
        complete=False,
        **hostile_parts(text),
    )
    document = dataclasses.replace(document, plan=dataclasses.replace(document.plan, device=text, data=text))
    return SERVICE.page(document, SERVICE.derive(document))


def trainers_report(text: str) -> str:
    document = a_trainers_document(
        a_measured_trainers("one-jax"),
        a_measured_trainers("jax-processes", 2),
        dataset=with_text(hostile_source(text).to_dict(), text) | {"images": 4},
        complete=False,
        **hostile_parts(text),
    )
    document = dataclasses.replace(document, plan=dataclasses.replace(document.plan, model=text, data=text))
    return TRAINERS.page(document, TRAINERS.derive(document))


def service_plan_report(text: str) -> str:
    hosts = Hosts(worker_cores=1.0, trainer_cores=1.0, accelerators=4, per_host=2, memory_bytes=1e9)
    document = a_service_plan_document(
        a_costs(),
        model=text,
        device=Device(kind="emulated", name=text, images_per_sec=1000.0),
        hosts=hosts,
        images=1_000_000,
        data=text,
        dataset=with_text(hostile_source(text).to_dict(), text) | {"images": 4},
        complete=False,
        **hostile_parts(text),
    )
    return SERVICE_PLAN.page(document, SERVICE_PLAN.derive(document))


def gate_report(text: str) -> str:
    question = dataclasses.replace(GATE_QUESTION, a=text, b=text)
    changed = dataclasses.replace(GATE_INVARIANTS, stages=(text,))
    provenance = with_text(gate_provenance(), text) | {"packages": {text: text}, text: text}
    document = a_comparisons_document(
        gate_measurements(invariants=changed),
        question=question,
        name=text,
        provenance=provenance,
        dataset=with_text(hostile_source(text).to_dict(), text),
        created=text,
    )
    return COMPARISONS.page(document, COMPARISONS.derive(document))


PAGES = {
    "main": main_report,
    "sweep": sweep_report,
    "accuracy": accuracy_report,
    "devices": devices_report,
    "devices --inference": fewer_bits_report,
    "service local": service_report,
    "trainers": trainers_report,
    "service plan": service_plan_report,
    "doctor": doctor_report,
    "tune": tune_report,
    "tune --pipeline": advice_report,
    "gate": gate_report,
}
# Those whose template is `tables.html.j2`; others have a template of their name, the main job has `report.html.j2`.
BY_TABLES = {
    "devices --inference",
    "service local",
    "trainers",
    "service plan",
    "tune",
    "tune --pipeline",
}


def shape(seen: Page) -> list[tuple[str, list[str]]]:
    """A page's tags and the names of their attributes."""
    return [(tag, sorted(attributes)) for tag, attributes in seen.tags]


@functools.cache
def harmless(name: str) -> list[tuple[str, list[str]]]:
    return shape(Page(PAGES[name]("harmless")))


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_the_same_tags_whatever_the_texts_in_it_are(name, payload):
    text = PAYLOADS[payload]
    page = PAGES[name](text)
    seen = Page(page)
    assert shape(seen) == harmless(name)
    assert_harmless(seen)
    assert not OBEYED.search(page)
    shown = printable(text).replace("\n", " ")
    assert " ".join(seen.text.split()).count(" ".join(shown.split())) >= 5


@pytest.mark.parametrize("name", PAGES)
def test_a_page_forbids_itself_everything_but_its_own_style_and_pictures(name):
    seen = Page(PAGES[name]("x"))
    [policy] = [a["content"] for _, a in seen.tags if a.get("http-equiv") == "Content-Security-Policy"]
    [script] = seen.scripts
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policies = ["default-src 'none'", "style-src 'unsafe-inline'", "img-src data:", f"script-src 'sha256-{digest}'"]
    assert policy == "; ".join(policies) and script == PAGE_SCRIPT
    for _, attributes in seen.tags:
        assert all((attributes.get(key) or "data:").startswith("data:") for key in ("src", "href", "xlink:href"))


def test_every_template_of_a_page_is_among_those_that_are_tried():
    root = PROJECT_ROOT
    templates = [*root.glob("benchmarks/**/*.html.j2"), *root.glob("profiles/report/templates/*.html.j2")]
    pages = {path.name for path in templates if '{% extends "page.html.j2" %}' in path.read_text()}
    own = {f"{name}.html.j2" for name in PAGES if name not in BY_TABLES}
    assert pages == own - {"main.html.j2"} | {"report.html.j2", "tables.html.j2"}


@dataclasses.dataclass(frozen=True)
class Browsed:
    """A page as a browser had it once it had run what it runs.

    Attributes:
      page: its tags.
      console: what was written to the console.
      asked: the addresses that were asked for, the browser's own among them.
    """

    page: str
    console: list[str]
    asked: str

    @property
    def title(self) -> str:
        return html.unescape(
            re.findall(r"<title>(.*?)</title>", self.page, re.DOTALL)[0]
        )  # a chart's parts have titles


def browsed(page: str, folder: pathlib.Path) -> Browsed:
    write_atomically(folder / "page.html", page)
    words = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile"]
    words += ["--enable-logging=stderr", f"--log-net-log={folder}/net.json", "--virtual-time-budget=5000"]
    words += ["--dump-dom", f"file://{folder}/page.html"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=True)
    console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    return Browsed(done.stdout, console, (folder / "net.json").read_text())


# `.ci/run` asks for the browser, and a run of a user's own does without.
needs_browser = pytest.mark.skipif(
    shutil.which("chromium") is None and not os.environ.get("UNSTALL_BROWSER"), reason="no Chromium here"
)


def with_script(page: str, script: str) -> str:
    """A page that may run one more script than its own, behind its own."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = page.replace("script-src ", f"script-src 'sha256-{digest}' ", 1)
    return allowed.replace("</body>", f"<script>{script}</script></body>")


# A page that shows others in frames, and whose title is what these send. No window of the browser is narrower than
# 500 px; a frame is. What a frame that was given a script runs, its title or its sizes would show.
FRAMES = """<!doctype html><title>{}</title><script>
const seen = {};
onmessage = (event) => { seen[event.data[0]] = event.data[1]; document.title = JSON.stringify(seen); };
</script>"""
FRAME = '<iframe src="{file}" style="width: {width}px; height: 900px; border: 0"></iframe>'
SEND = """
for (const part of document.querySelectorAll("details")) part.open = true;
const sizes = [document.documentElement.scrollWidth, window.innerWidth];
parent.postMessage([location.pathname.split("/").pop(), [document.querySelector("title").textContent, ...sizes]], "*");
"""


def browsed_together(pages: dict[str, tuple[str, int]], folder: pathlib.Path) -> tuple[dict[str, Any], Browsed]:
    """Opens pages in frames of one window, each by name with its text and the width of its frame in pixels.

    Returns:
      Of each page its title, how wide it is, and how wide its frame; and the window as the browser had it.
    """
    files = {name: f"{number}.html" for number, name in enumerate(pages)}
    for name, (page, _) in pages.items():
        write_atomically(folder / files[name], with_script(page, SEND))
    frames = (FRAME.format(file=files[name], width=width) for name, (_, width) in pages.items())
    window = browsed(FRAMES + "".join(frames), folder)
    sent = json.loads(window.title)
    return {name: sent[file] for name, file in files.items()}, window


@pytest.fixture(scope="module")
def given_payloads(tmp_path_factory):
    """All pages as a browser had them, with texts that try to run and to fetch; their texts, and the window."""
    pages = {name: page("".join(PAYLOADS.values())) for name, page in PAGES.items()}
    seen, window = browsed_together({name: (text, 900) for name, text in pages.items()}, tmp_path_factory.mktemp("all"))
    return pages, seen, window


@needs_browser
@pytest.mark.parametrize("name", PAGES)
def test_a_browser_shows_the_title_of_a_page_whatever_it_was_given(name, given_payloads):
    pages, seen, _ = given_payloads
    title, _, _ = seen[name]
    assert title == html.unescape(re.findall(r"<title>(.*?)</title>", pages[name], re.DOTALL)[0])
    assert title.startswith("unstall: ")


@needs_browser
def test_a_browser_runs_nothing_of_what_pages_were_given(given_payloads):
    _, _, window = given_payloads
    assert window.console == [] and "evil.example" not in window.asked


@needs_browser
def test_the_browser_would_run_and_fetch_what_is_not_escaped(tmp_path):
    given = f"{PAYLOADS['script']}<img src='https://evil.example/x.png'><script>throw 1</script>"
    page = f"<!doctype html><html><head><title>safe</title></head><body>{given}</body></html>"
    seen, window = browsed_together({"bad": (page, 900)}, tmp_path)
    assert seen["bad"][0] == "pwned" and "evil.example" in window.asked and len(window.console) >= 1


CLICK = """
const table = document.querySelector("table.compact");
const cells = (n) => Array.from(table.tBodies[0].rows, (row) => row.cells[n].textContent);
const heads = table.tHead.rows[0].cells;
const seen = [cells(0)];
heads[1].click(); seen.push(cells(1));
heads[1].click(); seen.push(cells(1));
heads[5].dispatchEvent(new KeyboardEvent("keydown", { key: "Enter" })); seen.push(cells(5));
heads[0].click(); seen.push(cells(0));
const buttons = document.querySelectorAll(".copy button").length;
document.title = JSON.stringify([seen, heads[0].getAttribute("aria-sort"), buttons]);
"""


@needs_browser
def test_a_click_on_a_heading_sorts_the_table_and_commands_have_a_button(tmp_path):
    results = [
        a_result("generator"),
        a_result("fast", train=rounds_of("train", 5, 5, 5, wait_ms=1, edge_ms=5), loader_ms=5),
        a_result("unknown", train=rounds_of("train", 7, 7, 7, wait_ms=1, edge_ms=5), loader_ms=None),
    ]
    line = ScreenLine(label="NEXT", text="do", code=("unstall tune",))
    page = with_answer(render(a_document(results), {}), [Screen(heading=("h",), next=(line,))])
    seen, direction, buttons = json.loads(browsed(with_script(page, CLICK), tmp_path).title)
    assert seen[0] == ["generator", "fast", "unknown"]
    rates = [float(cell.replace(",", "")) for cell in seen[1]]
    assert rates == sorted(rates, reverse=True) and seen[2] == seen[1][::-1] and rates[0] > 1000 > rates[-1]
    assert seen[3] == ["2,000", "1,111", "-"]
    assert seen[4] == ["unknown", "generator", "fast"] and direction == "descending"
    assert buttons == 1


WIDTHS = [*((name, 400) for name in PAGES), ("main", 900), ("main", 1600)]


@pytest.fixture(scope="module")
def in_windows(tmp_path_factory):
    """Pages in frames of several widths: how wide each is, and how wide its frame."""
    pages = {f"{name} {width}": (PAGES[name]("train"), width) for name, width in WIDTHS}
    return browsed_together(pages, tmp_path_factory.mktemp("wide"))[0]


@needs_browser
@pytest.mark.parametrize(("name", "width"), WIDTHS)
def test_a_page_is_as_wide_as_the_window(name, width, in_windows):
    _, wide, window = in_windows[f"{name} {width}"]
    assert window == width and wide <= window


@needs_browser
def test_what_is_folded_is_printed(tmp_path):
    """A page on paper is as long as one whose parts are all open on a screen."""
    page = PAGES["main"]("train")
    sizes = []
    for text in (page, page.replace("<details", "<details open"), page.replace("::details-content", "::none")):
        write_atomically(tmp_path / "page.html", text)
        words = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile"]
        words += [f"--print-to-pdf={tmp_path}/page.pdf", "--no-pdf-header-footer", f"file://{tmp_path}/page.html"]
        subprocess.run(words, capture_output=True, timeout=300, check=True)
        sizes.append(len(re.findall(rb"/Type ?/Page\b", (tmp_path / "page.pdf").read_bytes())))
    assert sizes[0] == sizes[1] > sizes[2]
