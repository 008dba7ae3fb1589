"""How far a loader works ahead of the model, and which steps of an epoch are steady because of that."""

from __future__ import annotations

from dataclasses import dataclass

from unstall.profiles.results.flags import Flag, FlagKind

# An epoch needs so many batches for each that a shuffle holds, or no part of it is steady. As many as `check_buffers`
# wants for each batch in a buffer.
_BATCHES_PER_SHUFFLED_BATCH = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """How far a loader may work ahead of the model, in batches.

    Attributes:
      parallel_batches: that the loader makes at the same time.
      buffered_batches: that can lie ready before the model asks for them.
      shuffled_batches: that a shuffle behind the work of the loader holds: as many are made before the first one
        arrives, and as many arrive when all work is done.
    """

    parallel_batches: int = 1
    buffered_batches: int = 0
    shuffled_batches: int = 0


def ramp_of(ahead: Ahead, batches: int) -> tuple[int, tuple[Flag, ...]]:
    """Returns (number of first steps of an epoch that are not steady, reasons to doubt the rate of the others).

    Batches that are made at the same time arrive at the same time, so that the number of steady steps must be a
    multiple of theirs. Where an epoch is too short for that, all of its steps count: the rate is the epoch's own.

    Args:
      ahead: of the loader.
      batches: of an epoch.
    """
    parallel, shuffled = ahead.parallel_batches, ahead.shuffled_batches
    if _BATCHES_PER_SHUFFLED_BATCH * shuffled > batches:
        text = (
            f"a shuffle holds up to {min(shuffled, batches)} of an epoch's {batches} batches, which are made before "
            "its first step: no part of the epoch is steady, and all rates are those of whole epochs"
        )
        return 0, (Flag(kind=FlagKind.BUFFERED, text=text),)
    if parallel > 1 and batches < 2 * parallel:
        text = (
            f"the loader makes up to {parallel} batches at the same time, and an epoch has {batches}: no part of it is "
            "steady, and all rates are those of whole epochs"
        )
        return 0, (Flag(kind=FlagKind.SHORT, text=text),)
    return parallel + batches % parallel, ()
