"""Checks out a git revision into a temporary folder, without touching the user's checkout."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

from unstall.benchmarks.lab.options import UserError
from unstall.pipeline.cache import cache_root, remove_scratch, scratch_folder

_TIMEOUT_S = 300.0
# The module of this project, in today's form and in its earlier one.
_UNSTALL = ("/__init__.py", ".py")


def commit_of(revision: str, repository: Path) -> str:
    """Returns the full id of the commit that a revision names.

    Raises:
      UserError: if the revision names no commit, the folder is in no repository, or git is missing or does not answer.
    """
    try:
        commit = _git(repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    except subprocess.CalledProcessError as error:
        raise UserError(f"--rev: {_problem(revision, repository)}") from error
    except FileNotFoundError as error:
        raise UserError("--rev needs git, and there is none.", exit_code=3) from error
    except subprocess.TimeoutExpired as error:
        raise UserError(f"--rev: git did not answer within {_TIMEOUT_S:.0f} s.", exit_code=3) from error
    return commit.strip()


def _problem(revision: str, repository: Path) -> str:
    """Returns why a revision names no commit, and what to do."""
    try:
        _git(repository, "rev-parse")
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        if "dubious ownership" in str(error.stderr):
            top = repository_of(repository) or repository
            return (
                "git reads no repository that belongs to another user. Allow it: git config --global --add "
                f"safe.directory {shlex.quote(str(top))}"
            )
        return "this folder is in no git repository. Give a branch, a tag or an id."
    return f"{revision!r} is no commit of this repository. Give a branch, a tag or an id."


def repository_of(path: Path) -> Path | None:
    """Returns the top of the repository in which a file or folder lies, without git; None where there is none."""
    return next((folder for folder in (path, *path.parents) if (folder / ".git").exists()), None)


def folder_within(repository: Path) -> str:
    """Returns the path from the top of a git repository to a folder in the repository; "" for the top."""
    return _git(repository, "rev-parse", "--show-prefix").removesuffix("\n")


def check_folder(folder: str, commit: str, revision: str, repository: Path) -> None:
    """Checks that a commit has the folder in which the user stands.

    Args:
      folder: the path from the top of the repository, as `folder_within` returns it.
      revision: the user's name for the commit.
    Raises:
      UserError: if the commit lacks the folder.
    """
    try:
        kind = _git(repository, "cat-file", "-t", f"{commit}:{folder.rstrip('/')}").strip()
    except subprocess.CalledProcessError:
        kind = "nothing"
    if kind != "tree":
        raise UserError(f"--rev: {revision} has no folder {folder!r}, in which you stand.")


def holds_unstall(folder: str, commit: str, repository: Path) -> bool:
    """Whether the code of a commit would be imported from a folder that holds this project as well.

    Args:
      folder: the path from the top of the repository, as `folder_within` returns it.
    """
    places = [f"{top}{source}unstall{file}" for top in ("", folder) for source in ("", "src/") for file in _UNSTALL]
    return bool(_git(repository, "ls-tree", "--name-only", "--full-tree", commit, "--", *places))


@contextlib.contextmanager
def worktree(commit: str, repository: Path) -> Iterator[Path]:
    """Gives a folder that holds the commit's files, and removes the folder at the end.

    The folder lies in the cache, in a scratch folder of this process. The next run removes what a killed run has left.

    Raises:
      UserError: if git cannot make the worktree.
    """
    scratch = scratch_folder(cache_root())
    folder = scratch / commit[:12]
    try:
        _remove_dead(repository)
        # Without the repository's hooks, which are meant for people's checkouts and may do anything.
        _git(
            repository, "-c", "core.hooksPath=/dev/null", "worktree", "add", "--quiet", "--detach", str(folder), commit
        )
        yield folder
    except subprocess.CalledProcessError as error:
        reason = (error.stderr.strip().splitlines() or ["git failed"])[-1]
        raise UserError(f"--rev: no worktree of {commit[:12]}: {reason}", exit_code=3) from error
    except subprocess.TimeoutExpired as error:
        raise UserError(f"--rev: no worktree of {commit[:12]} within {_TIMEOUT_S:.0f} s.", exit_code=3) from error
    finally:
        try:
            with contextlib.suppress(subprocess.SubprocessError):
                _git(repository, "worktree", "remove", "--force", str(folder))
        finally:
            remove_scratch(scratch)


def _remove_dead(repository: Path) -> None:
    """Makes git forget the worktrees of killed runs only; `git worktree prune` might forget worktrees of the user's."""
    listed = _git(repository, "worktree", "list", "--porcelain")
    for line in listed.splitlines():
        path = Path(line.removeprefix("worktree "))
        ours = line.startswith("worktree ") and path.parent.name.startswith("unstall-scratch.building-")
        if ours and path.parent.parent == cache_root().resolve() and not path.exists():
            with contextlib.suppress(subprocess.SubprocessError):
                _git(repository, "worktree", "remove", "--force", str(path))


def _git(repository: Path, *words: str) -> str:
    # A hook of `git commit` has the user's index, or what is to become it, in this variable: git would write there.
    environment = {name: value for name, value in os.environ.items() if name != "GIT_INDEX_FILE"} | {"LC_ALL": "C"}
    completed = subprocess.run(
        ["git", *words],
        cwd=repository,
        env=environment,
        capture_output=True,
        text=True,
        errors="surrogateescape",  # a path need not be UTF-8
        timeout=_TIMEOUT_S,
        check=True,
    )
    return completed.stdout
