"""What the gate does to what is known: the same against itself, planted losses, a burned core, simulated noise, faults.

python -m benchmarks.truth --only gate --out runs/gate-truth

Hours in all, a try at a time; stopped and called again with the same folder, it goes on where it was. The table at the
end is of whatever was tried by then.
"""

from __future__ import annotations

import hashlib
import json
import math
import multiprocessing
import random
import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.gate.measure import compare
from benchmarks.gate.plan import Question
from benchmarks.gate.processes import Setting, Subject, measure
from benchmarks.gate.results import Comparison
from benchmarks.gate.samples import Process
from benchmarks.lab.command import exit_code_of
from benchmarks.lab.options import MODEL, UserError
from benchmarks.truth.gate_faults import faults
from benchmarks.truth.gate_simulated import NOISE, POWER, SPREADS, tried
from pipeline.commands import ArgumentParser, Stopped
from profiles import Device
from profiles.gate import (
    ALARM_ERROR,
    EPOCH,
    FAILED,
    IMPROVED,
    INCONCLUSIVE,
    REGRESSION,
    SAME,
    THRESHOLD_RATIO,
)
from profiles.report import encode
from profiles.text import Terminal

# What the design of this project asks for.
_TRIES, _SIMULATED, _CAUGHT_RATIO = 20, 200, 0.95
# Enough that 1 % is known to 0.1 %.
_MANY = 20_000
_SETTING = Setting(data="", measure="loader", model=MODEL, device=Device(kind="cpu", name="cpu"))
_VERDICTS = (REGRESSION, IMPROVED, SAME, INCONCLUSIVE, FAILED)
# Where nothing was measured on this machine yet.
_SPREAD = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One thing that is tried again and again.

    Attributes:
      loss: planted in B, a ratio.
      burned: whether another process burns a core throughout.
      does: in a few words.
    """

    loss: float
    burned: bool
    does: str

    def holds(self, verdicts: Counter[str]) -> bool:
        """Whether the tries came to what is promised."""
        tries = sum(verdicts.values())
        if verdicts[FAILED]:
            return False
        if self.loss >= 0.2 and not self.burned:
            return verdicts[REGRESSION] >= _CAUGHT_RATIO * tries
        return not verdicts[IMPROVED] and (self.loss > 0 or not verdicts[REGRESSION])

    @property
    def promised(self) -> str:
        if self.loss >= 0.2 and not self.burned:
            return f"regr. {_CAUGHT_RATIO:.0%}"
        return "no impr." if self.loss else "neither"


PARTS = {
    "same": Part(loss=0.0, burned=False, does="same against itself"),
    "slower-5": Part(loss=0.05, burned=False, does="5 % planted"),
    "slower-10": Part(loss=0.10, burned=False, does="10 % planted"),
    "slower-20": Part(loss=0.20, burned=False, does="20 % planted"),
    "slower-50": Part(loss=0.50, burned=False, does="50 % planted"),
    "same-burned": Part(loss=0.0, burned=True, does="same, a core burned"),
}
_SIMULATION, _FAULTS = "simulation", "faults"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns 0 where all that was tried holds, 1 where not, 128 + signal if stopped."""
    does = (__doc__ or "").splitlines()[0]
    parser = ArgumentParser(prog="python -m benchmarks.truth --only gate", description=does)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the tries are kept")
    parser.add_argument("--tries", type=int, default=_TRIES, metavar="N", help=f"of each part (default: {_TRIES})")
    parser.add_argument("--only", choices=(*PARTS, _SIMULATION, _FAULTS), action="append", help="this part alone")
    arguments = parser.parse_args(argv)
    console, errors = Terminal(), Terminal(stderr=True)
    chosen = arguments.only or (*PARTS, _SIMULATION, _FAULTS)

    def run() -> int:
        if arguments.tries < 1:
            raise UserError(f"--tries must be at least 1. Received: {arguments.tries}.")
        arguments.out.mkdir(parents=True, exist_ok=True)
        try:
            for name in (one for one in PARTS if one in chosen):
                _try(name, arguments.out, arguments.tries, errors)
        except Stopped:
            _print(arguments.out, [one for one in chosen if one in PARTS], console)
            raise
        return 0 if _print(arguments.out, chosen, console) else 1

    return exit_code_of(run, errors, arguments.out, "stopped: call it again with the same --out to go on")


def _try(name: str, out: Path, tries: int, errors: Console) -> None:
    part = PARTS[name]
    path = out / f"{name}.jsonl"
    done = len(_read(path))
    for number in range(done, tries):
        seed = secrets.randbits(32)
        said = errors.status(f"{part.does}: try {number + 1} of {tries}")
        with said, _burner() if part.burned else nullcontext():
            comparison = _compare(part, out, random.Random(seed))
        with path.open("a", encoding="utf-8") as file:
            if path.read_bytes()[-1:] not in (b"", b"\n"):
                file.write("\n")  # what a killed run left half is a line of its own
            kept = comparison.to_dict(comparison.decide()) | {"measurements": encode(comparison.measurements)}
            file.write(json.dumps({"seed": seed, **kept}, allow_nan=False) + "\n")


