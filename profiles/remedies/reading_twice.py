"""Finds out by two readings whether what some data give for an index stays the same, so that it may be kept."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unstall.profiles import clock
from unstall.profiles.data.attributes import attributes_of, made_of
from unstall.profiles.random_states import Generators
from unstall.profiles.remedies.equality import compare

# So many are read twice, for so long, as long as those of one reading have no more bytes.
_READ_COUNT, _READ_NS, _READ_BYTES = 64, 2_000_000_000, 200e6
# What is made in less is not worth keeping: to read it back takes about a third of that.
_LEAST_NS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTwice:
    """What was the same when it was made again.

    Attributes:
      count: how many were compared.
      bytes_each: of the arrays of one.
    """

    count: int
    bytes_each: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Why nothing may be kept, as a clause, and whether that is because random numbers are drawn."""

    reason: str
    draws: bool = False


def read_twice(
    data: Any,
    length: int,
    noun: str,
    arrays_of: Callable[[Any], Sequence[np.ndarray]],
    *,
    one_shape: bool = False,
    watched: Any = None,
    least_ns: int | None = None,
) -> ReadTwice | Refused | None:
    """Reads some of the data by their indices, and again after other random numbers were seeded.

    A copy is read, so that what reading writes to the attributes of the data, such as an open file, stays there.

    Args:
      length: of the data.
      noun: of what the data give for an index.
      arrays_of: returns the arrays in that. Raises TypeError if it holds something else.
      one_shape: whether all must have one shape and type.
      watched: holds the generators that must not move, besides the global ones.
      least_ns: what is made in less is not worth keeping; 60 us unless given.
    Returns:
      None where it is no use to keep what is read, or where the user's code fails, which shows its error elsewhere.
    """
    nouns = noun + ("es" if noun == "batch" else "s")
    if any(hasattr(one, "set_epoch") for one in made_of(data)):
        return Refused(reason=f"the data have `set_epoch`: their {nouns} change from epoch to epoch")
    readings: list[list[list[np.ndarray]]] = []
    took_ns: list[int] = []
    generators, moved = Generators(data), Generators(watched)
    try:
        read = copied(data)
        with generators.put_back():
            for seed in (1, 2):
                generators.seed(seed)
                until_ns, read_bytes = clock.now_ns() + _READ_NS // 2, 0
                readings.append([])
                for index in some_indices(length, _READ_COUNT):
                    states, attributes, began_ns = moved.states(), attributes_of(read), clock.now_ns()
                    given = read[index]
                    took_ns.append(clock.now_ns() - began_ns)
                    # Copies: what is given may be a buffer that is filled again for the next index.
                    readings[-1].append([np.array(part) for part in arrays_of(given)])
                    if moved.states() != states:
                        return Refused(reason=f"making a {noun} draws random numbers", draws=True)
                    changes = attributes_of(read).items() - attributes.items()
                    if changed := sorted(name for (_, name), _ in changes):
                        told = f"making a {noun} changes `{changed[0]}` of the data, which may change the next ones"
                        return Refused(reason=told)
                    read_bytes += sum(part.nbytes for part in readings[-1][-1])
                    if clock.now_ns() > until_ns or read_bytes > _READ_BYTES:
                        break
        if sorted(took_ns)[len(took_ns) // 2] < (_LEAST_NS if least_ns is None else least_ns):
            return None
        ours, others = readings
        if one_shape and len({str([(part.dtype, part.shape) for part in parts]) for parts in ours}) > 1:
            return Refused(reason=f"its {nouns} differ in shape or type, so that they cannot lie in one array")
        count = min(len(ours), len(others))
        if compare(ours[:count], others[:count]).effect != "identical":
            return Refused(reason=f"{nouns} differ when they are made again", draws=True)
        return ReadTwice(count=count, bytes_each=max(sum(part.nbytes for part in parts) for parts in ours))
    except (TypeError, ValueError, RuntimeError) as error:
        return Refused(reason=f"its {nouns} cannot be kept as arrays ({error if str(error) else type(error).__name__})")
    except Exception:
        return None


def some_indices(length: int, most: int) -> list[int]:
    """Returns at most so many indices, spread over all."""
    return sorted({round(at * (length - 1) / max(most - 1, 1)) for at in range(most)})


def copied(data: Any) -> Any:
    """Returns a copy of some data, and of those that they are made of, whose attributes can be written."""
    new = copy.copy(data)
    if getattr(new, "dataset", None) is not None:
        new.dataset = copied(new.dataset)
    return new
