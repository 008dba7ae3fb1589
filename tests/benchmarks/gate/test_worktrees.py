"""Revisions in folders of their own: the user's checkout stays as it is, and nothing is left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tests import PROJECT_ROOT
from unstall.benchmarks.gate import worktrees
from unstall.benchmarks.gate.processes import Setting, Subject, measure
from unstall.benchmarks.gate.worktrees import commit_of, holds_unstall, worktree
from unstall.benchmarks.lab.options import UserError
from unstall.pipeline.cache import cache_root
from unstall.pipeline.commands.terminal import Stopped
from unstall.profiles.devices import CPU


@pytest.fixture
def repository(tmp_path):
    """A repository with two commits of one file, and a change that is in neither."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    for text in ("old", "new"):
        (folder / "module.py").write_text(text)
        git(folder, "add", ".")
        git(folder, "-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "-m", text)
    (folder / "module.py").write_text("not committed")
    return folder


def git(folder, *words):
    return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True).stdout


def left(repository):
    """What is left in the cache and in git's own list of worktrees."""
    return len(list(cache_root().glob("unstall-scratch.*"))), git(repository, "worktree", "list").count("\n") - 1


def test_each_revision_is_a_folder_of_its_own_and_the_checkout_stays(repository):
    with (
        worktree(commit_of("main~1", repository), repository) as old,
        worktree(commit_of("main", repository), repository) as new,
    ):
        assert ((old / "module.py").read_text(), (new / "module.py").read_text()) == ("old", "new")
    assert (repository / "module.py").read_text() == "not committed"
    assert git(repository, "branch", "--show-current") == "main\n"
    assert left(repository) == (0, 0)


def test_the_index_that_a_hook_was_given_is_not_written(repository, tmp_path, monkeypatch):
    index = tmp_path / "index"
    shutil.copy(repository / ".git" / "index", index)
    before = index.read_bytes()
    monkeypatch.setenv("GIT_INDEX_FILE", str(index))
    with worktree(commit_of("main~1", repository), repository) as old:
        assert (old / "module.py").read_text() == "old"
    assert index.read_bytes() == before


def test_a_repository_of_another_user_is_said_with_the_way_out(repository, monkeypatch):
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    with pytest.raises(UserError, match="belongs to another user. Allow it: git config --global --add safe.directory "):
        commit_of("main", repository)


@pytest.mark.parametrize("error", [Stopped(2), KeyboardInterrupt(), ValueError("measuring failed")])
def test_nothing_is_left_behind_however_it_ends(repository, error):
    with pytest.raises(type(error)), worktree(commit_of("main", repository), repository):
        raise error
    assert left(repository) == (0, 0)