def _compare(part: Part, out: Path, coin: random.Random) -> Comparison:
    a, b = (_subject(loss) for loss in (0.0, part.loss))

    def measure_side(subject: Subject, inspect: bool) -> Process:
        return measure(subject, _SETTING, out / "children.log")

    question = Question(a=a.label, b=b.label, threshold=THRESHOLD_RATIO)
    return compare(Comparison(question=question), {"A": a, "B": b}, measure_side, coin)


def _subject(loss: float) -> Subject:
    name = f"slower_by_{loss:.0%}".rstrip("%") if loss else "as_it_is"
    return Subject(label=name, kind="own function", text=f"benchmarks.truth.gate_planted:{name}")


@contextmanager
def _burner() -> Iterator[None]:
    """Keeps one core busy with another process."""
    process = multiprocessing.get_context("spawn").Process(target=_burn, daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def _burn() -> None:
    """Burns a core for as long as there is somebody to stop it."""
    parent = multiprocessing.parent_process()
    block = bytes(2**20)
    while parent is not None and parent.is_alive():
        for _ in range(1000):
            hashlib.sha256(block)


def _read(path: Path) -> list[dict[str, Any]]:
    """Returns the tries that are whole: the last line of a killed run may not be."""
    tries = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            tries.append(json.loads(line))
        except ValueError:
            continue
    return tries


def _print(out: Path, chosen: Sequence[str], console: Console) -> bool:
    """Prints what all tries so far came to. Returns whether it is what is promised."""
    held = True
    table = Table(box=None, padding=(0, 1, 0, 0))
    for column in ("tried", "tries", "regr.", "impr.", "same", "open", "failed", "pairs", "ratio", "promised"):
        table.add_column(column, justify="left" if column in ("tried", "promised") else "right")
    spreads: list[float] = []
    for name in (one for one in PARTS if one in chosen):
        tries = _read(out / f"{name}.jsonl")
        decisions = [one["decision"] for one in tries]
        verdicts = Counter(one["verdict"] for one in decisions)
        if name == "same":
            spreads = [math.log(ratio) for one in tries for ratio in one["ratios"][EPOCH]]
        if not tries:
            continue
        holds = PARTS[name].holds(verdicts)
        held &= holds
        ratios = [one["figures"][one["figure"]]["ratio"] for one in decisions if one["figures"]]
        table.add_row(
            PARTS[name].does,
            str(len(tries)),
            *(str(verdicts[verdict]) for verdict in _VERDICTS),
            f"{np.mean([one['pairs'] for one in decisions]):.0f}",
            f"{np.median(ratios):.3f}" if ratios else "-",
            PARTS[name].promised if holds else f"[bold red]{PARTS[name].promised}[/]",
        )
    if table.row_count:
        console.print(table)
    if _SIMULATION in chosen:
        held &= _print_simulation(spreads, console)
    if _FAULTS in chosen:
        held &= _print_faults(console)
    return held


def _print_simulation(logs: Sequence[float], console: Console) -> bool:
    """Prints false alarms on simulated noise that spreads as this machine's does, or, unmeasured, as a quiet one's."""
    spread = float(np.std(logs)) / math.sqrt(2) if logs else _SPREAD
    where = f"of this machine, by {len(logs)} pairs of the same" if logs else "supposed: nothing was measured yet"
    console.print(f"\nsimulated, one measurement varies by {spread:.1%} ({where})", highlight=False)
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("noise", f"false of {_SIMULATED}", f"false of {_MANY:,}", "promised"):
        table.add_column(column, justify="left" if column == "noise" else "right")
    rng = np.random.default_rng(0)
    held = True
    for kind in NOISE:
        ratios = [tried(kind, spread, (0.0, 0.0), rng, count).ratio(REGRESSION) for count in (_SIMULATED, _MANY)]
        held &= ratios[1] <= ALARM_ERROR
        table.add_row(kind, str(round(ratios[0] * _SIMULATED)), f"{ratios[1]:.2%}", f"{ALARM_ERROR:.0%}")
    console.print(table)
    _print_power(console, rng)
    return held


def _print_power(console: Console, rng: np.random.Generator) -> None:
    """Prints how often a loss is caught, and `same` of what is; in brackets the mean number of pairs."""
    console.print("\ncaught, of losses of both figures, and of one alone (Gaussian noise)")
    table = Table(box=None, padding=(0, 1, 0, 0))
    for column in ("varies by", *POWER):
        table.add_column(column, justify="right")
    for spread in SPREADS:
        cells = []
        for losses in POWER.values():
            outcomes = tried("gaussian", spread, losses, rng, _MANY // 2)
            cells.append(f"{outcomes.ratio(REGRESSION if any(losses) else SAME):.1%} ({outcomes.pairs.mean():.0f})")
        table.add_row(f"{spread:.0%}", *cells)
    console.print(table)


def _print_faults(console: Console) -> bool:
    """Prints the exit code of each way in which nothing can be measured."""
    console.print("")
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("fault", "exit code", "promised"):
        table.add_column(column, justify="left" if column == "fault" else "right")
    held = True
    for fault in faults():
        code = fault.run()
        held &= code == fault.promised
        table.add_row(fault.name, str(code), str(fault.promised))
    console.print(table)
    return held
