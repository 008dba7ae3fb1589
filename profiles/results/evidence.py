"""The evidence that rules look at, and the findings, advice and gains that they state: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from unstall.profiles.results.parts import Parts
from unstall.profiles.results.result import Result
from unstall.profiles.stage_table import StageTable
from unstall.profiles.statistics import Interval, range_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A change to another variant, and how much faster that variant was measured to be.

    Attributes:
      change: the other variant.
      measured_ratio: its images/sec over whole epochs, divided by those of the variant that is judged, round by round.
      ci95: 95 % interval of this ratio; None for few rounds.
      work: how the images of the other variant differ from full decode, bilinear, augmented.
      same_work: whether the variant that is judged does the same work.
      rounds: how many rounds were compared.
      again: whether these rounds were measured after the fastest variant had been chosen.
    """

    change: str
    measured_ratio: float
    ci95: Interval | None
    work: tuple[str, ...]
    same_work: bool
    rounds: int
    again: bool = False

    @property
    def range_text(self) -> str:
        """The interval of the ratio as text, and whether the ratio was measured again."""
        between = range_text(self.ci95)
        return f"{between}; measured again in {self.rounds} rounds" if self.again else between


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that a rule may look at. None stands for unknown; a rule finds nothing in what is unknown.

    Attributes:
      result: the result that is judged.
      advice: variants that were measured in the same rounds and are significantly faster, the fastest first.
      stages: the costs of the loader's stages.
      cores: number of cores that the run may use.
      workers_asked, workers_seen: workers of a Keras loader: as configured, and the most that were busy at once.
      frozen_by_cache: random operations upstream of a cache.
      throttled_ratio: part of the scheduler's periods in which the CPU quota stopped the run.
      decoded_pixels, wanted_pixels: pixels of a mean image, as decoded in every epoch and as the model needs them.
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
        """Shares of an epoch, by part; 0 for a part that this device does not define."""
        return self.result.attribution.shares.map(lambda _, share: share or 0.0)

    @property
    def surely_lost(self) -> Parts[float]:
        """Lower bounds of the shares: the lower ends of their intervals, less the effect of other programs."""
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
        """Share of an epoch that the loader's own work costs: waiting for batches, and cores taken from the model."""
        lost = self.lost
        return max(lost.fetch_stall, 0.0) + max(lost.prep_stall, 0.0) + max(lost.interference, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PossibleGain:
    """How many times as fast an epoch would be.

    Attributes:
      ratio: new images/sec over old images/sec.
      kind: "measured" in the same rounds, or "predicted" from the attribution.
      assumption: of a prediction, such as "if the epoch edges were gone"; None for a measured gain.
      ci95: 95 % interval of a measured ratio; None for a prediction or few rounds.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one rule states about a result.

    Attributes:
      rule: name of the rule.
      text: what was measured, in one or two sentences.
      cost_ratio: share of an epoch that the finding explains; 0 if unknown.
      advice: what to change; None where no gain is known.
      gain: the gain of the advised change, or without advice the gain if the cause were gone; None if unknown.
      hypothesis: whether the cause was inferred and not measured.
    """

    rule: str
    text: str
    cost_ratio: float = 0.0
    advice: str | None = None
    gain: PossibleGain | None = None
    hypothesis: bool = False

    def __post_init__(self) -> None:
        if self.advice is not None and self.gain is None:
            raise ValueError(f"`advice` needs a `gain`. Received: {self.rule}: advice={self.advice!r}, gain=None.")

    def sentences(self) -> str:
        """Returns the text of the finding, and its advice with the gain."""
        text = f"{self.text}." if not self.hypothesis else f"{self.text} (a hypothesis)."
        if self.gain is not None:
            advice = f"{self.advice}: {self.gain.text()}" if self.advice else self.gain.text()
            text += f" {advice[0].upper()}{advice[1:]}."
        return text
