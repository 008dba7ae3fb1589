"""Puts back what reading a script's data again changes in the global random states of Python and NumPy."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np


@contextmanager
def random_states_put_back() -> Iterator[None]:
    """Restores the random states of Python and NumPy when the block ends, also by an error."""
    python_state, numpy_state = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
