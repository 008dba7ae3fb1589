"""Measures how many 95 % intervals hold the truth: simulated ones, and the main job's between a variant and itself."""

from __future__ import annotations

import math
import os
import random
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from unstall.benchmarks.lab.options import MODEL, UserError
from unstall.benchmarks.lab.rounds import Group as Children
from unstall.benchmarks.lab.rounds import run_round
from unstall.benchmarks.lab.session import Job
from unstall.benchmarks.truth.coverage import ROUNDS, coverage
from unstall.benchmarks.truth.gate_simulated import NOISE
from unstall.benchmarks.truth.measure import Run
from unstall.benchmarks.truth.plan import Plan
from unstall.benchmarks.truth.samples import Figure, Group
from unstall.pipeline import VARIANTS, ImageSource, open_source
from unstall.profiles.devices import CPU
from unstall.profiles.statistics import CONFIDENCE

_PHOTOS = "generated:512"
# Copies of one variant, compared two by two, in rounds as the main job has them.
_VARIANT, _COPIES, _REAL_ROUNDS = "tf-data-prefetch", 8, 5


def open_run(plan: Plan, progress: Progress, errors: Console) -> Run:
    """Gets ready to simulate, and to run the main job."""
    return Run(plan, progress, measure(plan.number("simulations"), plan.number("real")))


def measure(simulations: int, real: int) -> Generator[Group, None, None]:
    """Yields the coverage of simulated intervals after each kind of noise, and the real ones after each main job."""
    figures: tuple[Figure, ...] = ()
    for name, noise in NOISE.items():
        figures += tuple(
            Figure(
                case=f"{name}, {rounds} rounds",
                name="coverage, %",
                truth=(100 * CONFIDENCE,),
                measured=(100 * coverage(noise, rounds, simulations),),
            )
            for rounds in ROUNDS
        )
        yield Group(name="simulated", figures=figures)
    if real:
        for measured in _main_jobs(math.ceil(2 * real / _COPIES)):
            yield Group(name="real", figures=measured[:real])


def _main_jobs(runs: int) -> Iterator[tuple[Figure, ...]]:
    """Yields the seconds of copies of a variant, two by two, of all main jobs so far.

    Raises:
      UserError: if a copy cannot be measured.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    source = open_source(_PHOTOS)
    jobs = [Job(variant=f"copy {number}", config=VARIANTS[_VARIANT], model=MODEL) for number in range(_COPIES)]
    with tempfile.TemporaryDirectory() as folder:
        children = Children(CPU, source, jobs, Path(folder) / "log", {})
        try:
            children.open()
            for job in jobs:
                children.prepare(job)
            order = random.Random()
            turns = children.turns(loader=False, model_alone=False)
            for run in range(runs):
                for number in range(_REAL_ROUNDS):
                    run_round(turns, run * _REAL_ROUNDS + number, order)
                if children.left_out:
                    reasons = "; ".join(f"{left_out.label}: {left_out.reason}" for left_out in children.left_out)
                    raise UserError(reasons, exit_code=3)
                yield _pairs(children, jobs, source, run + 1)
        finally:
            children.kill()


def _pairs(children: Children, jobs: list[Job], source: ImageSource, runs: int) -> tuple[Figure, ...]:
    """Returns the seconds an image of each pair of copies in each main job."""
    seconds = [
        [
            sample.whole_s_per_image(source.images)
            for sample in children.measured[job].samples
            if sample.window == "train"
        ]
        for job in jobs
    ]
    return tuple(
        Figure(
            case=f"{_VARIANT} on {MODEL}, run {run + 1}, pair {pair + 1}",
            name="s/image",
            truth=tuple(seconds[2 * pair][run * _REAL_ROUNDS : (run + 1) * _REAL_ROUNDS]),
            measured=tuple(seconds[2 * pair + 1][run * _REAL_ROUNDS : (run + 1) * _REAL_ROUNDS]),
        )
        for run in range(runs)
        for pair in range(len(jobs) // 2)
    )
