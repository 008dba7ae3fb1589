"""What the search and the advice share while they measure: the child's class, the rounds, the status."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rich.progress import Progress

from unstall.profiles import clock

# The class that answers in the measuring process.
SESSION = "benchmarks.tune.child:TuneSession"
# The fewest and the most rounds in which everything is measured; the fewest of a quick search.
LEAST_ROUNDS, MOST_ROUNDS, QUICK_ROUNDS = 4, 15, 3

Say = Callable[[str], None]


def say_beside(progress: Progress) -> Say:
    """Returns a function that shows a text beside the progress bar."""
    task = progress.add_task("starting", total=None)
    return lambda text: progress.update(task, description=text[:60], refresh=True)


def rounds_within(budget_s: float, began_ns: int, least: int = LEAST_ROUNDS) -> Iterator[int]:
    """Yields round numbers until another round, if it took as long as the last, would exceed the budget."""
    round_s = 0.0
    for number in range(MOST_ROUNDS):
        from_ns = clock.now_ns()
        if number >= least and (from_ns - began_ns) / 1e9 + round_s > budget_s:
            return
        yield number
        round_s = (clock.now_ns() - from_ns) / 1e9
