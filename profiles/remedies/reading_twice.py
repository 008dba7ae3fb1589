"""Finds out by two readings whether what some data give for an index stays the same, so that it may be kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unstall.profiles import clock
from unstall.profiles.remedies.equality import compare
from unstall.profiles.remedies.random_states import Generators

# So many are read twice, for so long.
_READ_COUNT, _READ_NS = 64, 2_000_000_000
# What is made in less is not worth keeping: to read it back takes about a third of that.
_LEAST_NS = 60_000
# A data set may be made of others, so deep.
_DEPTH = 4


@dataclass(frozen=True, slots=True)
class ReadTwice:
    """What was the same when it was made again.

    Attributes:
      count: how many were compared.
      bytes_each: of the arrays of one.
    """

    count: int
    bytes_each: int


@dataclass(frozen=True, slots=True)
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
    between: Callable[[], object] = lambda: None,
    watched: Any = None,
) -> ReadTwice | Refused | None:
    """Reads some of the data by their indices, and again after other random numbers were seeded.

    Args:
      length: of the data.
      noun: of what the data give for an index.
      arrays_of: returns the arrays in that. Raises TypeError if it holds something else.
      between: called between the readings, as between epochs.
      watched: holds the generators that must not move, beside the global ones.
    Returns:
      None where it is no use to keep what is read, or where the user's code fails, which shows its error elsewhere.
    """
    nouns = noun + ("es" if noun == "batch" else "s")
    if any(hasattr(one, "set_epoch") for one in made_of(data)):
        return Refused(f"the data have `set_epoch`: their {nouns} change from epoch to epoch")
    readings: list[list[Any]] = []
    took_ns: list[int] = []
    generators, moved = Generators(data), Generators(watched)
    try:
        with generators.put_back():
            for seed in (1, 2):
                generators.seed(seed)
                until_ns = clock.now_ns() + _READ_NS // 2
                readings.append([])
                for index in some_indices(length, _READ_COUNT):
                    states, attributes, began_ns = moved.states(), _attributes(data), clock.now_ns()
                    readings[-1].append(data[index])
                    took_ns.append(clock.now_ns() - began_ns)
                    if moved.states() != states:
                        return Refused(f"making a {noun} draws random numbers", draws=True)
                    if changed := sorted(name for name, _ in _attributes(data) - attributes):
                        told = f"making a {noun} changes `{changed[0]}` of the data, which may change the next ones"
                        return Refused(told)
                    if clock.now_ns() > until_ns:
                        break
                if seed == 1:
                    between()
        if sorted(took_ns)[len(took_ns) // 2] < _LEAST_NS:
            return None
        ours, others = ([arrays_of(one) for one in some] for some in readings)
        if len({str([(part.dtype, part.shape) for part in parts]) for parts in ours}) > 1 and noun == "sample":
            return Refused("its samples differ in shape or type, so that they cannot lie in one array")
        count = min(len(ours), len(others))
        if compare(ours[:count], others[:count]).effect != "identical":
            return Refused(f"{nouns} differ when they are made again", draws=True)
        return ReadTwice(count, max(sum(part.nbytes for part in parts) for parts in ours))
    except (TypeError, ValueError, RuntimeError) as error:
        return Refused(f"its {nouns} cannot be kept as arrays ({error if str(error) else type(error).__name__})")
    except Exception:
        return None


def some_indices(length: int, most: int) -> list[int]:
    """Returns at most so many indices, spread over all."""
    return sorted({round(at * (length - 1) / max(most - 1, 1)) for at in range(most)})


def made_of(data: Any) -> list[Any]:
    """Returns some data and the data sets that they are made of, as a `Subset` is of another."""
    chain = [data]
    while (inner := getattr(chain[-1], "dataset", None)) is not None and len(chain) < _DEPTH:
        chain.append(inner)
    return chain


def _attributes(data: Any) -> set[tuple[str, tuple[int, int]]]:
    """Returns what tells whether the attributes of the data change: which objects they are, and how large."""
    return {
        (name, (id(value), len(value) if isinstance(value, (list, dict, set)) else 0))
        for one in made_of(data)
        for name, value in getattr(one, "__dict__", {}).items()
    }