@pytest.mark.parametrize("where", ["git", "rmtree"])
def test_a_signal_while_it_is_removed_leaves_no_folder_behind(repository, where, monkeypatch):
    folder = worktree(commit_of("main", repository), repository)
    folder.__enter__()
    stops = [Stopped(signal.SIGTERM)]
    real = shutil.rmtree

    def stopped(*words, **options):
        if stops:
            raise stops.pop()
        real(*words, **options)

    if where == "git":
        monkeypatch.setattr(worktrees, "_git", stopped)
    else:
        monkeypatch.setattr(worktrees, "_git", lambda *words: "")
        monkeypatch.setattr(shutil, "rmtree", stopped)
    with pytest.raises(Stopped):
        folder.__exit__(None, None, None)
    assert not stops
    assert list(cache_root().glob("unstall-scratch.*")) == []


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_command_that_is_stopped_leaves_nothing_behind(repository, number, tmp_path):
    # It must not end by itself before the signal comes.
    begun = tmp_path / "begun"
    (repository / "module.py").write_text(
        f"import pathlib, time\n\n\ndef feed():\n    pathlib.Path({str(begun)!r}).touch()\n    time.sleep(120)\n"
    )
    git(repository, "-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "-a", "-m", "waits")
    (repository / "module.py").write_text("not committed")
    words = ("compare", "main", "main", "--rev", "--subject", "module:feed", "--out", "out")
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.gate", *words],
        cwd=repository,
        env={**os.environ, "PYTHONPATH": str(PROJECT_ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as command:
        for _ in range(600):
            if left(repository)[1] == 2 and begun.exists():
                break
            time.sleep(0.1)
        command.send_signal(number)
        assert command.wait(30) == 128 + number
    assert left(repository) == (0, 0)
    assert git(repository, "status", "--porcelain") == " M module.py\n"


@pytest.mark.long
def test_a_function_of_two_revisions_is_measured_as_it_was_in_each(repository, tmp_path, monkeypatch):
    """They differ by one constant."""
    monkeypatch.chdir(repository)
    for images in (99, 3):
        (repository / "module.py").write_text(f"IMAGES = {images}\n")
        (repository / "mine.py").write_text("import module\n\ndef count():\n    return module.IMAGES\n")
        git(repository, "add", ".")
        git(repository, "-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "-m", str(images))
    (repository / "module.py").write_text("IMAGES = 1\n")
    setting = Setting(data="", measure="loader", model="cats-dogs-64", device=CPU)
    counted = []
    for revision in ("main~1", "main"):
        with worktree(commit_of(revision, repository), repository) as root:
            subject = Subject(label=revision, kind="function", text="mine:count", root=root, revision=True)
            invariants = measure(subject, setting, tmp_path / "log", inspect=True).invariants
            counted.append(invariants and invariants.images)
    assert counted == [99, 3]


@pytest.mark.parametrize("file", ["unstall.py", "unstall/__init__.py", "src/unstall/__init__.py", "here/unstall.py"])
def test_a_revision_that_holds_this_project_is_found(repository, file):
    (repository / file).parent.mkdir(parents=True, exist_ok=True)
    (repository / file).touch()
    git(repository, "add", ".")
    git(repository, "-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "-m", "ours")
    held = [holds_unstall("here/", commit_of(revision, repository), repository) for revision in ("main~1", "main")]
    assert held == [False, True]


def test_a_worktree_of_a_killed_run_goes_with_the_next_and_the_users_own_stays(repository, tmp_path):
    gone = cache_root() / "unstall-scratch.building-999999-abcd" / "old"
    mine = tmp_path / "mine"
    for folder in (gone, mine):
        git(repository, "worktree", "add", "-q", "--detach", str(folder), "main")
    for folder in (gone.parent, mine):  # the user's lies on a disk that is not there today
        folder.rename(tmp_path / f"away-{folder.name}")
    with worktree(commit_of("main", repository), repository):
        pass
    listed = git(repository, "worktree", "list")
    assert str(mine) in listed and str(gone) not in listed


def test_hooks_are_not_run(repository):
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ntouch ran\n")
    hook.chmod(0o755)
    with worktree(commit_of("main", repository), repository) as folder:
        assert not (folder / "ran").exists()


@pytest.mark.parametrize("revision", ["nothing", "--help", "", "main:module.py"])
def test_what_is_no_commit_is_refused(repository, revision):
    with pytest.raises(UserError, match="is no commit of this repository"):
        commit_of(revision, repository)


def test_a_folder_without_a_repository_is_refused(tmp_path):
    with pytest.raises(UserError, match="this folder is in no git repository"):
        commit_of("main", tmp_path)


def test_a_machine_without_git_is_refused(repository, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match="needs git, and there is none") as refused:
        commit_of("main", repository)
    assert refused.value.exit_code == 3


def test_a_worktree_that_git_refuses_is_no_regression(repository):
    with pytest.raises(UserError, match="no worktree of 0000") as refused, worktree("0" * 40, repository):
        pass
    assert refused.value.exit_code == 3
    assert left(repository) == (0, 0)
