"""The longest loop of a script, so that remedies for its data can be tried."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from unstall.profiles import clock
from unstall.profiles.data import Use, adapter
from unstall.profiles.random_states import random_states_put_back
from unstall.profiles.remedies import Need
from unstall.profiles.remedies.data import Data, Failed
from unstall.profiles.remedies.turns import Measure
from unstall.profiles.script.seen import SeenLoop
from unstall.profiles.statistics import median
from unstall.profiles.trial.surrogate import BehindTheHost, computing, measure_loop, sleeping

if TYPE_CHECKING:
    from unstall.profiles.script.loop_step import Work

# The fewest batches in which the modules of a step are timed, how many times as many as lie ready, and how long they
# may take. The time is not part of the budget.
_TIMED_BATCHES, _TIMES_AHEAD, _TIMED_S = 12, 4, 15.0
# Modules that take more than this many times as long as the script's step do other work than it did.
_LONGER = 1.25
# What a reader must know of rates that were measured with something in the place of the loop's steps.
_STAND_IN = "The script's own steps cannot be run apart: {} of the same length stands in for them."
_OWN_STEP = (
    "The script's own steps cannot be run apart: their modules on made-up values, a backward pass and their optimizer "
    "stand in for them, and as much computing as the rest took."
)


@contextmanager
def opened_loop(seen: SeenLoop, needs: Sequence[Need]) -> Iterator[tuple[Data, Measure]]:
    """Yields the data of a loop, and what times a loop over them, with a surrogate for its steps.

    Raises:
      Failed: if the data cannot be built again, or nothing is known of the steps.
    """
    record = seen.record
    steady = [epoch for epoch in record.epochs if epoch.steady_steps and epoch.steady_wait_ns is not None]
    if not steady:
        raise Failed("the loop made too few steps to tell how long one takes")
    step_s = median([epoch.step_s for epoch in steady])
    on_gpu = record.device.kind == "gpu"
    use = Use(
        images_per_batch=record.batch_size,
        epoch_batches=max((epoch.steps for epoch in record.epochs if epoch.whole), default=None),
        on_gpu=on_gpu,
        anew=seen.anew,
        changed=seen.changed,
        work=seen.work,
        left=seen.left,
    )
    library = adapter(seen.data)
    with random_states_put_back(), _threads_put_back(), warnings.catch_warnings(action="ignore"):
        data = library.rebuilt(seen.data, use, needs)
        with ExitStack() as stack:
            stack.callback(lambda: data.close())
            stack.enter_context(seen.work.put_back() if seen.work else nullcontext())
            step = None if seen.work is None else _own_step(seen.work, step_s * (1 - seen.queued_ratio), data)
            if step is None and seen.work is not None:  # no remedy may rest on what the modules do
                data.close()
                data = library.rebuilt(seen.data, replace(use, work=None), needs)
            data.stands_in = _OWN_STEP
            if step is None:
                data.stands_in = _STAND_IN.format("a sleep" if on_gpu else "as much computing")
                step = sleeping(step_s) if on_gpu else computing(step_s, library.computing_on(seen.threads))
            if not seen.behind:
                yield data, partial(measure_loop, step)
                return
            with closing(BehindTheHost(step)) as behind:
                yield data, partial(measure_loop, behind)


@contextmanager
def _threads_put_back() -> Iterator[None]:
    """Restores PyTorch's number of threads when the block ends, where the script has imported it."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "get_num_threads"):  # or another package of that name
        yield
        return
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _own_step(work: Work, step_s: float, data: Data) -> Callable[[], object] | None:
    """Returns a step of the loop's own modules and optimizers that takes as long as the script's step did.

    What the script did besides is computed on one core, for a part of the time that the modules compute on it. Both
    take longer after a wait, in which the threads of PyTorch fall asleep and the caches of the cores are filled with
    other things; so the modules are timed in a loop over the loader as written. Waiting for a core is left out of both:
    workers that take the cores do so for more of the script's steps than of the few that are timed.

    Args:
      work: the modules and optimizers.
      step_s: of the script's step, without waiting for a core.
      data: of the loop.
    Returns:
      The step; None if the modules fail on made-up values, or take clearly longer than the script's step.
    """
    cpu_ns: list[int] = []
    free_ns: list[int] = []  # of each step, without waiting for a core

    def run() -> None:
        began_cpu_ns, began_ns = clock.thread_cpu_ns(), clock.now_ns() - clock.queued_ns()
        work.run()
        free_ns.append(clock.now_ns() - clock.queued_ns() - began_ns)
        cpu_ns.append(clock.thread_cpu_ns() - began_cpu_ns)

    batches = max(_TIMED_BATCHES, _TIMES_AHEAD * data.ahead(()))
    try:
        measure_loop(run, data.built((), batches), 1, "warmup", 0, _TIMED_S)
    except Exception:  # the modules are the script's own code, and can raise anything
        return None
    own_s = median(free_ns) / 1e9
    if own_s > _LONGER * step_s:
        return None
    left_ratio = max(step_s - own_s, 0.0) * 1e9 / max(median(cpu_ns), 1)

    def step() -> None:
        began_ns = clock.thread_cpu_ns()
        work.run()
        now_ns = clock.thread_cpu_ns()
        until_ns = now_ns + left_ratio * (now_ns - began_ns)
        while clock.thread_cpu_ns() < until_ns:
            pass

    return step
