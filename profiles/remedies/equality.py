"""Compares the batches of data with and without a remedy, to hold the remedy to what it claims."""

from __future__ import annotations

import copy
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unstall.profiles.remedies.remedy import EFFECTS, Effect

# Differences up to this part of the largest value are those of rounding.
_CLOSE_RATIO = 0.02
# A note on data that differ from one reading to the next.
_SAME_ONLY_IN_SHAPE = (
    "The data differ from one reading to the next: of the batches only numbers, shapes and types were compared."
)


class Broken(Exception):
    """The data differ from the data as written by more than a remedy claims; the message says how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchComparison:
    """What was seen in the first batches of both.

    Attributes:
      effect: the least that explains what was seen.
      text: what was seen, as a clause.
      difference: the largest difference of a value, where batches are close and not identical.
    """

    effect: Effect
    text: str = "the batches are identical"
    difference: float | None = None


def compare(as_written: Iterable[Any], changed: Iterable[Any]) -> BatchComparison:
    """Compares batches: arrays, in tuples, lists or dictionaries.

    Args:
      as_written, changed: the same number of batches of an epoch, of the same samples.
    Raises:
      Broken: if there are more batches in one than in the other, or of other shapes or types.
    """
    ours, others = [_leaves(batch) for batch in as_written], [_leaves(batch) for batch in changed]
    shapes, other_shapes = (
        [[(part.shape, part.dtype.str) for part in batch] for batch in some] for some in (ours, others)
    )
    if shapes != other_shapes:
        raise Broken(_difference(shapes, other_shapes))
    if all(_same(*pair) for pair in zip(ours, others, strict=True)):
        return BatchComparison(effect="identical")
    if Counter(_digests(ours)) == Counter(_digests(others)):
        return BatchComparison(effect="other order", text="the samples come in another order")
    difference = _largest(ours, others)
    if difference is not None:
        return BatchComparison(effect="close", text=f"values differ by up to {difference:.3g}", difference=difference)
    return BatchComparison(effect="other draws", text="the samples differ")


class Readings:
    """Compares data with remedies with the data as written, and leaves out what two readings of these differ by anyway.

    Attributes:
      notes: what a reader of the comparisons must know; complete once the first was made.
    """

    def __init__(self) -> None:
        self.notes: tuple[str, ...] = ()
        self._own_effect: Effect | None = None
        self._as_written: list[Any] = []

    def compared(self, names: Sequence[str], read: Callable[[Sequence[str]], Iterable[Any]]) -> BatchComparison:
        """Compares the first batches with these remedies with those as written.

        Args:
          read: returns the first batches of an epoch with the remedies of these names; as written without any.
        Raises:
          Broken: as `compare` does.
        """
        if self._own_effect is None:
            self._as_written = copy.deepcopy(list(read(())))  # a loader may use its memory again
            effect = compare(self._as_written, read(())).effect
            # Values that are only close in two readings are drawn anew, too.
            self._own_effect = "other draws" if effect == "close" else effect
            if self._own_effect == "other draws":
                self.notes = (_SAME_ONLY_IN_SHAPE,)
        comparison = compare(self._as_written, read(names))
        within = EFFECTS.index(comparison.effect) <= EFFECTS.index(self._own_effect)
        return BatchComparison(effect="identical") if within else comparison


def _leaves(batch: Any) -> list[np.ndarray]:
    if isinstance(batch, Mapping):
        return [leaf for key in sorted(batch) for leaf in _leaves(batch[key])]
    if isinstance(batch, (tuple, list)):
        return [leaf for part in batch for leaf in _leaves(part)]
    if batch is None:
        return []
    return [np.array(batch)]  # a copy: a loader may use its memory again


def _same(batch: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> bool:
    return all(_equal(*pair) for pair in zip(batch, other, strict=True))


def _equal(part: np.ndarray, other: np.ndarray) -> bool:
    return np.array_equal(part, other, equal_nan=part.dtype.kind == "f")


def _digests(batches: Sequence[Sequence[np.ndarray]]) -> list[bytes]:
    """Returns a digest of each sample; of each batch where its parts have no common first axis."""
    digests = []
    for batch in batches:
        lengths = {part.shape[0] if part.ndim else None for part in batch}
        length = lengths.pop() if len(lengths) == 1 else None
        parts = [[part[at] for part in batch] for at in range(length)] if length is not None else [batch]
        for sample in parts:
            digest = hashlib.blake2b(digest_size=16)
            for part in sample:
                array = np.asarray(part)
                digest.update(array.tobytes() if array.dtype.kind != "O" else repr(array.tolist()).encode())
            digests.append(digest.digest())
    return digests


def _largest(ours: Sequence[Sequence[np.ndarray]], others: Sequence[Sequence[np.ndarray]]) -> float | None:
    """Returns the largest difference of a value; None where values are not close.

    Whole numbers and texts are close to themselves alone. Floats are close by the largest value of the same part, such
    as the images, of all batches: labels may be a million times as large.
    """
    largest = 0.0
    for parts, other_parts in zip(zip(*ours, strict=True), zip(*others, strict=True), strict=True):
        pairs = [pair for pair in zip(parts, other_parts, strict=True) if not _equal(*pair)]
        if any(part.dtype.kind != "f" for part, _ in pairs):
            return None
        if any(not np.array_equal(np.isnan(part), np.isnan(other)) for part, other in pairs):
            return None
        off = max((float(np.nanmax(np.abs(part.astype(np.float64) - other))) for part, other in pairs), default=0.0)
        scale = max((float(np.nanmax(np.abs(part))) for part in parts if pairs and part.size), default=0.0)
        if off > _CLOSE_RATIO * scale:
            return None
        largest = max(largest, off)
    return largest


def _difference(shapes: Sequence[Any], others: Sequence[Any]) -> str:
    if len(shapes) != len(others):
        return f"it gives {len(others)} batches in the place of {len(shapes)}: it is thrown out"
    at = next(number for number, pair in enumerate(zip(shapes, others, strict=True)) if pair[0] != pair[1])
    return f"its batch {at + 1} has other shapes or types ({others[at]} in the place of {shapes[at]}): it is thrown out"
