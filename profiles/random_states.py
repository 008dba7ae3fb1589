"""The generators of random numbers: their states, which reading a script's data again changes and must put back."""

from __future__ import annotations

import collections
import random
import sys
import types
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np

# Generators are looked for so deep in an object, in so many objects, and in lists of at most so many.
_DEPTH, _MOST_OBJECTS, _MOST_LISTED = 6, 2000, 100


class Generators:
    """The global generators of Python, NumPy and PyTorch (on the CPU), and those that an object holds.

    They are looked for in attributes, short lists and dicts, six levels deep.

    Args:
      owner: the object; None for the global ones alone.
    """

    def __init__(self, owner: Any = None) -> None:
        self._of_torch = getattr(sys.modules.get("torch"), "default_generator", None)
        of_torch = () if self._of_torch is None else (self._of_torch,)
        self._all = [random, np.random, *of_torch, *_held(owner, tuple({type(one) for one in of_torch}))]

    def seed(self, seed: int) -> None:
        """Seeds the global ones. (`torch.manual_seed` would seed a GPU as well.)"""
        random.seed(seed)
        np.random.seed(seed)
        if self._of_torch is not None:
            self._of_torch.manual_seed(seed)

    def states(self) -> list[Any]:
        """Returns the state of each, which can be compared."""
        return [_state(one) for one in self._all]

    def set(self, states: Sequence[Any]) -> None:
        """Puts each into the state that `states` returned."""
        for one, state in zip(self._all, states, strict=True):
            if hasattr(one, "setstate"):
                one.setstate(state)
            elif isinstance(one, np.random.Generator):
                one.bit_generator.state = state
            elif hasattr(one, "manual_seed"):
                one.set_state(sys.modules["torch"].frombuffer(bytearray(state), dtype=sys.modules["torch"].uint8))
            else:
                name, numbers, *rest = state
                one.set_state((name, np.frombuffer(numbers, np.uint32), *rest))

    @contextmanager
    def put_back(self) -> Iterator[None]:
        """Puts all back into their states when the block ends, also by an error."""
        states = self.states()
        try:
            yield
        finally:
            self.set(states)


def random_states_put_back() -> AbstractContextManager[None]:
    """Restores the states of the global generators when the block ends, also by an error."""
    return Generators().put_back()


def _state(one: Any) -> Any:
    if hasattr(one, "getstate"):
        return one.getstate()
    if isinstance(one, np.random.Generator):
        return _listed(one.bit_generator.state)
    state = one.get_state()
    if hasattr(one, "manual_seed"):  # PyTorch's
        return state.numpy().tobytes()
    name, numbers, *rest = state
    return (name, numbers.tobytes(), *rest)


def _listed(state: Any) -> Any:
    """Returns the state of a generator of NumPy's with lists instead of its arrays, so that it can be compared."""
    if isinstance(state, dict):
        return {name: _listed(part) for name, part in state.items()}
    return state.tolist() if isinstance(state, np.ndarray) else state


def _held(owner: Any, of_torch: tuple[type, ...]) -> list[Any]:
    kinds = (random.Random, np.random.Generator, np.random.RandomState, *of_torch)
    found: list[Any] = []
    seen: set[int] = set()
    waiting = collections.deque([(owner, 0)])  # the nearest objects first
    while waiting and len(seen) < _MOST_OBJECTS:
        one, depth = waiting.popleft()
        if id(one) in seen or isinstance(one, (type, types.ModuleType, types.FunctionType)):
            continue
        seen.add(id(one))
        if isinstance(one, kinds):
            if not isinstance(one, random.SystemRandom):  # which has no state
                found.append(one)
        elif depth < _DEPTH:
            waiting.extend((part, depth + 1) for part in _parts(one))
    return found


def _parts(one: Any) -> Iterable[Any]:
    if isinstance(one, (list, tuple, dict)) and len(one) < _MOST_LISTED:
        return one.values() if isinstance(one, dict) else one
    return getattr(one, "__dict__", {}).values()
