"""`unstall cache`: what lies where is shown, what a process uses is left alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from unstall.benchmarks.cli import main
from unstall.pipeline.sources.generated import generated_folder

HOLDS = """
import sys, time
from pathlib import Path
from unstall.pipeline.cache import held
held(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a cache with photos, a digest and a copy."""
    root = tmp_path / "cache"
    monkeypatch.setenv("UNSTALL_CACHE", str(root))
    generated_folder(4, root)
    for path in (root / "digests" / f"{'a' * 24}.json", root / "prepared" / ("b" * 24) / "images.raw"):
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x" * 1_000_000)
    return root


def test_each_kind_is_shown_with_its_size(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache"]) == 0
    rows = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()}
    assert {"generated", "digests", "prepared"} <= rows.keys()
    assert rows["prepared"][:3] == ["1", "1.0", "MB"] and rows["prepared"][3] == "0"


def test_what_scripts_may_read_stays_unless_it_is_named(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "--clear"]) == 0
    assert capsys.readouterr().out.startswith("removed: 2, ")
    assert [path.name for path in root.rglob("*") if path.is_file()] == ["images.raw"]
    assert main(["cache", "--clear", "prepared"]) == 0
    assert not [path for path in root.rglob("*") if path.is_file()]


def test_what_a_killed_process_left_is_removed_and_what_is_not_ours_stays(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left = [
        root / "unstall-scratch.building-1234567-0a1b2c3d",
        root / "prepared" / f"{'b' * 24}.new-0a1b2c3d",
        root / "headers" / f".{'c' * 24}.json-0123456789abcdef",
    ]
    of_the_user = [root / "photos", root / "scratch" / "thesis", root / "prepared" / "train", root / "tfds" / "mnist"]
    for folder in (*left, *of_the_user):
        folder.mkdir(parents=True)
        (folder / "file").write_text("")
    (root / "notes.txt").write_text("")
    assert main(["cache", "--clear", "scratch,generated,links,tfds,headers,digests,prepared,cached"]) == 0
    assert capsys.readouterr().out.startswith("removed: 6, ")
    assert {path.name for path in root.rglob("*") if path.is_file()} == {"file", "notes.txt"}
    assert all(folder.is_dir() for folder in of_the_user) and not any(folder.exists() for folder in left)


def test_what_a_process_uses_is_left_alone_until_the_process_has_ended(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [photos] = root.glob("generated-*")
    with subprocess.Popen([sys.executable, "-c", HOLDS, str(photos)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        assert main(["cache", "--clear", "generated"]) == 0
        assert photos.is_dir() and "1 in use, and left alone" in capsys.readouterr().out
        process.kill()
    assert main(["cache", "--clear", "generated"]) == 0
    assert not photos.exists()


def test_an_unknown_kind_is_one_line(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "--clear", "everything"]) == 2
    errors = capsys.readouterr().err
    assert errors.startswith("--clear: 'everything' is no kind. Known: generated,") and errors.count("\n") == 1
    assert list(root.glob("generated-*"))


def test_no_cache_is_nothing_to_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNSTALL_CACHE", str(tmp_path / "none"))
    assert main(["cache"]) == 0 and main(["cache", "--clear"]) == 0
