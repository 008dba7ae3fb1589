"""Runs scripts, each in a process of its own: as written and by hand in turns, and once under `unstall profile`."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from unstall.benchmarks.evidence.scripts.plan import BY_HAND, HELD, TRAIN, Asked, Plan, Script
from unstall.benchmarks.evidence.scripts.samples import Advice, How, Samples, ScriptRun, ScriptSamples, Tried
from unstall.benchmarks.lab.child import program
from unstall.benchmarks.lab.run import LabRun
from unstall.profiles import clock
from unstall.profiles.remedies import AS_WRITTEN, gains_of
from unstall.profiles.report import RESULTS, DocumentError, LeftOut, load
from unstall.profiles.report.measurements import KINDS, derive

# The line of an epoch's time.
_EPOCH = re.compile(r"^EPOCH_S (\d+(?:\.\d+)?(?:e-?\d+)?)\s*$", re.MULTILINE)
# Most characters that are kept of what a script prints.
_MOST_CHARACTERS = 200_000


class Lab(LabRun[Asked, Samples]):
    """Runs scripts, one at a time."""

    command = "scripts"

    def __init__(self, plan: Plan, progress: Any, errors: Console) -> None:
        super().__init__(plan.asked, progress, None)
        self._plan = plan
        self._scripts: dict[str, ScriptSamples] = {}

    def measure(self, after_round: Callable[[], object]) -> None:
        """Runs every script as often as the plan says. After a failure the rest of that script's runs are skipped."""
        asked = self._asked
        runs = sum(len(_turns(script, asked.rounds)) for script in asked.scripts)
        task = self._progress.add_task("scripts", total=runs)
        for script in asked.scripts:
            self._scripts[script.name] = ScriptSamples(name=script.name)
            for how, round_ in _turns(script, asked.rounds):
                self._progress.update(task, description=f"{script.name}, {how}", refresh=True)
                script_run = self._run(script, how, round_)
                samples = self._scripts[script.name]
                self._scripts[script.name] = replace(samples, runs=(*samples.runs, script_run))
                if how == "watched":
                    self._read_advice(script)
                self._progress.advance(task)
                if script_run.exit_code:
                    why = f"it ended with exit code {script_run.exit_code}"
                    if script_run.wall_s >= asked.limit_s:
                        why = f"it was ended after {asked.limit_s:g} s (--limit)"
                    reason = f"{how}, {why}; see {_log(script, how)}"
                    self._left_out.append(LeftOut(who=script.name, reason=reason))
                    break
            after_round()

    def samples(self) -> Samples:
        return Samples(scripts=tuple(self._scripts.values()))

    def _run(self, script: Script, how: How, round_: int) -> ScriptRun:
        folder, out = self._plan.folder / script.name, self._plan.out.resolve()
        words = [{"by hand": BY_HAND, "held": HELD}.get(how, TRAIN), *script.words]
        if how == "watched":
            options = ["--budget", f"{self._asked.budget_s:g}", "--out", str(out / script.name)]
            words = ["-m", "unstall", "profile", *options, *words]  # the folder may hold a `profiles` of its own
        with tempfile.TemporaryFile() as stdout, (out / _log(script, how)).open("wb") as stderr:
            began_ns = clock.now_ns()
            with (
                program([sys.executable, *words], folder, script.environment, stdout=stdout, stderr=stderr) as process,
                suppress(subprocess.TimeoutExpired),
            ):
                process.wait(self._asked.limit_s)
            wall_s = (clock.now_ns() - began_ns) / 1e9
            stdout.seek(0)
            printed = stdout.read().decode(errors="replace")
        return ScriptRun(
            how=how,
            round=round_,
            exit_code=process.returncode,
            wall_s=wall_s,
            epochs_s=tuple(seconds for text in _EPOCH.findall(printed) if (seconds := float(text)) > 0),
            printed=printed[:_MOST_CHARACTERS],
        )

    def _read_advice(self, script: Script) -> None:
        path = self._plan.out / script.name / RESULTS
        try:
            advice = advice_in(path) if path.exists() else None
        except DocumentError as error:
            self._left_out.append(LeftOut(who=script.name, reason=str(error)))
            return
        if advice is None:
            self._left_out.append(LeftOut(who=script.name, reason="watched, nothing was measured of it"))
        self._scripts[script.name] = replace(self._scripts[script.name], advice=advice)


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
    gains = None if trial is None else gains_of(trial)
    return Advice(
        loading_ratio=verdict.result.attribution.loading_ratio,
        is_least=verdict.result.is_least,
        most_taken_ratio=verdict.result.most_taken_ratio,
        sentence=verdict.text(),
        tried=()
        if gains is None
        else tuple(
            Tried(name=gain.name, remedies=gain.contender.remedies, ratio=gain.best[0], interval=gain.best[1])
            for gain in gains.all
            if gain.name != AS_WRITTEN
        ),
        chosen=None if gains is None or gains.chosen is None else gains.chosen.name,
        untried=() if trial is None else tuple(f"{untried.name}: {untried.reason}" for untried in trial.untried),
    )


def _turns(script: Script, rounds: int) -> list[tuple[How, int]]:
    """Returns the runs of a script in their order, drawn in each round; the watched run comes last."""
    hows: list[How] = ["as written"]
    if script.follows:
        hows.append("by hand")
    if script.held:
        hows.append("held")
    turns = [(how, round_) for round_ in range(rounds) for how in random.sample(hows, len(hows))]
    return [*turns, ("watched", 0)]


def _log(script: Script, how: How) -> str:
    """Returns the name of the file with what the last such run of a script wrote to stderr."""
    return f"{script.name}-{how.replace(' ', '-')}.log"
