"""Tries the gate on what is known: the same against itself, planted losses, a burned core, simulated noise, faults.

The tries take hours. A run that was stopped is continued by another one in the same folder: the results there hold the
tries so far.
"""

from __future__ import annotations

import hashlib
import math
import multiprocessing
import random
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import Progress

from unstall.benchmarks.gate import processes
from unstall.benchmarks.gate.measure import compare
from unstall.benchmarks.gate.plan import Question
from unstall.benchmarks.gate.processes import Setting, Subject
from unstall.benchmarks.gate.results import Comparison
from unstall.benchmarks.gate.samples import SIDES, Process
from unstall.benchmarks.lab.command import new_log
from unstall.benchmarks.lab.options import MODEL, UserError
from unstall.benchmarks.truth.gate_faults import faults
from unstall.benchmarks.truth.gate_simulated import NOISE, POWER, SPREADS, comparisons
from unstall.benchmarks.truth.measure import Run, neighbours
from unstall.benchmarks.truth.plan import Plan
from unstall.benchmarks.truth.promises import FAULTS, GATE_PARTS, SIMULATED, SIMULATED_FEW, SIMULATION, GatePart
from unstall.benchmarks.truth.report import KIND
from unstall.benchmarks.truth.samples import Attempt, Case, Figure, Group
from unstall.benchmarks.truth.sections import pair_ratios
from unstall.profiles.devices import CPU
from unstall.profiles.gate import REGRESSION, SAME, THRESHOLD_RATIO
from unstall.profiles.report import RESULTS, DocumentError, load

_LOG = "children.log"
_SETTING = Setting(data="", measure="loader", model=MODEL, device=CPU)
# The spread of one measurement, where nothing was measured on this machine yet.
_SPREAD = 0.05


def open_run(plan: Plan, progress: Progress, errors: Console) -> Run:
    """Reads the tries of an earlier run in the same folder, and gets ready to go on.

    Raises:
      UserError: if the folder holds results of another command, or of another part.
    """
    earlier = _earlier(plan.out)
    tries = {case.name: case.attempts for group in earlier if group.name == "tries" for case in group.cases}
    groups = measure(plan.asked.groups, plan.number("tries"), plan.out / _LOG, tries)
    return Run(plan, progress, groups, earlier=earlier)


def _earlier(out: Path) -> tuple[Group, ...]:
    if not (out / RESULTS).exists():
        return ()
    try:
        document, _ = load(out, {"truth": KIND})
    except DocumentError as error:
        raise UserError(f"--out {out} holds {RESULTS} already, and cannot be continued: {error}") from error
    if document.plan.part != "gate":
        raise UserError(f"--out {out} holds {RESULTS} already: nothing is overwritten. Choose another folder.")
    groups: tuple[Group, ...] = document.samples.groups
    return groups


def measure(
    chosen: Sequence[str], tries: int, log: Path, earlier: Mapping[str, tuple[Attempt, ...]]
) -> Generator[Group, None, None]:
    """Tries the chosen parts until each has as many tries as asked; yields after each try, simulation and fault.

    Args:
      log: where the processes that measure write; removed unless one failed.
      earlier: tries of an earlier run, by part.
    """
    attempts = {name: earlier.get(name, ()) for name in GATE_PARTS}
    for name, part in GATE_PARTS.items():
        for _ in range(len(attempts[name]), tries if name in chosen else 0):
            attempts[name] = (*attempts[name], _attempt(part, log))
            cases = (Case(name=case, attempts=of_case) for case, of_case in attempts.items() if of_case)
            yield Group(name="tries", cases=tuple(cases))
    if SIMULATION in chosen:
        yield _simulation([math.log(ratio) for attempt in attempts["same"] for ratio in pair_ratios(attempt)])
    if FAULTS in chosen:
        yield from _faults()


def _attempt(part: GatePart, log: Path) -> Attempt:
    """Has the gate compare two pipelines once."""
    log = new_log(log)
    a, b = (subject(loss) for loss in (0.0, part.loss))

    def measure_side(side: Subject, inspect: bool) -> Process:
        return processes.measure(side, _SETTING, log)

    question = Question(a=a.label, b=b.label, threshold=THRESHOLD_RATIO)
    comparison = Comparison(question=question)
    try:
        with neighbours(int(part.burned), _burn):
            comparison = compare(comparison, {"A": a, "B": b}, measure_side, random.Random())
    finally:
        if comparison.failure is None:
            log.unlink()
    decision = comparison.decide()
    assert decision is not None
    figures = {
        f"{side} {figure}": tuple(process.images_per_sec[figure] for process in comparison.processes(side))
        for side in SIDES
        for figure in comparison.figures
    }
    if decision.judged is not None:
        figures["ratio"] = (decision.judged.ratio,)
    return Attempt(answer=decision.verdict, figures=figures)


def subject(loss: float) -> Subject:
    """Returns the pipeline that serves (1 - loss) times the images/sec of the pipeline as it is."""
    name = f"slower_by_{loss:.0%}".rstrip("%") if loss else "as_it_is"
    return Subject(label=name, kind="own function", text=f"benchmarks.truth.gate_planted:{name}")


def _burn() -> None:
    """Burns a core for as long as the parent process lives."""
    parent = multiprocessing.parent_process()
    block = bytes(2**20)
    while parent is not None and parent.is_alive():
        for _ in range(1000):
            hashlib.sha256(block)


def _simulation(logs: Sequence[float]) -> Group:
    """Counts false alarms on noise that spreads as this machine's does, and how often the gate catches a loss.

    Args:
      logs: of the ratios of pairs of the same; where there are none, the machine is taken to be a quiet one.
    """
    spread = float(np.std(logs)) / math.sqrt(2) if logs else _SPREAD
    rng = np.random.default_rng(0)
    figures = []
    for kind in NOISE:
        few, many = (
            comparisons(kind, spread, (0.0, 0.0), rng, count).ratio(REGRESSION) for count in (SIMULATED_FEW, SIMULATED)
        )
        figures += [
            Figure(case=kind, name=f"false of {SIMULATED_FEW}", truth=(), measured=(round(few * SIMULATED_FEW),)),
            Figure(case=kind, name="false alarms, %", truth=(0.0,), measured=(100 * many,)),
        ]
    for of_one in SPREADS:
        for name, losses in POWER.items():
            verdicts = comparisons("gaussian", of_one, losses, rng, SIMULATED // 2)
            caught = verdicts.ratio(REGRESSION if any(losses) else SAME)
            pairs = float(verdicts.pairs.mean())
            figures += [
                Figure(case=f"{of_one:.0%}", name=name, truth=(), measured=(100 * caught,)),
                Figure(case=f"{of_one:.0%}", name=f"{name}: pairs", truth=(), measured=(pairs,)),
            ]
    measured = Attempt(answer="", figures={"spread": (spread,), "pairs": (len(logs),)})
    return Group(name=SIMULATION, figures=tuple(figures), cases=(Case(name="one measurement", attempts=(measured,)),))


def _faults() -> Iterator[Group]:
    """Yields the exit codes of the faults so far, after each."""
    figures: tuple[Figure, ...] = ()
    for fault in faults():
        code = fault.run()
        figures += (Figure(case=fault.name, name="exit code", truth=(fault.promised,), measured=(code,)),)
        yield Group(name=FAULTS, figures=figures)
