"""What the pytest plugin measures in the test's own process: in each round, the rate of a feed and those of anchors."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from unstall.needs import missing
from unstall.profiles import clock, provenance
from unstall.profiles.gate import anchors
from unstall.profiles.gate.baseline import (
    RECORDED,
    MeasuredRates,
    check,
    judge_invariants,
    looks,
    machine_of,
    new_baseline,
    not_comparable,
    not_comparable_here,
    structure_note,
)
from unstall.profiles.gate.baseline_file import BaselineError, path_of, read, write
from unstall.profiles.gate.decision import Decision, Look, first_decision, floor, judge, paired, pairs_to, plan
from unstall.profiles.gate.feed import Feed
from unstall.profiles.gate.inspection import inspect
from unstall.profiles.gate.invariants import Invariants, mark_varying
from unstall.profiles.gate.lacks import with_lack
from unstall.profiles.gate.log_ratios import Paired
from unstall.profiles.gate.verdicts import EPOCH, NOT_COMPARABLE, SAME
from unstall.profiles.machine.others import Others
from unstall.profiles.measure import WARMUP_LIMIT_S

# The `measure` of the plugin's baselines. The plugin measures rounds within one process, `unstall gate` fresh
# processes: the rates of one cannot be compared with a baseline of the other.
_MEASURE = "pytest"


def why_not(anchor: str) -> str | None:
    """Returns why an anchor cannot run here, and what to do, in one line; None if it can."""
    line = missing("the anchor 'decode'", "cv2") if anchor == "decode" else None
    return line and f"{line}, or use anchor='copy', which needs nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The time that a test allows.

    Attributes:
      rounds_s: how long its rounds may take, in seconds; the warm-up comes before.
      until_ns: when it must have ended, by `clock.now_ns()`.
    """

    rounds_s: float
    until_ns: float = math.inf

    @property
    def most_rounds(self) -> float:
        """How many rounds are planned: one a second, since hardly any is shorter.

        The looks must be fixed before anything is measured. How long a round takes is already a measurement.
        """
        return self.rounds_s


class _Rounds:
    """The rounds of one test, measured while its budget lasts.

    Args:
      measure: measures a round.
    """

    def __init__(self, measure: Callable[[], object], budget: Budget) -> None:
        self._measure, self._budget = measure, budget
        self._rounds = 0
        self._began_ns, self._others = clock.now_ns(), Others()

    def decide(self, looks: Sequence[Look], decide: Callable[[Look, bool], Decision | None]) -> Decision:
        """Measures until a look decides, or the next look would come too late."""
        decision = first_decision(looks, self._measure_to, decide, self._has_time)
        if decision.lack is None:
            return decision
        lack = replace(decision.lack, round_s=self._round_s(), others_ratio=self._others.ratio())
        return replace(decision, lack=lack)

    def _measure_to(self, rounds: int) -> None:
        while self._rounds < rounds:
            self._measure()
            self._rounds += 1

    def _has_time(self, rounds: int) -> bool:
        more_ns = (rounds - self._rounds) * self._round_s() * 1e9
        in_time = clock.now_ns() + more_ns <= self._budget.until_ns
        return in_time and rounds * self._round_s() <= self._budget.rounds_s

    def _round_s(self) -> float:
        return (clock.now_ns() - self._began_ns) / 1e9 / self._rounds


def at_least(feed: Any, least_ratio: float, anchor: str, budget: Budget) -> Decision:
    """Measures pairs of windows, of the feed and of the anchor, until their ratio is shown to be above or below
    `least_ratio`.

    Args:
      anchor: one of which `why_not` says nothing.
    """
    opened = Feed(feed, limit_s=WARMUP_LIMIT_S)
    anchor_rate = {"decode": anchors.decode, "copy": anchors.copy}[anchor]
    coin = random.Random()
    feed_rates: list[dict[str, float]] = []
    anchor_rates: list[dict[str, float]] = []
    measures: list[Callable[[], None]] = [
        lambda: feed_rates.append(opened.rates()),
        lambda: anchor_rates.append({EPOCH: anchor_rate()}),
    ]

    def measure_pair() -> None:
        coin.shuffle(measures)
        for measure in measures:
            measure()

    def decide(look: Look, last: bool) -> Decision | None:
        evidence, ask = paired(feed_rates, anchor_rates), partial(floor, least_ratio=least_ratio)
        return with_lack(judge(evidence, look, ask, last=last), evidence, ask, least_ratio=least_ratio)

    return _Rounds(measure_pair, budget).decide(plan(Paired.least_p, pairs_to(budget.most_rounds)), decide)


def no_slower(
    feed: Any, folder: Path, name: str, *, threshold: float, record: bool, overwrite: bool, budget: Budget
) -> Decision:
    """Measures rounds of the feed and all anchors until the comparison with the baseline is decided; or records one.

    Args:
      folder, name: of the baseline.
      threshold: the loss that counts.
      record: records a baseline where there is none.
      overwrite: with `record`, also where there is one.
    Raises:
      BaselineError: if the name cannot be a file's name, or the baseline cannot be written.
    """
    path = path_of(folder, name)
    machine = machine_of(provenance.machine(), *backend_here())
    recording = record and (overwrite or not path.exists())
    if not recording and not path.exists():
        return Decision(verdict=NOT_COMPARABLE, reason=f"no {path.name}: record it with pytest --images-per-sec-record")
    try:
        baseline = None if recording else read(path)
    except BaselineError as error:  # of another version, or incomplete: this must not fail the test
        return Decision(verdict=NOT_COMPARABLE, reason=str(error))
    if baseline is not None:
        elsewhere = not_comparable(baseline, subject=name, measure=_MEASURE, machine=machine, dataset=None)
        if elsewhere is not None:
            return elsewhere
    opened, beside = Feed(feed, limit_s=WARMUP_LIMIT_S), anchors.runnable()
    if baseline is None:
        rounds = [_round(opened, beside) for _ in range(RECORDED)]
        new = new_baseline(
            rounds,
            subject=name,
            measure=_MEASURE,
            reading=opened.reading,
            invariants=_invariants(opened),
            machine=machine,
            dataset=None,
        )
        write(new, path, overwrite=overwrite)
        return Decision(verdict=SAME, reason=f"recorded: {path.name}")
    otherwise = not_comparable_here(baseline, opened.reading, beside)
    if otherwise is not None:
        return otherwise
    invariants = _invariants(opened)
    rounds = []

    def decide(look: Look, last: bool) -> Decision | None:
        return check(baseline, rounds, look, threshold=threshold, last=last)

    decision = judge_invariants(baseline, invariants)
    if decision is None:
        rounds_of_test = _Rounds(lambda: rounds.append(_round(opened, beside)), budget)
        decision = rounds_of_test.decide(looks(budget.most_rounds), decide)
    return replace(decision, note=structure_note(baseline, invariants))


def _invariants(feed: Feed) -> Invariants:
    return mark_varying(inspect(feed), inspect(feed))


def _round(feed: Feed, beside: Mapping[str, Callable[[], float]]) -> MeasuredRates:
    rates = {name: measure() for name, measure in beside.items()}
    return MeasuredRates(images_per_sec=feed.rates(), anchors=rates)


def backend_here() -> tuple[str, list[str]]:
    """Returns Keras' backend, and the names of the GPUs that it sees; "none" where Keras cannot be imported."""
    try:
        from unstall.profiles.measure.backends import BACKENDS, check_backend
    except ImportError:
        return "none", []
    backend = check_backend()
    return backend, BACKENDS[backend].gpus()
