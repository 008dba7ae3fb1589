"""Whether Python code before a cache of a tf.data pipeline draws random numbers: its first elements are made twice."""

from __future__ import annotations

from typing import Any

import numpy as np

from unstall.profiles import clock
from unstall.profiles.random_states import Generators
from unstall.profiles.stages.tf_graph import caches_in, is_shuffle, python_in, random_in, source_of, upstream

# So many elements are made, for so long each time.
_ELEMENTS, _READ_NS = 64, 1_000_000_000


def python_drawn_before_cache(dataset: Any) -> tuple[str, ...]:
    """Returns the Python code upstream of a cache that is seen to draw, as "augment runs Python code (`PyFunc`)".

    It draws if making elements moves a global generator of Python's or NumPy's, or if elements differ when they are
    made again, where no shuffle and no operation of TensorFlow's makes them differ.

    Args:
      dataset: a `tf.data.Dataset`, whose first elements before the cache are read; any other object has no such code.
    """
    found: dict[str, None] = {}
    for cache in caches_in(dataset):
        before = [*upstream(source_of(cache))]
        codes = [code for part in before for code in python_in(part)]
        if codes and _draws(source_of(cache), certain=not any(is_shuffle(part) or random_in(part) for part in before)):
            found |= dict.fromkeys(codes)
    return tuple(found)


def _draws(dataset: Any, *, certain: bool) -> bool:
    """Makes the first elements twice.

    Args:
      certain: whether elements that differ are a sign, because nothing else makes them differ.
    """
    generators = Generators()
    readings: list[list[list[np.ndarray]]] = []
    with generators.put_back():
        for seed in (1, 2):
            generators.seed(seed)
            states, until_ns = generators.states(), clock.now_ns() + _READ_NS
            readings.append([])
            for element in dataset.take(_ELEMENTS):
                readings[-1].append(_arrays(element))
                if clock.now_ns() > until_ns:
                    break
            if generators.states() != states:
                return True
    return certain and not all(map(_are_equal, *readings))


def _arrays(element: Any) -> list[np.ndarray]:
    import tensorflow as tf

    return [np.asarray(part) for part in tf.nest.flatten(element, expand_composites=True)]


def _are_equal(first: list[np.ndarray], second: list[np.ndarray]) -> bool:
    return len(first) == len(second) and all(map(np.array_equal, first, second))
