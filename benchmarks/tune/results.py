"""What the tuner's search comes to: the candidates that were measured, and which of them is chosen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.tune.exactness import Exactness
from pipeline import PipelineConfig
from pipeline.cost_model import Consumer, Prediction, StageCost, StageKey
from profiles import clock
from profiles.remedies import Change
from profiles.samples import Sample
from profiles.statistics import Interval, geometric_mean, ratio_interval, significantly_above

# The fewest and the most rounds of all that is measured.
LEAST_ROUNDS, MOST_ROUNDS = 4, 15
NAIVE, HEURISTIC, AUTOTUNE = "naive", "heuristic", "AUTOTUNE"
# Rates that differ by less are taken for equal: the simpler one goes first.
EQUAL_RATIO = 0.03
# Measured rates that differ by less: a third of what the choice may miss the best by, since means are noisy too.
_LEVEL_RATIO = 0.01
# Of those that may be the fastest, how many are measured further beside it.
_RIVALS = 2
# What answers in the process that measures.
SESSION = "benchmarks.tune.child:TuneSession"
_STORAGE = ("files", "records", "resized", "raw")
_CACHES = ("none", "memory", "disk")

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a pipeline may take: bytes of memory and of disk, the widest class of exactness, seconds of measuring."""

    memory_bytes: float
    disk_bytes: float
    exactness: str
    budget_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A pipeline that was measured.

    Attributes:
      name: "naive", "heuristic", "AUTOTUNE", or what it does, in a few words.
      exactness: of its images against full decode, bilinear, tf ops; None where it draws for itself.
      epoch_images_per_sec: of whole epochs of training, by round.
      again_images_per_sec: the same, of rounds that had no say in the choice; none where it was not in question.
      loader_images_per_sec: of the loader alone, by round.
    """

    name: str
    config: PipelineConfig
    prediction: Prediction
    exactness: Exactness | None
    epoch_images_per_sec: tuple[float, ...]
    loader_images_per_sec: tuple[float, ...]
    again_images_per_sec: tuple[float, ...] = ()

    @property
    def rate(self) -> float:
        """Images/sec of whole epochs, over all rounds that chose."""
        return geometric_mean(self.epoch_images_per_sec)

    def against(self, other: Candidate) -> tuple[float, Interval | None]:
        """Returns how many times as fast as the other it is in the rounds that both have, and the 95 % interval."""
        return ratio_interval(*_shared(self, other))

    def again_against(self, other: Candidate) -> tuple[float, Interval | None] | None:
        """Returns the same of the rounds that had no say in the choice; None without any."""
        ours, theirs = self.again_images_per_sec, other.again_images_per_sec
        return ratio_interval(ours, theirs) if ours and len(ours) == len(theirs) else None


def _shared(one: Candidate, other: Candidate) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Returns the rates of the rounds that both have: each is measured in every round until it is out of question."""
    rounds = min(len(one.epoch_images_per_sec), len(other.epoch_images_per_sec))
    return one.epoch_images_per_sec[:rounds], other.epoch_images_per_sec[:rounds]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What a search came to.

    Attributes:
      chosen: the fastest that is significantly faster than AUTOTUNE, in the rounds that chose it and when both were
        measured again; AUTOTUNE where none is.
      measured: all candidates that were, the bars first.
      predicted: how many were predicted.
      rejected: reasons, and how many candidates each.
      failed: candidates that could not be measured, and why.
      unordered: the chosen one without `deterministic`, or None where it has nothing in parallel; and the chosen one
        measured again beside it.
      prepare_s: seconds before the first epoch, for all images; 0 where nothing is prepared.
    """

    chosen: Candidate
    measured: tuple[Candidate, ...]
    costs: dict[StageKey, StageCost]
    consumer: Consumer
    predicted: int
    rejected: Counter[str]
    failed: tuple[tuple[str, str], ...]
    unordered: tuple[Candidate, Candidate] | None
    prepare_s: float
    seconds: float

    def bar(self, name: str) -> Candidate | None:
        return next((one for one in self.measured if one.name == name), None)


def choose(measured: Sequence[Candidate]) -> Candidate:
    """Returns the best candidate that is significantly faster than AUTOTUNE, or AUTOTUNE.

    Of those that no other beats significantly, the simplest is best: what it saves costs nothing.
    """
    incumbent = next((one for one in measured if one.name == AUTOTUNE), measured[0])
    others = [one for one in measured if one is not incumbent]
    faster = significantly_above([_shared(one, incumbent) for one in others])
    better = [one for one, is_faster in zip(others, faster, strict=True) if is_faster]
    if not better:
        return incumbent
    fastest = max(better, key=lambda one: one.rate)
    level = [one for one in better if _may_equal(one, fastest)]
    # Not measurably slower is not as fast: beyond this a simpler one must not be taken for it.
    near = [one for one in level if one.rate >= (1 - _LEVEL_RATIO) * fastest.rate]
    return min(near, key=lambda one: (simplicity(one.config), -one.rate))


def undecided(measured: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Returns the fastest and those that may be as fast, AUTOTUNE for certain if it may; none where nothing may."""
    fastest, *others = sorted(measured, key=lambda one: -one.rate)
    level = [one for one in others if _may_equal(one, fastest)]
    rivals = level[:_RIVALS] + [one for one in level[_RIVALS:] if one.name == AUTOTUNE]
    return (fastest, *rivals) if rivals else ()


