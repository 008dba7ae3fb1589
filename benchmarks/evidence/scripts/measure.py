"""Runs scripts, each in a process of its own: first as they are and edited by an expert, then under `unstall profile`.

What this writes is put into a copy of the script, which runs in turns with the script as it is.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from unstall.benchmarks.evidence.scripts.plan import EXPERT, TRAIN, Asked, Plan, Script
from unstall.benchmarks.evidence.scripts.results import gain_of, is_known
from unstall.benchmarks.evidence.scripts.samples import Advice, How, Pair, Promise, Samples, ScriptRun, ScriptSamples
from unstall.benchmarks.lab.child import program
from unstall.benchmarks.lab.run import LabRun
from unstall.profiles import clock
from unstall.profiles.remedies import gains_of
from unstall.profiles.report import RESULTS, DocumentError, LeftOut, load
from unstall.profiles.report.measurements import KINDS, derive

# The line with the time of a whole training.
_TRAIN = re.compile(r"^TRAIN_S (\d+(?:\.\d+)?(?:e-?\d+)?)\s*$", re.MULTILINE)
# Most characters that are kept of what a script prints.
_MOST_CHARACTERS = 200_000
_DIFF = "fix.diff"


class _Failed(Exception):
    """A run of a script failed, and no further one is made; the message says how.

    Attributes:
      how: the script ran.
    """

    def __init__(self, text: str, how: How) -> None:
        super().__init__(text)
        self.how = how


class Lab(LabRun[Asked, Samples]):
    """Runs scripts, one at a time."""

    command = "scripts"

    def __init__(self, plan: Plan, progress: Any, errors: Console) -> None:
        super().__init__(plan.asked, progress, None)
        self._plan = plan
        self._scripts: dict[str, ScriptSamples] = {}

    def measure(self, after_round: Callable[[], object]) -> None:
        """Runs every script as often as the plan says. After a failure the rest of that script's runs are skipped."""
        task = self._progress.add_task("scripts", total=len(self._asked.scripts))
        for script in self._asked.scripts:
            self._scripts[script.name] = ScriptSamples(name=script.name)
            folder = self._plan.folder / script.name
            try:
                if script.expert:  # before the tool is asked: its answer must not change what an expert does
                    self._pairs(script, "expert", folder, EXPERT, task)
                self._profile(script, folder, task)
                with self._written(script, folder) as copy:
                    if copy is not None:
                        self._pairs(script, "tool", copy, TRAIN, task)
            except _Failed as error:
                self._left_out.append(LeftOut(who=script.name, reason=str(error)))
                if error.how == "tool":
                    self._scripts[script.name] = replace(self._scripts[script.name], broken=str(error))
            self._progress.advance(task)
            after_round()

    def samples(self) -> Samples:
        return Samples(scripts=tuple(self._scripts.values()))

    def _pairs(self, script: Script, edit: Literal["expert", "tool"], folder: Path, file: str, task: Any) -> None:
        """Runs the script and an edit of it in turns, until the gain is known well enough or twice as often."""
        asked = self._asked
        for number in range(2 * asked.pairs):
            samples = self._scripts[script.name]
            if number >= asked.pairs and is_known(gain_of(samples, edit)):
                return
            self._progress.update(task, description=f"{script.name}, {edit}, pair {number + 1}", refresh=True)
            ways: list[tuple[How, Path, str]] = [
                ("unmodified", self._plan.folder / script.name, TRAIN),
                (edit, folder, file),
            ]
            runs = {way[0]: self._run(script, *way) for way in random.sample(ways, len(ways))}
            pair = Pair(edit=edit, unmodified=runs["unmodified"], edited=runs[edit])
            self._scripts[script.name] = replace(samples, pairs=(*samples.pairs, pair))

    def _profile(self, script: Script, folder: Path, task: Any) -> None:
        """Runs the script under `unstall profile`, and reads what was said."""
        self._progress.update(task, description=f"{script.name}, profiled", refresh=True)
        out = self._plan.out.resolve() / script.name
        options = ("-m", "unstall", "profile", "--budget", f"{self._asked.budget_s:g}", "--out", str(out))
        run = self._run(script, "profiled", folder, TRAIN, options)
        try:
            advice = advice_in(out / RESULTS) if (out / RESULTS).exists() else None
        except DocumentError as error:
            raise _Failed(str(error), "profiled") from error
        self._scripts[script.name] = replace(self._scripts[script.name], profiled=run, advice=advice)
        if advice is None:
            raise _Failed("under `unstall profile` nothing was measured of it", "profiled")

    @contextmanager
    def _written(self, script: Script, folder: Path) -> Iterator[Path | None]:
        """Yields a copy of the script's folder with the diff of `--write`; None where there is no advice or no diff."""
        advice = self._scripts[script.name].advice
        if advice is None or advice.promise is None:
            yield None
            return
        out = self._plan.out.resolve() / script.name
        options = ("-m", "unstall", "profile", "--apply", str(out), "--write", str(out / _DIFF), "--no-trial")
        with suppress(_Failed):
            self._run(script, "profiled", folder, TRAIN, options)
        if not (out / _DIFF).is_file():
            why = f"no diff was written; see {_log(script, 'profiled')}"
            samples = self._scripts[script.name]
            self._scripts[script.name] = replace(samples, advice=replace(advice, not_written=why))
            yield None
            return
        with tempfile.TemporaryDirectory() as copies:
            copy = Path(copies) / script.name
            _copy(folder, copy)
            applied = subprocess.run(
                ["git", "apply", str(out / _DIFF)], cwd=copy, capture_output=True, text=True, check=False
            )
            if applied.returncode:
                raise _Failed(f"its diff does not apply: {applied.stderr.strip()}", "tool")
            yield copy

    def _run(self, script: Script, how: How, folder: Path, file: str, before: tuple[str, ...] = ()) -> ScriptRun:
        """Runs a script once.

        Raises:
          _Failed: if it fails, or takes longer than the limit.
        """
        log = self._plan.out.resolve() / _log(script, how)
        with tempfile.TemporaryFile() as stdout, log.open("wb") as stderr:
            began_ns = clock.now_ns()
            words = [sys.executable, *before, file, *script.words]
            with (
                program(words, folder, script.environment, stdout=stdout, stderr=stderr) as process,
                suppress(subprocess.TimeoutExpired),
            ):
                process.wait(self._asked.limit_s)
            wall_s = (clock.now_ns() - began_ns) / 1e9
            stdout.seek(0)
            printed = stdout.read().decode(errors="replace")
        if process.returncode:
            why = f"it ended with exit code {process.returncode}"
            if wall_s >= self._asked.limit_s:
                why = f"it was ended after {self._asked.limit_s:g} s (--limit)"
            raise _Failed(f"{how}, {why}; see {_log(script, how)}", how)
        told = [float(text) for text in _TRAIN.findall(printed)]
        return ScriptRun(
            wall_s=wall_s,
            train_s=sum(told) or None,
            printed=printed[:_MOST_CHARACTERS],
        )


