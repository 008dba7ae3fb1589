"""Flags: reasons to doubt a result, each a kind that rules ask for and a text that is printed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FlagKind(StrEnum):
    """Why a result is doubtful. The values are what is printed."""

    UNCLAIMED = "unclaimed"
    SHORT = "short"
    FEW_ROUNDS = "few rounds"
    BUFFERED = "buffered"
    DRIFT = "drift"
    NOT_TRUSTWORTHY = "not trustworthy"
    DISTURBED = "disturbed"
    NEGATIVE = "negative"
    SLOWER_BY_ITSELF = "slower by itself"
    DATA_CHANGED = "data changed during the run"
    UNREAD = "unread"  # the graph of tf.data, so that what stands in it is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A reason to doubt a result.

    Attributes:
      kind: of the doubt.
      text: a clause that says what was seen.
    """

    kind: FlagKind
    text: str

    def __str__(self) -> str:
        """Returns the flag as it is printed; the text of `UNREAD` says all by itself."""
        return self.text if self.kind is FlagKind.UNREAD else f"{self.kind}: {self.text}"
