"""Remedies that are written into a script and into the other files of the user's that make its data."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.builders import a_measurement_document, a_result, a_trial, samples_at
from tests.checks import SHORT_PROFILES, run_python
from unstall.profiles.__main__ import main
from unstall.profiles.remedies import AS_WRITTEN, Edit, Trial, gains_of
from unstall.profiles.report.document import write
from unstall.profiles.report.measurements import CALL, KIND, SCRIPT, Plan
from unstall.profiles.stages.places import Place
from unstall.profiles.trial.applying import ApplyError, Wanted
from unstall.profiles.trial.users_files import UsersFiles
from unstall.profiles.trial.writing import written

TRAIN = """import inspect, sys
from parts import data
print(data.make(), data.made(1), "calls=2" in inspect.getsource(data.make))
if sys.argv[1:]:
    data.fail()
"""
DATA = '''"""Makes the data."""
def made(size, calls=1):
    return f"{size} in {calls}"

def make():
    return made(4)

def fail():
    1 / 0
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the folder in which the commands are typed, with a script whose data another file makes."""
    place = tmp_path / "here"
    (place / "parts").mkdir(parents=True)
    (place / "train.py").write_text(TRAIN)
    (place / "parts" / "data.py").write_text(DATA)
    old(place / "parts" / "data.py")
    monkeypatch.chdir(place)
    return place


def old(file: Path) -> None:
    """Dates a file before the run, as files are that the user wrote."""
    os.utime(file, (1e9, 1e9))


def edit_at(file: Path, call: str, text: str) -> Edit:
    """Returns the edit that gives a call an argument, where it stands last in a file."""
    before, _, _ = file.read_text().rpartition(call)
    line = before.count("\n") + 1
    column = len(before.rpartition("\n")[2]) + len(call)
    return Edit(place=Place(file=str(file), line=line, end_line=line, end_column=column), kind="argument", text=text)


def trial_of(*edits: Edit) -> Trial:
    """Returns a trial whose remedy has these edits and makes the script twice as fast."""
    trial = a_trial({AS_WRITTEN: samples_at(*[100.0] * 4), "calls": samples_at(*[200.0] * 4)})
    return replace(trial, remedies=tuple(replace(remedy, edits=edits) for remedy in trial.remedies))


def wanted_of(trial: Trial) -> list[Wanted]:
    chosen = gains_of(trial).chosen
    assert chosen is not None
    return [Wanted(names=chosen.contender.remedies, remedies=trial.remedies, digests=trial.digests)]


def in_both(folder: Path) -> tuple[Edit, Edit]:
    return (
        edit_at(folder / "parts" / "data.py", "made(4)", "calls=2"),
        edit_at(folder / "train.py", "made(1)", "calls=3"),
    )


def measured(folder: Path, *edits: Edit, script: str = "train.py") -> Trial:
    """Returns the trial as its file holds it after a run of the script from the current folder."""
    return UsersFiles(folder / script).named(trial_of(*edits))


