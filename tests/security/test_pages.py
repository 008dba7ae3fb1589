"""Pages of results have the same tags whatever names, errors and settings hold; they run nothing and fetch nothing."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import re
import shutil
import subprocess
from typing import Any

import pytest

from benchmarks.accuracy.report import KIND as ACCURACY
from benchmarks.augmentation.report import KIND as AUGMENTATION
from benchmarks.devices.report import KIND as DEVICES
from benchmarks.devices.report import Measurements as DevicesMeasurements
from benchmarks.doctor.plan import Asked as DoctorAsked
from benchmarks.doctor.report import KIND as DOCTOR
from benchmarks.doctor.results import TROUBLES, Finding
from benchmarks.gate.report import COMPARISONS
from benchmarks.peers.report import KIND as PEERS
from benchmarks.scaling.report import KIND as SCALING
from benchmarks.scripts.report import KIND as SCRIPTS
from benchmarks.truth.report import KIND as TRUTH
from benchmarks.tune.check.report import KIND as CHECK
from benchmarks.tune.own.report import KIND as ADVICE
from benchmarks.tune.report import KIND as TUNE
from profiles.report.document import LeftOut
from profiles.report.files import write_atomically
from profiles.report.html import render
from profiles.results.verdict import judge
from profiles.text import printable
from tests import PROJECT_ROOT
from tests.builders import (
    COMPOSED,
    GATE_INVARIANTS,
    GATE_QUESTION,
    ONE_VARIANT,
    a_check_document,
    a_comparisons_document,
    a_counting_group,
    a_devices_document,
    a_doctor_document,
    a_document,
    a_hostile_trial,
    a_measured_case,
    a_measured_peer,
    a_measured_pipeline,
    a_peer,
    a_peers_document,
    a_result,
    a_scaling_document,
    a_scripts_document,
    a_search_document,
    a_survey,
    a_telemetry,
    a_truth_document,
    all_trained,
    an_accuracy_document,
    an_advice_document,
    gate_measurements,
    gate_provenance,
)
from tests.builders import STAGE_TABLE as TABLE
from tests.builders import a_measured_augmentation as a_measured
from tests.builders import a_scaling_plan as plan
from tests.builders import an_accuracy_plan as a_plan
from tests.builders import an_augmentation_document as an_augmentation
from tests.builders import an_augmentation_subject as a_subject
from tests.builders import scaling_rows_of as rows_of
from tests.checks import Page, assert_harmless
from tests.hostile_texts import OBEYED, PAYLOADS, hostile_source, with_text


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


def scaling_report(text: str) -> str:
    planned = plan(axes={"cores": (1, 2)}, variants={text: next(iter(ONE_VARIANT.values()))}, rounds=1)
    rows = rows_of(planned, {1: (1000.0,), 2: (1100.0,)})
    rows[1] = dataclasses.replace(rows[1], measurements=(), failure=text)
    document = a_scaling_document(
        planned,
        rows,
        dataset=with_text(hostile_source(text).to_dict(), text),
        provenance=hostile_provenance(text),
        created=text,
    )
    return SCALING.page(document, SCALING.derive(document))


def augmentation_report(text: str) -> str:
    document = an_augmentation(
        a_measured(picture=text),
        a_measured(a_subject("flip")),
        left_out=(LeftOut(who="flip, opencv, batch", reason=text),),
        dataset=with_text(hostile_source(text).to_dict(), text),
        provenance=hostile_provenance(text),
        created=text,
    )
    return AUGMENTATION.page(document, AUGMENTATION.derive(document))


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


def check_report(text: str) -> str:
    document = a_check_document(**hostile_parts(text))
    [measured] = document.samples.targets
    target = dataclasses.replace(measured.target, model=text)
    everything = tuple(dataclasses.replace(config, name=text) for config in measured.everything)
    measured = dataclasses.replace(measured, target=target, everything=everything)
    document = dataclasses.replace(document, samples=dataclasses.replace(document.samples, targets=(measured,)))
    return CHECK.page(document, CHECK.derive(document))


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


def peers_report(text: str) -> str:
    document = a_peers_document(
        a_measured_peer(text, (1000.0, 1100.0), versions={text: text}, workers=text, flags=(text,)),
        a_measured_peer("other", (), survey=a_survey(labels={text: 64}, dtype=text)),
        peers=[a_peer(text, note=text)],
        dataset=with_text(hostile_source(text).to_dict(), text),
        complete=False,
        **hostile_parts(text),
    )
    asked = dataclasses.replace(document.plan, other_pythons=(text,))
    document = dataclasses.replace(document, plan=asked)
    return PEERS.page(document, PEERS.derive(document))


def truth_report(text: str) -> str:
    document = a_truth_document(
        a_counting_group(1000.0, 1100.0, case=text),
        options={text: text},
        dataset=with_text(hostile_source(text).to_dict(), text) | {"images": 4},
        complete=False,
        **hostile_parts(text),
    )
    return TRUTH.page(document, TRUTH.derive(document))


def scripts_report(text: str) -> str:
    runs = {"as written": [(1.0,), (1.0,)], "watched": [(1.0,)]}
    printed = {"as written": "what is printed plainly", "watched": text}
    document = a_scripts_document(runs, follows=[text], tried={text: 1.5}, chosen=text, printed=printed)
    [script], [samples] = document.plan.scripts, document.samples.scripts
    assert samples.advice is not None
    advice = dataclasses.replace(samples.advice, sentence=text, untried=(text, text))
    document = dataclasses.replace(
        document,
        plan=dataclasses.replace(document.plan, scripts=(dataclasses.replace(script, name=text, source=text),)),
        samples=dataclasses.replace(
            document.samples, scripts=(dataclasses.replace(samples, name=text, advice=advice),)
        ),
        left_out=(LeftOut(who=text, reason=text),),
    )
    return SCRIPTS.page(document, SCRIPTS.derive(document))


PAGES = {
    "main": main_report,
    "scripts": scripts_report,
    "scaling": scaling_report,
    "truth": truth_report,
    "augmentation": augmentation_report,
    "accuracy": accuracy_report,
    "devices": devices_report,
    "doctor": doctor_report,
    "tune": tune_report,
    "tune --pipeline": advice_report,
    "tune --check": check_report,
    "gate": gate_report,
    "peers": peers_report,
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
    if name != "augmentation":  # its pictures are in it
        assert_harmless(seen)
    assert not OBEYED.search(page)
    shown = printable(text).replace("\n", " ")
    assert " ".join(seen.text.split()).count(" ".join(shown.split())) >= 5


@pytest.mark.parametrize("name", PAGES)
def test_a_page_forbids_itself_everything_but_its_own_style_and_pictures(name):
    seen = Page(PAGES[name]("x"))
    [policy] = [a["content"] for _, a in seen.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    for _, attributes in seen.tags:
        assert all((attributes.get(key) or "data:").startswith("data:") for key in ("src", "href", "xlink:href"))


def test_every_template_of_a_page_is_among_those_that_are_tried():
    root = PROJECT_ROOT
    templates = [*root.glob("benchmarks/*/*.html.j2"), *root.glob("profiles/report/templates/*.html.j2")]
    pages = {path.name for path in templates if '{% extends "page.html.j2" %}' in path.read_text()}
    assert pages == {f"{name.partition(' ')[0]}.html.j2" for name in PAGES} - {"main.html.j2"} | {"report.html.j2"}


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