def advice_in(path: Path) -> Advice | None:
    """Reads what `unstall profile` said of the `fit` or loop whose remedies were tried, or else of the first.

    Raises:
      DocumentError: if the file is no document of a script.
    """
    document, _ = load(path, KINDS)
    verdicts = derive(document)
    if not verdicts:
        return None
    trials = document.samples.trials
    verdict = next((verdict for verdict in verdicts if verdict.result.subject.variant in trials), verdicts[0])
    trial = trials.get(verdict.result.subject.variant)
    chosen = None if trial is None else gains_of(trial).chosen
    promise = None
    if chosen is not None:
        ratio, interval = chosen.in_script
        promise = Promise(remedies=chosen.name, ratio=ratio, interval=interval)
    return Advice(
        loading_ratio=verdict.result.attribution.loading_ratio,
        sentence=verdict.text(),
        promise=promise,
        untried=() if trial is None else tuple(f"{untried.name}: {untried.reason}" for untried in trial.untried),
    )


def _copy(folder: Path, copy: Path) -> None:
    """Copies Python's files, which a diff may change, and links all others."""
    for path in sorted(folder.rglob("*")):
        there = copy / path.relative_to(folder)
        if path.is_dir() and not path.is_symlink():
            there.mkdir(parents=True, exist_ok=True)
        elif path.suffix == ".py":
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, there)
        else:
            there.parent.mkdir(parents=True, exist_ok=True)
            there.symlink_to(path.resolve())


def _log(script: Script, how: How) -> str:
    """Returns the name of the file with what the last such run of a script wrote to stderr."""
    return f"{script.name}-{how}.log"
