"""Where made things are kept, and that what is there is whole."""

import os
import pathlib
import subprocess
import sys

import pytest

from tests import PROJECT_ROOT
from tests.checks import dead_pid, entries
from unstall.pipeline.cache import built_aside, cache_root, scratch_folder


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"UNSTALL_CACHE": "/named", "XDG_CACHE_HOME": "/xdg", "HOME": "/home/me"}, "/named"),
        ({"XDG_CACHE_HOME": "/xdg", "HOME": "/home/me"}, "/xdg/unstall"),
        ({"HOME": "/home/me"}, "/home/me/.cache/unstall"),
        ({"UNSTALL_CACHE": "", "XDG_CACHE_HOME": "", "HOME": "/home/me"}, "/home/me/.cache/unstall"),
    ],
)
def test_the_cache_is_where_the_environment_says(monkeypatch, environment, expected):
    for name in ("UNSTALL_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert cache_root() == pathlib.Path(expected)


def test_a_folder_gets_its_name_when_it_is_whole(tmp_path):
    final = tmp_path / "deep" / "final"
    with built_aside(final) as building:
        (building / "file").write_text("whole")
        assert not final.exists()
        assert building.parent == final.parent
    assert entries(final.parent) == ["final"]
    assert (final / "file").read_text() == "whole"


@pytest.mark.parametrize("failure", [RuntimeError("stop"), KeyboardInterrupt()])
def test_a_failure_leaves_nothing_behind(tmp_path, failure):
    def build():
        with built_aside(tmp_path / "final") as building:
            (building / "file").write_text("half")
            raise failure

    with pytest.raises(type(failure)) as caught:
        build()
    assert caught.value is failure
    assert entries(tmp_path) == []


def test_the_folder_of_a_faster_builder_is_kept(tmp_path):
    final = tmp_path / "final"
    with built_aside(final) as building:
        (building / "ours").touch()
        final.mkdir()
        (final / "theirs").touch()
    assert entries(tmp_path) == ["final"]
    assert entries(final) == ["theirs"]


def test_two_builders_at_once_build_apart(tmp_path):
    with built_aside(tmp_path / "final") as first:
        with built_aside(tmp_path / "final") as second:
            assert first != second
            (second / "second").touch()
        (first / "first").touch()
    assert entries(tmp_path) == ["final"]
    assert entries(tmp_path / "final") == ["second"]


def test_a_name_taken_by_a_file_is_an_error(tmp_path):
    (tmp_path / "final").write_text("a file")
    with pytest.raises(OSError, match="final"), built_aside(tmp_path / "final"):
        pass
    assert entries(tmp_path) == ["final"]


def test_an_empty_folder_that_cannot_be_replaced_is_an_error(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "final").symlink_to("empty")
    with pytest.raises(NotADirectoryError, match="final"), built_aside(tmp_path / "final") as building:
        (building / "file").touch()
    assert entries(tmp_path) == ["empty", "final"]


def test_what_a_killed_builder_left_is_removed_and_a_living_ones_stays(tmp_path):
    stale = tmp_path / f"other.building-{dead_pid()}-00ff"
    alive = tmp_path / f"other.building-{os.getpid()}-00ff"
    no_name_of_ours = tmp_path / "other.building-notes"
    for folder in (stale, alive, no_name_of_ours):
        folder.mkdir()
        (folder / "file").touch()
    with built_aside(tmp_path / "final"):
        pass
    assert entries(tmp_path) == sorted(["final", alive.name, no_name_of_ours.name])


def test_what_is_built_in_another_container_stays(tmp_path, monkeypatch):
    """Its process cannot be seen from here, but the folder is locked."""
    code = """
import pathlib, sys
from unstall.pipeline.cache import built_aside
with built_aside(pathlib.Path(sys.argv[1]) / "other") as building:
    (building / "file").touch()
    print(building.name, flush=True)
    sys.stdin.read()
"""
    builder = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=PROJECT_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert builder.stdin is not None and builder.stdout is not None
    building = builder.stdout.readline().strip()
    monkeypatch.setattr(os, "kill", lambda pid, number: (_ for _ in ()).throw(ProcessLookupError))
    scratch_folder(tmp_path)
    assert building in entries(tmp_path)
    monkeypatch.undo()
    builder.kill()
    builder.wait()
    scratch_folder(tmp_path)
    assert building not in entries(tmp_path)


def test_a_scratch_folder_is_for_the_user_alone_and_what_is_built_is_as_the_umask_says(tmp_path):
    assert scratch_folder(tmp_path).stat().st_mode & 0o777 == 0o700
    before = os.umask(0o027)
    try:
        with built_aside(tmp_path / "final"):
            pass
    finally:
        os.umask(before)
    assert (tmp_path / "final").stat().st_mode & 0o777 == 0o750


def test_scratch_folders_are_new_empty_and_apart(tmp_path):
    first, second = (scratch_folder(tmp_path / "deep" / "root") for _ in range(2))
    assert first != second
    assert [entries(folder) for folder in (first, second)] == [[], []]
    assert entries(tmp_path / "deep" / "root") == sorted([first.name, second.name])


def test_the_scratch_folder_of_a_killed_process_goes_when_the_next_is_made(tmp_path):
    code = (
        "import pathlib, sys; from unstall.pipeline.cache import scratch_folder; "
        "scratch_folder(pathlib.Path(sys.argv[1]))"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=PROJECT_ROOT, check=True)
    [left] = tmp_path.iterdir()
    (left / "file").touch()
    ours = scratch_folder(tmp_path)
    assert entries(tmp_path) == [ours.name] != [left.name]
    another = scratch_folder(tmp_path)
    assert entries(tmp_path) == sorted([ours.name, another.name])
