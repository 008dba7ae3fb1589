"""The states of generators of random numbers are compared and put back, whichever generator it is."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from unstall.profiles.random_states import Generators


class Holds:
    def __init__(self, held: Any) -> None:
        self.several = [{"one": held}]


@pytest.mark.parametrize(
    "bits", [np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64], ids=lambda kind: kind.__name__
)
def test_a_generator_of_numpys_goes_on_where_it_was(bits: Any) -> None:
    held = np.random.Generator(bits(3))
    generators = Generators(Holds(held))
    states = generators.states()
    with generators.put_back():
        drawn = held.integers(1000, size=5).tolist()
        assert generators.states() != states
    assert generators.states() == states and held.integers(1000, size=5).tolist() == drawn


@pytest.mark.parametrize("held", [random.Random(3), np.random.RandomState(3)], ids=lambda held: type(held).__name__)
def test_older_generators_go_on_where_they_were(held: Any) -> None:
    generators = Generators(Holds(held))
    with generators.put_back():
        drawn = [held.random() for _ in range(5)] if hasattr(held, "getstate") else held.rand(5).tolist()
    assert drawn == ([held.random() for _ in range(5)] if hasattr(held, "getstate") else held.rand(5).tolist())


def test_global_generators_are_seeded_and_put_back_also_by_an_error() -> None:
    def states() -> tuple[Any, str]:
        return random.getstate(), str(np.random.get_state())

    def seeds(generators: Generators) -> None:
        with generators.put_back():
            generators.seed(4)
            assert states() != before
            raise ValueError("x")

    before = states()
    with pytest.raises(ValueError, match="x"):
        seeds(Generators())
    assert states() == before
