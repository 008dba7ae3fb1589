"""How every measurement of `benchmarks.evidence` runs and ends: written after each round, kept when stopped."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.benchmarks.evidence.augmentation.builders import a_document, a_measured, a_subject
from tests.benchmarks.evidence.documents import printed
from tests.benchmarks.evidence.peers.builders import a_measured_peer, a_peer, a_peers_document
from tests.benchmarks.evidence.scripts.builders import a_scripts_document
from tests.hostile_texts import OBEYED, PAYLOADS
from unstall.benchmarks.evidence import run as runner
from unstall.benchmarks.evidence.augmentation.__main__ import EVIDENCE as AUGMENTATION
from unstall.benchmarks.evidence.peers.__main__ import EVIDENCE as PEERS
from unstall.benchmarks.evidence.run import Evidence, run, run_plan
from unstall.benchmarks.evidence.scripts.__main__ import EVIDENCE as SCRIPTS
from unstall.benchmarks.lab.command import exit_code_of
from unstall.benchmarks.lab.options import UserError
from unstall.profiles.report import Document, LeftOut
from unstall.profiles.text import Terminal

# A document of each in which something was measured, and one in which nothing was.
ALL: dict[str, tuple[Evidence, Document[Any, Any], Document[Any, Any]]] = {
    "peers": (
        PEERS,
        a_peers_document(a_measured_peer("ours:one", (1000.0, 1100.0)), a_measured_peer("other", (500.0, 600.0))),
        a_peers_document(),
    ),
    "scripts": (SCRIPTS, a_scripts_document([(2.0, 1.0)]), a_scripts_document()),
    "augmentation": (AUGMENTATION, a_document(a_measured()), a_document()),
}


@dataclass
class FakeLab:
    """Measures nothing: two rounds, of which the first leaves the document."""

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
        return dataclasses.replace(self.measured if self.rounds else self.nothing, complete=complete)

    def close(self) -> None:
        self.ended.append("closed")

    def kill(self) -> None:
        self.ended.append("killed")


class Ran:
    """A measurement run on a lab that measures nothing: its exit code, its two outputs, and its folder."""

    def __init__(self, name: str, lab: FakeLab, out: Path) -> None:
        evidence = dataclasses.replace(ALL[name][0], lab=lambda plan, progress, errors: lab)  # type: ignore[arg-type,return-value]
        self.lab, self.out = lab, out
        console, errors = (Terminal(file=io.StringIO(), width=100) for _ in range(2))
        plan = SimpleNamespace(out=out)
        self.code = exit_code_of(lambda: run_plan(evidence, plan, console, errors), errors, out)
        self.printed: str = console.file.getvalue()  # type: ignore[attr-defined]
        self.errors: str = errors.file.getvalue()  # type: ignore[attr-defined]

    @property
    def files(self) -> list[str]:
        return sorted(path.name for path in self.out.iterdir()) if self.out.exists() else []

    def results(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.out / "results.json").read_text())
        return content


def a_lab(name: str, **changes: Any) -> FakeLab:
    _, measured, nothing = ALL[name]
    return FakeLab(measured=measured, nothing=nothing, **changes)


@pytest.fixture(params=ALL)
def name(request: pytest.FixtureRequest) -> str:
    text: str = request.param
    return text


def test_a_run_prints_its_table_writes_one_file_and_closes_its_lab(name: str, tmp_path: Path) -> None:
    ran = Ran(name, a_lab(name), tmp_path / "out")
    assert (ran.code, ran.errors, ran.files) == (0, "", ["results.json"])
    evidence, document, _ = ALL[name]
    assert "\n".join(map(str.rstrip, ran.printed.splitlines())) == (
        f"{printed(document, evidence.view(document), width=100)}\n\nresults: {ran.out}/results.json"
    )
    assert ran.lab.ended == ["closed"]


def test_the_file_has_the_raw_samples_what_follows_and_where_it_was_measured(name: str, tmp_path: Path) -> None:
    results = Ran(name, a_lab(name), tmp_path / "out").results()
    evidence, document, _ = ALL[name]
    assert (results["command"], results["complete"], results["provenance"]) == (name, True, dict(document.provenance))
    assert results["samples"] == json.loads(json.dumps(runner.encode(document.samples)))
    assert results["results"] == json.loads(json.dumps(runner.encode(evidence.view(document).rows)))
    assert results["results"] and results["plan"]


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
    assert ran.errors == f"stopped: what was measured so far is in {ran.out}\n"
    assert ran.files == ["results.json"] and ran.results()["complete"] is False


def test_a_signal_before_the_first_round_leaves_nothing(name: str, tmp_path: Path) -> None:
    ran = Ran(name, a_lab(name, in_round=lambda number: os.kill(os.getpid(), signal.SIGINT)), tmp_path / "out")
    assert (ran.code, ran.errors, ran.out.exists()) == (130, "stopped: nothing measured\n", False)


def test_nothing_measured_is_exit_code_3_with_the_reasons(name: str, tmp_path: Path) -> None:
    why = dataclasses.replace(ALL[name][2], left_out=(LeftOut(who="a subject", reason="it hung"),))
    ran = Ran(name, dataclasses.replace(a_lab(name), measured=why, nothing=why), tmp_path / "out")
    assert (ran.code, ran.out.exists()) == (3, False)
    assert ran.errors == "nothing could be measured. a subject: it hung\n"


def test_what_the_user_can_mend_is_one_line_and_keeps_no_half_of_a_run(name: str, tmp_path: Path) -> None:
    def refuse(number: int) -> None:
        raise UserError("--data needs files.")

    ran = Ran(name, a_lab(name, in_round=refuse), tmp_path / "out")
    assert (ran.code, ran.errors, ran.out.exists()) == (2, "--data needs files.\n", False)
    assert ran.lab.ended == ["killed"]


def test_what_the_user_can_mend_in_a_later_round_leaves_what_was_measured(name: str, tmp_path: Path) -> None:
    def refuse(number: int) -> None:
        if number:
            raise UserError("--data lost a file.")

    ran = Ran(name, a_lab(name, in_round=refuse), tmp_path / "out")
    assert ran.code == 2 and ran.files == ["results.json"]
    assert ran.errors == f"stopped: what was measured so far is in {ran.out}\n--data lost a file.\n"


def test_an_error_of_ours_keeps_what_was_measured(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(number: int) -> None:
        if number:
            raise ZeroDivisionError("ours")

    ran = Ran(name, a_lab(name, in_round=fail), tmp_path / "out")
    assert (ran.code, ran.lab.ended) == (3, ["killed"])
    assert ran.errors.endswith("could not measure: ZeroDivisionError: ours\n")
    assert "Traceback" in capsys.readouterr().err
    assert ran.results()["complete"] is False


def test_a_full_disk_is_one_line(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(runner, "write_atomically", full)
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
    with suppress(SystemExit):  # argparse ends so, by itself with 2
        assert run(ALL[name][0], words) == 2
    assert capsys.readouterr().err and list(tmp_path.iterdir()) == []


def test_a_word_that_is_not_known_is_repeated_harmlessly(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    word = "--" + "".join(PAYLOADS.values()).replace(" ", "")
    with pytest.raises(SystemExit, match="2"):
        run(ALL[name][0], ["scripts", word] if name == "scripts" else [word])
    said = capsys.readouterr().err
    assert not OBEYED.search(said)
    assert len([line for line in said.splitlines() if "unrecognized arguments: --<script>" in line]) == 1


def hostile(name: str, text: str) -> Document[Any, Any]:
    """Returns a document in which every text of others is `text`."""
    left_out = (LeftOut(who=text, reason=text),)
    if name == "peers":
        measured = a_measured_peer(text, (1000.0, 1100.0), versions={text: text}, workers=text, flags=(text,))
        return a_peers_document(measured, peers=[a_peer(text, note=text)], left_out=left_out)
    if name == "augmentation":
        return a_document(a_measured(a_subject("shear")), left_out=left_out)
    document = a_scripts_document([(1.0, 1.0)] * 2, [(1.0, 0.9)] * 2, promised=1.5)
    [script], [samples] = document.plan.scripts, document.samples.scripts
    advice = samples.advice
    assert advice is not None
    return dataclasses.replace(
        document,
        plan=dataclasses.replace(
            document.plan, scripts=(dataclasses.replace(script, name=text, source=text, expert=text),)
        ),
        samples=dataclasses.replace(
            document.samples,
            scripts=(dataclasses.replace(samples, name=text, advice=dataclasses.replace(advice, not_written=text)),),
        ),
        left_out=left_out,
    )


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_terminal_is_given_nothing_to_obey(name: str, payload: str) -> None:
    text = PAYLOADS[payload]
    document = hostile(name, text)
    shown = printed(document, ALL[name][0].view(document), width=400)
    assert not OBEYED.search(shown)
    if not OBEYED.search(text):  # markup and emoji codes stay what they are
        assert "".join(text.strip().splitlines()[0].split()) in "".join(shown.split())
