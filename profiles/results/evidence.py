"""What a verdict is judged by, and what it says: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from profiles.results.parts import Parts
from profiles.results.result import Result
from profiles.stage_table import StageTable
from profiles.statistics import Interval, range_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One change and what it was measured to bring.

    Attributes:
      change: the variant to change to.
      measured_ratio: its images/sec of whole epochs over those of the variant in question, paired by round.
      ci95: of that ratio; None of few rounds.
      significant: whether it is faster beyond doubt, where as many were compared.
      work: in what way its images differ from full decode, bilinear, augmented.
      same_work: whether the variant in question does the same.
      rounds: measured side by side.
      again: whether those rounds had no say in what is fastest.
      predicted_ratio: what a model foresaw, or None.
    """

    change: str
    measured_ratio: float
    ci95: Interval | None
    significant: bool
    work: tuple[str, ...]
    same_work: bool
    rounds: int
    again: bool = False
    predicted_ratio: float | None = None

    @property
    def range_text(self) -> str:
        """Says between what the ratio lies, and whether it was measured again."""
        between = range_text(self.ci95)
        return f"{between}; measured again in {self.rounds} rounds" if self.again else between


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that a rule may look at. None is unknown, and fires nothing.

    Attributes:
      result: what was measured.
      advice: alternatives measured beside it and significantly faster, best first.
      stages: where the loader's own time goes.
      cores: that the run may use.
      workers_asked, workers_seen: of a Keras loader: as configured, and busy at once.
      frozen_by_cache: random operations upstream of a cache.
      throttled_ratio: part of the scheduler's periods in which the CPU quota stopped the run.
      decoded_pixels, wanted_pixels: of a mean image, as decoded in every epoch and as the model takes it.
    """

    result: Result
    advice: tuple[Advice, ...] = ()
    stages: StageTable | None = None
    cores: float | None = None
    workers_asked: int | None = None
    workers_seen: int | None = None
    frozen_by_cache: tuple[str, ...] = ()
    throttled_ratio: float | None = None
    decoded_pixels: float | None = None
    wanted_pixels: float | None = None

    @property
    def lost(self) -> Parts[float]:
        """Shares of an epoch, by part; one that is not defined here takes none."""
        return self.result.attribution.shares.map(lambda _, share: share or 0.0)

    @property
    def surely_lost(self) -> Parts[float]:
        """What the parts take at least: the lower ends of their intervals, less what may be the work of others."""
        attribution = self.result.attribution
        interval = attribution.loading_ratio_ci95
        loading = attribution.loading_ratio if interval is None else interval[0]
        by_others = max(loading - attribution.loading_range[0], 0.0)

        def least(part: str, share: float) -> float:
            interval = attribution.shares_ci95[part]
            return (share if interval is None else interval[0]) - by_others

        return self.lost.map(least)

    @property
    def loader_ratio(self) -> float:
        """Share of an epoch that the loader's own work costs: waiting for it, and the cores that it takes."""
        lost = self.lost
        return max(lost.fetch_stall, 0.0) + max(lost.prep_stall, 0.0) + max(lost.interference, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """How many times as fast an epoch would be.

    Attributes:
      ratio: new images/sec over old.
      kind: "measured" side by side, or "predicted" from the attribution.
      assumption: under which a prediction holds, such as "if the epoch edges were gone".
      ci95: of a measured one.
    """

    ratio: float
    kind: Literal["measured", "predicted"]
    assumption: str | None = None
    ci95: Interval | None = None

    def __post_init__(self) -> None:
        if (self.kind == "predicted") != (self.assumption is not None):
            raise ValueError(
                "A predicted gain needs an `assumption`, a measured one has none. "
                f"Received: kind={self.kind!r}, assumption={self.assumption!r}."
            )

    def text(self) -> str:
        if self.kind == "predicted":
            return f"{self.assumption}, {self.ratio:.2f} times as fast (predicted)"
        between = f", {range_text(self.ci95)}" if self.ci95 else ""
        return f"{self.ratio:.2f} times as fast (measured{between})"

    def to_dict(self) -> dict[str, Any]:
        return {
            "ratio": self.ratio,
            "kind": self.kind,
            "assumption": self.assumption,
            "ci95": None if self.ci95 is None else list(self.ci95),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one rule found.

    Attributes:
      rule: its name.
      text: what was measured, in one or two sentences.
      cost_ratio: share of an epoch that it explains; 0 where that is not known.
      advice: what to change; None where no number stands behind it.
      gain: what that brings.
      hypothesis: whether the cause was concluded and not measured.
    """

    rule: str
    text: str
    cost_ratio: float = 0.0
    advice: str | None = None
    gain: Gain | None = None
    hypothesis: bool = False

    def __post_init__(self) -> None:
        if self.advice is not None and self.gain is None:
            raise ValueError(f"`advice` needs a `gain`. Received: {self.rule}: advice={self.advice!r}, gain=None.")

    def sentences(self) -> str:
        """Returns the finding, and its advice with the number behind it."""
        said = f"{self.text}." if not self.hypothesis else f"{self.text} (a hypothesis)."
        if self.gain is not None:
            what = f"{self.advice}: {self.gain.text()}" if self.advice else self.gain.text()
            said += f" {what[0].upper()}{what[1:]}."
        return said

    def to_dict(self) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "text": self.text,
            "cost_ratio": self.cost_ratio,
            "advice": self.advice,
            "gain": None if self.gain is None else self.gain.to_dict(),
            "hypothesis": self.hypothesis,
        }
