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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.gate.measure import Comparison, Question, compare
from benchmarks.gate.processes import Process, Setting, Subject, measure
from benchmarks.lab.command import exit_code_of
from benchmarks.lab.options import MODEL, UserError
from benchmarks.truth.gate_faults import faults
from pipeline.commands import ArgumentParser, Stopped
from profiles import Device
from profiles.gate import (
    ALARM_ERROR,
    EPOCH,
    FAILED,
    IMPROVED,
    INCONCLUSIVE,
    PAIRS,
    REGRESSION,
    SAME,
    THRESHOLD_RATIO,
    Paired,
    change,
    plan,
    share_out,
    together,
)
from profiles.text import Terminal

# Two measurements a pair.
_MEASUREMENTS = 2 * PAIRS[-1]


def _gaussian(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.normal(size=(count, _MEASUREMENTS))


def _heavy_tailed(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.standard_t(3, size=(count, _MEASUREMENTS)) / math.sqrt(3)


def _drifting(rng: np.random.Generator, count: int) -> np.ndarray:
    """A machine that gets slower or faster all the time, by some standard deviations in all."""
    slopes = 5 * rng.normal(size=(count, 1))
    return _gaussian(rng, count) + slopes * np.linspace(0, 1, _MEASUREMENTS)


def _autocorrelated(rng: np.random.Generator, count: int, memory: float = 0.5) -> np.ndarray:
    """Each measurement goes on where the one before was: a neighbour comes and stays for a while."""
    fresh = _gaussian(rng, count)
    noise = np.empty_like(fresh)
    noise[:, 0] = fresh[:, 0]
    for at in range(1, _MEASUREMENTS):
        noise[:, at] = memory * noise[:, at - 1] + math.sqrt(1 - memory**2) * fresh[:, at]
    return noise


def _rhythmic(rng: np.random.Generator, count: int) -> np.ndarray:
    """A neighbour that comes and goes every 2 to 12 measurements: a fixed order of A and B falls into step with it."""
    periods = rng.uniform(2, 12, size=(count, 1))
    phases = rng.random((count, 1))
    waves = np.sin(2 * np.pi * (np.arange(_MEASUREMENTS) / periods + phases))
    return math.sqrt(1.5) * waves + 0.5 * _gaussian(rng, count)


# Of a measurement's logarithm, each with a standard deviation of 1 (the drifting one: around its drift).
NOISE: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "gaussian": _gaussian,
    "heavy-tailed": _heavy_tailed,
    "drifting": _drifting,
    "autocorrelated": _autocorrelated,
    "rhythmic": _rhythmic,
}


def figures(kind: str, rng: np.random.Generator, count: int, *, own_ratio: float = 0.5) -> tuple[np.ndarray, ...]:
    """Returns the noise of the steady and the epochs' rate of one process: part of it is what both met.

    Args:
      own_ratio: of the variance of each, what the other does not share; what both share is all of it at 0.
    """
    shared, *own = (NOISE[kind](rng, count) for _ in range(3))
    return tuple(math.sqrt(1 - own_ratio) * shared + math.sqrt(own_ratio) * one for one in own)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """What many comparisons came to, one entry each."""

    verdicts: np.ndarray
    pairs: np.ndarray

    def ratio(self, verdict: str) -> float:
        return float((self.verdicts == verdict).mean())


def simulate(
    noise: Sequence[np.ndarray],
    *,
    losses: Sequence[float],
    threshold: float,
    rng: np.random.Generator,
    fixed_order: str | None = None,
) -> Outcomes:
    """Runs comparisons of A with B, which serves (1 - loss) times the images/sec of A.

    Args:
      noise: of each figure (comparisons, measurements), of the logarithm of each rate, in the order of measuring.
      losses: of each figure.
      fixed_order: "ABBA" in the place of a coin for each pair: what it would be like without.
    """
    a_first = rng.random((len(noise[0]), PAIRS[-1])) < 0.5
    if fixed_order is not None:
        a_first[:] = np.tile([fixed_order[0] == "A", fixed_order[2] == "A"], PAIRS[-1] // 2)
    signs = np.where(a_first, 1, -1)
    logs = [signs * (one[:, 1::2] - one[:, 0::2]) + math.log1p(-loss) for one, loss in zip(noise, losses, strict=True)]
    return judge(logs, threshold=threshold)


def judge(logs: Sequence[np.ndarray], *, threshold: float) -> Outcomes:
    """Looks at log-ratios, of each figure (comparisons, pairs), as the gate does: at each look, those still open."""
    comparisons = len(logs[0])
    verdicts = np.full(comparisons, INCONCLUSIVE, dtype=object)
    pairs = np.full(comparisons, PAIRS[-1])
    waiting = np.arange(comparisons)
    for look in plan(Paired.least_p):
        own = share_out(look, len(logs))
        claims = together([change(Paired(one[waiting, : look.pairs]), own, threshold) for one in logs])
        closed = np.zeros(len(waiting), bool)
        for verdict in ("regression", "improved", SAME):
            shown = getattr(claims, verdict)
            verdicts[waiting[shown]] = verdict
            closed |= shown
        pairs[waiting[closed]] = look.pairs
        waiting = waiting[~closed]
        if not len(waiting):
            break
    return Outcomes(verdicts=verdicts, pairs=pairs)


# What a table of power has: the losses of the steady and of the epochs' rate; the spreads of one measurement.
POWER = {
    "5%": (0.05, 0.05),
    "10%": (0.10, 0.10),
    "20%": (0.20, 0.20),
    "50%": (0.50, 0.50),
    "20%, one": (0.0, 0.20),
    "none: same": (0.0, 0.0),
}
SPREADS = (0.02, 0.05, 0.10, 0.15)


def tried(kind: str, spread: float, losses: Sequence[float], rng: np.random.Generator, count: int) -> Outcomes:
    """Simulates comparisons of two figures whose noise is of a kind, half of it shared."""
    noise = [spread * one for one in figures(kind, rng, count)]
    return simulate(noise, losses=losses, threshold=THRESHOLD_RATIO, rng=rng)


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
            file.write(json.dumps({"seed": seed, **comparison.to_dict()}, allow_nan=False) + "\n")


def _compare(part: Part, out: Path, coin: random.Random) -> Comparison:
    a, b = (_subject(loss) for loss in (0.0, part.loss))

    def one(subject: Subject, inspect: bool) -> Process:
        return measure(subject, _SETTING, out / "children.log")

    return compare(Question(a=a, b=b, threshold=THRESHOLD_RATIO), one, coin)


def _subject(loss: float) -> Subject:
    name = f"slower_by_{loss:.0%}".rstrip("%") if loss else "as_it_is"
    return Subject(label=name, kind="function", text=f"benchmarks.truth.gate_planted:{name}")


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
