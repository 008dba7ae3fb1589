"""What ought to be flat along an axis, in proportion or on a line: laws, and which figure should follow which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# A place that was measured, on its axis: its value and a figure's number.
At = tuple[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """The figure goes with a power of the value: 0 is flat, 1 in proportion, -2 falls with the pixels of a side.

    Attributes:
      bad: "above" or "below": on which side of the law it may not lie, by more than the tolerance.
      tolerance_ratio: of the law's own number.
      slack: allowed beside it, in the figure's unit.
    """

    power: float
    bad: str
    tolerance_ratio: float
    slack: float = 0.0
    references = 1

    def law(self, earlier: Sequence[At], value: int) -> float:
        reference, number = earlier[0]
        return number * (value / reference) ** self.power

    def says(self, earlier: Sequence[At], at: At, ratio: float) -> str:
        if self.power == 0:
            return f"{ratio:.2f} times as much"
        more = at[0] / earlier[0][0]
        efficiency = f" (efficiency {ratio:.2f})" if self.power == 1 and self.bad == "below" else ""
        return f"{ratio * more**self.power:.3g} times for {more:g} times as many{efficiency}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PerUnit:
    """The figure grows by at most so much for each unit of the value."""

    most: float
    slack: float = 0.0
    bad = "above"
    tolerance_ratio = 0.0
    references = 1

    def law(self, earlier: Sequence[At], value: int) -> float:
        reference, number = earlier[0]
        return number + self.most * (value - reference)

    def says(self, earlier: Sequence[At], at: At, ratio: float) -> str:
        return f"{(at[1] - earlier[0][1]) / (at[0] - earlier[0][0]):,.0f} bytes for each one more"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The figure lies on the line through two smaller values: a constant cost and one for each unit."""

    tolerance_ratio: float
    slack: float = 0.0
    bad = "above"
    references = 2

    def law(self, earlier: Sequence[At], value: int) -> float:
        (first, low), (second, high) = earlier
        return high + max(0.0, high - low) / (second - first) * (value - second)

    def says(self, earlier: Sequence[At], at: At, ratio: float) -> str:
        return f"{ratio:.2f} times what the line through those gives"


Law = Power | PerUnit | Line


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What a figure should do along an axis; `decode` if that holds only for variants that decode so."""

    axis: str
    figure: str
    should: str
    law: Law
    decode: str | None = None


# 10 %: within it two rates count as the same, as generated and real photos do. 25 %: for times so short that one wait
# for a core shows in them; 10 ms of a first batch, and 0.2 s of what is done once, matter to no epoch.
_STEADY: dict[str, Any] = {"bad": "below", "tolerance_ratio": 0.10}
_FIRST: dict[str, Any] = {"bad": "above", "tolerance_ratio": 0.25, "slack": 0.010}
_ONCE: dict[str, Any] = {"bad": "above", "tolerance_ratio": 0.25, "slack": 0.2}

EXPECTATIONS: tuple[Expectation, ...] = (
    # A step reads, decodes and draws one batch, however long the list is.
    Expectation(axis="files", figure="images_per_sec", should="should not fall", law=Power(power=0, **_STEADY)),
    # Nothing of a first batch needs the rest of the list; what shuffles or draws all of it first pays here.
    Expectation(axis="files", figure="first_batch_s", should="should be flat", law=Power(power=0, **_FIRST)),
    # A file's name (75 bytes as a Python string), its path (150), TensorFlow's copy of it (130) with the bytes that it
    # is made from (130), its place in tf.data's shuffle buffer (150) and its draw (50), with room for longer paths.
    # 20 MB: what allocators keep differs by as much from run to run.
    Expectation(
        axis="files",
        figure="memory_bytes",
        should="should grow by 1,000 bytes a file at most",
        law=PerUnit(most=1000.0, slack=20e6),
    ),
    # The scan opens each file once.
    Expectation(
        axis="files",
        figure="listing_s",
        should="should be in proportion",
        law=Power(power=1, bad="above", tolerance_ratio=0.25, slack=0.05),
    ),
    # Loaders that only take a folder get a link a file; beside that, tracing takes a constant time.
    Expectation(
        axis="files", figure="build_s", should="should lie on a line", law=Line(tolerance_ratio=0.25, slack=0.2)
    ),
    # Photos do not depend on each other. Below 0.8 more than a fifth of the cores does nothing for the rate.
    Expectation(
        axis="cores",
        figure="images_per_sec",
        should="should grow in proportion (efficiency 0.8 at least)",
        law=Power(power=1, bad="below", tolerance_ratio=0.20),
    ),
    Expectation(axis="cores", figure="first_batch_s", should="should not grow", law=Power(power=0, **_FIRST)),
    # A larger batch spreads what a batch costs over more images.
    Expectation(
        axis="batch-size", figure="images_per_sec", should="should be flat or rise", law=Power(power=0, **_STEADY)
    ),
    # An image of the first batch costs what any other costs.
    Expectation(
        axis="batch-size", figure="first_batch_s", should="should be in proportion", law=Power(power=1, **_FIRST)
    ),
    # Reading and decoding a photo of 400 pixels a side costs the same for any size it is resized to.
    Expectation(
        axis="image-size",
        figure="images_per_sec",
        should="should be nearly flat, decoding at full size",
        law=Power(power=0, **_STEADY),
        decode="full",
    ),
    # Decoding, resizing and drawing cost by the pixel; reading and entropy decoding do not grow.
    Expectation(
        axis="image-size",
        figure="images_per_sec",
        should="should not fall faster than the pixels grow",
        law=Power(power=-2, **_STEADY),
        decode="scaled",
    ),
    Expectation(
        axis="image-size",
        figure="first_batch_s",
        should="should not grow faster than the pixels",
        law=Power(power=2, **_FIRST),
    ),
    # The list is the same at each value of the other axes, and so is what is built for it.
    *(
        Expectation(axis=axis, figure=figure, should="should be flat", law=Power(power=0, **_ONCE))
        for axis in ("cores", "batch-size", "image-size")
        for figure in ("listing_s", "build_s")
    ),
)