def _may_equal(one: Candidate, fastest: Candidate) -> bool:
    """Whether one is not significantly slower than the fastest."""
    _, interval = fastest.against(one)
    return one is fastest or interval is None or interval[0] <= 1


def rates_of(samples: Sequence[Sample], window: str, images: int) -> tuple[float, ...]:
    """Returns images/sec of whole epochs, by round.

    Args:
      images: of an epoch in use, over which its edges are spread.
    """
    return tuple(1 / one.whole_s_per_image(images) for one in samples if one.window == window)


def rounds_within(budget_s: float, began_ns: int) -> Iterator[int]:
    """Yields round numbers until the next round, as long as the last, would go beyond the budget."""
    round_s = 0.0
    for number in range(MOST_ROUNDS):
        from_ns = clock.now_ns()
        if number >= LEAST_ROUNDS and (from_ns - began_ns) / 1e9 + round_s > budget_s:
            return
        yield number
        round_s = (clock.now_ns() - from_ns) / 1e9


def simplicity(config: PipelineConfig) -> tuple[int, ...]:
    """Sorts what needs no copy, no cache and no other library first."""
    return (
        _STORAGE.index(config.storage),
        _CACHES.index(config.cache),
        int(config.decode == "scaled") + int(config.composed),
        int(config.augment_with != "tf_ops"),
        int(config.output_dtype == "uint8"),
    )


def name_of(config: PipelineConfig) -> str:
    """Says what a candidate does, in a few words."""
    words = []
    if config.storage != "files":
        words.append(config.storage)
    elif config.cache == "none":
        words.append("scaled" if config.decode == "scaled" else "full")
    if config.cache != "none":
        words.append(f"{config.cache} cache" + (", scaled" if config.decode == "scaled" else ""))
    if config.composed:
        words.append("composed")
    elif config.augmentation is not None:
        words.append(f"{config.augment_with} a {config.augment_at}")
    if config.output_dtype == "uint8":
        words.append("uint8")
    calls = "1 call" if config.workers == 1 else f"{config.workers} calls"
    return ", ".join([*words, calls, f"prefetch {config.prefetch}"])


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFacts:
    """What a user's pipeline is, and what of it can be measured.

    Attributes:
      stages: as they pass an element.
      changes: the pipeline as written first.
      refused: changes that must not be made, and why.
      epoch_images: images of an epoch of the user's; infinite where it has no end, or none was found.
      scaled: whether a measured epoch is that epoch on a smaller scale, its edges too.
      notes: what a reader of the rates must know.
    """

    stages: tuple[str, ...]
    changes: tuple[Change, ...]
    refused: tuple[str, ...]
    epoch_images: float
    scaled: bool
    notes: tuple[str, ...]
