"""What the pytest plugin measures, in the test's own process: rounds of a feed and of anchors beside it."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from profiles import provenance
from profiles.gate import anchors
from profiles.gate.baseline import (
    RECORDED,
    THRESHOLD_RATIO,
    Measured,
    broken,
    check,
    looks,
    machine_of,
    not_comparable,
    recorded,
)
from profiles.gate.decision import (
    EPOCH,
    NOT_COMPARABLE,
    SAME,
    Decision,
    Look,
    first_decision,
    floor,
    judge,
    paired,
    plan,
)
from profiles.gate.evidence import Paired
from profiles.gate.feed import Feed
from profiles.gate.files import BaselineError, path_of, read, write
from profiles.gate.inspection import inspect
from profiles.gate.invariants import Invariants, agreed
from profiles.measure.backends import BACKENDS, check_backend

# What a baseline of this kind is of: rounds within one process are not the fresh processes of the command's.
_MEASURE = "pytest"


def at_least(feed: Any, least_ratio: float, anchor: str) -> Decision:
    """Measures pairs of a window of the feed and one of the anchor, until a look tells above from below."""
    opened = Feed(feed)
    anchor_rate = {"decode": anchors.decode, "copy": anchors.copy}[anchor]
    coin = random.Random()
    fed: list[dict[str, float]] = []
    beside: list[dict[str, float]] = []
    measures: list[Callable[[], None]] = [
        lambda: fed.append(opened.rates()),
        lambda: beside.append({EPOCH: anchor_rate()}),
    ]

    def decide(look: Look, last: bool) -> Decision | None:
        while len(fed) < look.pairs:
            coin.shuffle(measures)
            for measure in measures:
                measure()
        return judge(paired(fed, beside), look, partial(floor, least_ratio=least_ratio), last=last)

    return first_decision(plan(Paired.least_p), decide)


def no_slower(
    feed: Any, folder: Path, name: str, *, threshold: float | None, record: bool, overwrite: bool
) -> Decision:
    """Measures rounds of the feed and all anchors until a look tells them from what was recorded; or records.

    Args:
      folder, name: of the baseline.
      threshold: the loss that counts; the baselines' usual one unless given.
      record: records where there is nothing yet, or where `overwrite` says to do it anew.
    Raises:
      BaselineError: if what was recorded cannot be used, or nothing can be written.
    """
    path = path_of(folder, name)
    backend = check_backend()
    machine = machine_of(provenance.machine(), backend, BACKENDS[backend].gpus())
    recording = record and (overwrite or not path.exists())
    if not recording and not path.exists():
        return Decision(verdict=NOT_COMPARABLE, reason=f"no {path.name}: record it with pytest --images-per-sec-record")
    try:
        baseline = None if recording else read(path)
    except BaselineError as error:  # of another version, or cut short: never a fail
        return Decision(verdict=NOT_COMPARABLE, reason=str(error))
    if baseline is not None:
        elsewhere = not_comparable(baseline, subject=name, measure=_MEASURE, machine=machine, dataset=None)
        if elsewhere is not None:
            return elsewhere
    opened, resident = Feed(feed), anchors.Resident()
    if baseline is None:
        rounds = [_round(opened, resident) for _ in range(RECORDED)]
        made = recorded(
            rounds, subject=name, measure=_MEASURE, invariants=_invariants(opened), machine=machine, dataset=None
        )
        write(made, path, overwrite=overwrite)
        return Decision(verdict=SAME, reason=f"recorded: {path.name}")
    changed = broken(baseline, _invariants(opened))
    if changed is not None:
        return changed
    rounds = []

    def decide(look: Look, last: bool) -> Decision | None:
        while len(rounds) < look.pairs:
            rounds.append(_round(opened, resident))
        return check(baseline, rounds, look, threshold=threshold or THRESHOLD_RATIO, last=last)

    return first_decision(looks(), decide)


def _invariants(feed: Feed) -> Invariants:
    return agreed(inspect(feed), inspect(feed))


def _round(feed: Feed, resident: Callable[[], float]) -> Measured:
    rates = {"decode": anchors.decode(), "copy": anchors.copy(), "resident": resident()}
    return Measured(images_per_sec=feed.rates(), anchors=rates)
