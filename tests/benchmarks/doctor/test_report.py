"""The document of an examination: all that is printed and shown follows from its file."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from tests.builders import a_doctor_document
from tests.checks import Page, assert_harmless
from unstall.benchmarks.doctor.report import KIND
from unstall.benchmarks.doctor.results import TROUBLES, Finding, StorageReading
from unstall.profiles.machine import ReaderRate
from unstall.profiles.report import DocumentError, load, write
from unstall.profiles.text import Terminal


def test_all_that_is_printed_and_shown_follows_from_the_file(examined, tmp_path):
    *_, printed, out = examined
    document, kind = load(out, {"doctor": KIND})
    results = kind.derive(document)
    assert kind.page(document, results) == (out / "report.html").read_text()
    console = Terminal(file=io.StringIO(), width=80)
    kind.print(console, document, results)
    assert printed.startswith(console.file.getvalue())
    write(tmp_path, document, kind, results)
    assert (tmp_path / "results.json").read_bytes() == (out / "results.json").read_bytes()


def test_a_document_is_that_of_its_file_whatever_its_names_are(tmp_path):
    document = a_doctor_document(
        Finding(path="cats/latin-\udcff.jpg", trouble="name is not UTF-8", detail="byte 0xff"),
        Finding(path="cats/latin-\udcff.jpg", trouble="hangs", detail="Pillow: no answer"),
        Finding(path="", trouble="imbalance", detail="cats 8, \x1b[31mdogs 2"),
    )
    write(tmp_path, document, KIND, KIND.derive(document))
    again, kind = load(tmp_path, {"doctor": KIND})
    assert again == document
    assert kind.page(again, kind.derive(again)) == (tmp_path / "report.html").read_text()


def test_what_the_storage_gives_is_said_with_what_more_readers_and_memory_would(tmp_path):
    rates = tuple(ReaderRate(readers=n, bytes_per_sec=mb * 1e6, files_per_sec=mb) for n, mb in ((1, 50), (4, 150)))
    reading = StorageReading(text="NFS (nfs4)", rates=rates, memory_bytes_per_sec=4e9)
    document = a_doctor_document()
    document = replace(document, samples=replace(document.samples, storage=reading))
    console = Terminal(file=io.StringIO(), width=80)
    KIND.print(console, document, KIND.derive(document))
    text = " ".join(console.file.getvalue().split())
    assert "lie on NFS (nfs4). From there: 1 reader 50 MB/s (50 files/s); 4 readers 150 MB/s (150 files/s)." in text
    assert "The best, with 4, is 3.0 times as fast as one reader, and memory is 80.0 times as fast" in text
    write(tmp_path, document, KIND, KIND.derive(document))
    again, _ = load(tmp_path, {"doctor": KIND})
    assert again == document and "3.0 times as fast as one reader" in (tmp_path / "report.html").read_text()


def test_a_file_with_a_trouble_that_there_is_not_is_refused(tmp_path):
    document = a_doctor_document(Finding(path="cats/1.jpg", trouble="hangs", detail="Pillow"))
    write(tmp_path, document, KIND, KIND.derive(document))
    content = (tmp_path / "results.json").read_text().replace('"hangs"', '"sings"')
    (tmp_path / "results.json").write_text(content)
    with pytest.raises(DocumentError, match="`trouble` must be a key of `TROUBLES`. Received: trouble='sings'"):
        load(tmp_path, {"doctor": KIND})


def test_the_page_has_the_troubles_that_are_printed_and_the_first_files_of_each(examined):
    *_, document, printed, out = examined
    page = Page((out / "report.html").read_text())
    text = " ".join(page.text.split())
    for name in {finding["trouble"] for finding in document["findings"]}:
        assert f"{name} {TROUBLES[name].meaning}" in text and name in printed
    some = [finding["path"] for finding in document["findings"] if finding["trouble"] == "wrong suffix"]
    assert len(some) > 3
    assert [path in text for path in some[:3]] == [True] * 3
    assert f"and {len(some) - 3} more: results.json names all" in text
    assert_harmless(page)