def test_files_are_named_from_the_folder_of_the_script_and_have_a_digest_each(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.py").write_text(DATA)
    library = folder / "site-packages" / "data.py"
    library.parent.mkdir()
    library.write_text(DATA)
    outside = [edit_at(file, "made(4)", "calls=2") for file in (tmp_path / "elsewhere.py", library)]
    [remedy] = (trial := measured(folder, *in_both(folder), *outside)).remedies
    assert [edit.place.file for edit in remedy.edits] == [
        "parts/data.py",
        "train.py",
        ".../elsewhere.py",
        ".../data.py",
    ]
    assert trial.digests.keys() == {"train.py", "parts/data.py"}
    assert len(set(trial.digests.values())) == 2


def test_a_file_of_the_folder_of_the_command_is_named_from_the_script(folder: Path) -> None:
    (folder / "scripts").mkdir()
    (folder / "scripts" / "train.py").write_text(TRAIN)
    trial = measured(folder, in_both(folder)[0], script="scripts/train.py")
    [remedy] = trial.remedies
    assert remedy.edits[0].place.file == "../parts/data.py"
    assert written(wanted_of(trial), Path("scripts/train.py")).names == ("parts/data.py",)


def test_a_file_that_was_changed_while_the_script_ran_has_no_digest(folder: Path) -> None:
    files, trial = UsersFiles(folder / "train.py"), trial_of(*in_both(folder))
    assert files.named(trial).digests.keys() == {"train.py", "parts/data.py"}
    (folder / "parts" / "data.py").write_text(DATA + "\n")
    (folder / "train.py").write_text(TRAIN + "\n")
    assert files.named(trial).digests == {}


def test_the_diff_covers_both_files_and_applies_where_the_command_was_typed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = measured(folder, *in_both(folder))
    monkeypatch.chdir(tmp_path)
    made = written(wanted_of(trial), Path("here/train.py"))
    assert made.names == ("here/parts/data.py", "here/train.py")
    (tmp_path / "fix.diff").write_text(made.diff)
    subprocess.run(["git", "apply", "fix.diff"], cwd=tmp_path, check=True, capture_output=True)
    assert (folder / "parts" / "data.py").read_text() == DATA.replace("made(4)", "made(4, calls=2)")
    assert (folder / "train.py").read_text() == TRAIN.replace("made(1)", "made(1, calls=3)")


RUNS = """
import sys
from pathlib import Path
from unstall.profiles.script.run import Replaced, run_script
texts = {Path(name).resolve(): text for name, text in TEXTS.items()}
replaced = Replaced(texts)
code = run_script("train.py", sys.argv[1:], lambda error, code: None, replaced=replaced)
print(code, sorted(path.name for path in replaced.not_run))
"""
TEXTS = {
    "parts/data.py": DATA.replace("made(4)", "made(4, calls=2)").replace("def fail", "# a line\n\ndef fail"),
    "train.py": TRAIN.replace("made(1)", "made(1, calls=3)"),
}


def run_edited(folder: Path, *words: str, texts: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return run_python(folder, "-c", f"TEXTS = {texts!r}\n{RUNS}", *words)


def test_the_edited_text_is_what_the_script_imports_and_the_file_stays(folder: Path) -> None:
    assert run_edited(folder, texts=TEXTS).stdout == "4 in 2 1 in 3 True\n0 []\n"
    assert (folder / "parts" / "data.py").read_text() == DATA
    # Neither from the bytecode of an earlier run, nor into that of a later one.
    assert run_python(folder, "train.py", PYTHONDONTWRITEBYTECODE="").stdout == "4 in 1 1 in 1 False\n"
    assert list((folder / "parts" / "__pycache__").iterdir())
    assert run_edited(folder, texts=TEXTS).stdout == "4 in 2 1 in 3 True\n0 []\n"
    assert run_python(folder, "train.py").stdout == "4 in 1 1 in 1 False\n"


def test_an_error_in_an_edited_file_shows_the_line_that_ran(folder: Path) -> None:
    shown = run_edited(folder, "fails", texts=TEXTS)
    assert 'data.py", line 11, in fail\n    1 / 0\n' in shown.stderr
    assert shown.stdout.endswith("1 []\n")


def test_a_file_that_was_not_imported_is_known(folder: Path) -> None:
    (folder / "other.py").write_text(DATA)
    assert run_edited(folder, texts={"other.py": DATA, **TEXTS}).stdout.endswith("0 ['other.py']\n")


def refusal(folder: Path, trial: Trial) -> str:
    with pytest.raises(ApplyError) as refused:
        written(wanted_of(trial), folder / "train.py")
    return str(refused.value)


@pytest.mark.parametrize("name", ["parts/data.py", "train.py"])
def test_a_file_that_was_changed_since_it_was_measured_is_named(name: str, folder: Path) -> None:
    trial = measured(folder, *in_both(folder))
    with (folder / name).open("a") as file:
        file.write("# changed\n")
    assert refusal(folder, trial) == f"--write needs the results of a run of {name} as it is now. Measure it again."


def test_a_file_elsewhere_a_file_that_is_gone_and_a_call_that_is_none_are_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "data.py").write_text(DATA)
    elsewhere = measured(folder, edit_at(tmp_path / "data.py", "made(4)", "calls=2"))
    assert refusal(folder, elsewhere).startswith("--write: the data are made in .../data.py, which lies neither in")
    edit, _ = in_both(folder)
    no_call = measured(folder, replace(edit, place=replace(edit.place, end_column=1)))
    assert refusal(folder, no_call) == "--write: parts/data.py: no call ends in line 6, column 1."
    gone = measured(folder, edit)
    (folder / "parts" / "data.py").unlink()
    assert "parts/data.py cannot be read: " in refusal(folder, gone)


def test_a_remedy_without_an_edit_is_refused(folder: Path) -> None:
    assert refusal(folder, measured(folder)) == ("--write: calls is too involved for an edit by machine: code of calls")


def results_of(folder: Path, trial: Trial, *, command: str = SCRIPT) -> None:
    """Writes the results of a run of the script in which the remedy helped."""
    document = a_measurement_document(a_result())
    document = replace(
        document,
        command=command,
        plan=Plan(rounds=3, data="train.py"),
        samples=replace(document.samples, trials={"loop 1 (train.py:4)": trial}),
    )
    write(folder / "out", document, KIND, KIND.derive(document))


@pytest.mark.parametrize(
    ("command", "diff", "said"),
    [
        (SCRIPT, "nowhere/fix.diff", "nowhere is no folder that can be written to."),
        (SCRIPT, "train.py/fix.diff", "train.py is no folder that can be written to."),
        (SCRIPT, "train.py", "--write train.py exists already: nothing is overwritten."),
        (CALL, "fix.diff", "--apply out is of profiles.profile: only a script's remedies can be put in place."),
    ],
)
def test_what_cannot_be_written_is_one_line_before_the_script_runs(
    command: str, diff: str, said: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    results_of(folder, measured(folder, *in_both(folder)), command=command)
    assert main(["--apply=out", "--write", diff, "train.py"]) == 2
    printed = capfd.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1 and said in printed.err


LOOP = """import data
loader = data.make()
for epoch in range(2):
    for batch in loader:
        pass
print(loader.num_workers)
"""
LOADER = """from torch.utils.data import DataLoader

def make():
    return DataLoader(list(range(64)), batch_size=4)
"""


@pytest.mark.needs("torch")
@pytest.mark.long
def test_the_command_runs_the_edited_loader_of_another_file_and_writes_its_diff(folder: Path) -> None:
    (folder / "train.py").write_text(LOOP)
    (folder / "data.py").write_text(LOADER)
    old(folder / "data.py")
    results_of(
        folder,
        measured(folder, edit_at(folder / "data.py", "DataLoader(list(range(64)), batch_size=4)", "num_workers=1")),
    )
    words = ("--apply=out", "--write", "fix.diff", "--no-ceilings", "--out", "second", "train.py")
    shown = run_python(folder, "-c", SHORT_PROFILES, *words)
    assert (shown.stdout, shown.returncode) == ("1\n", 0), shown.stderr[-3000:]
    assert (folder / "data.py").read_text() == LOADER
    subprocess.run(["git", "apply", "fix.diff"], cwd=folder, check=True, capture_output=True)
    assert "batch_size=4, num_workers=1)" in (folder / "data.py").read_text()
