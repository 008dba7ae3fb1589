"""Other programs that take cores while something is measured."""

from __future__ import annotations

import contextlib
import hashlib
import multiprocessing
import random
from collections.abc import Callable, Iterator
from typing import Any

from unstall.profiles import clock

# How long a neighbour that comes and goes stays, and stays away.
_STAYS_S = (2.0, 8.0)


@contextlib.contextmanager
def neighbours(count: int, work: Callable[..., None], *arguments: Any) -> Iterator[None]:
    """Runs a function in so many processes, which may be none, until the block ends."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=work, args=arguments, daemon=True) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def burn() -> None:
    """Burns a core for as long as the parent process lives."""
    parent = multiprocessing.parent_process()
    block = bytes(2**20)
    while parent is not None and parent.is_alive():
        for _ in range(1000):
            hashlib.sha256(block)


def come_and_go(seed: float) -> None:
    """Burns a core, and leaves it alone, in turns, for as long as the parent process lives."""
    parent, coin = multiprocessing.parent_process(), random.Random(seed)
    while parent is not None and parent.is_alive():
        until_ns = clock.now_ns() + int(coin.uniform(*_STAYS_S) * 1e9)
        while clock.now_ns() < until_ns:
            pass
        clock.sleep_until_ns(clock.now_ns() + int(coin.uniform(*_STAYS_S) * 1e9))
