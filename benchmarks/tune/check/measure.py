"""Checks the tuner: for every target it searches, measures all of a small space, then the choice beside the best."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from rich.console import Console
from rich.progress import Progress

from unstall.benchmarks.lab.child import ChildDied, JobRefused
from unstall.benchmarks.lab.command import read_source
from unstall.benchmarks.lab.options import UserError
from unstall.benchmarks.lab.rounds import Group, run_round
from unstall.benchmarks.lab.run import LabRun
from unstall.benchmarks.lab.session import Job
from unstall.benchmarks.tune.check.results import best_of, chosen_of
from unstall.benchmarks.tune.check.samples import CheckSamples, MeasuredConfig, MeasuredCosts, MeasuredTarget
from unstall.benchmarks.tune.plan import Asked, CheckAsked, CheckPlan, Plan, Target
from unstall.benchmarks.tune.results import Result, name_of
from unstall.benchmarks.tune.rounds import SESSION, say_beside
from unstall.benchmarks.tune.samples import MeasuredStage
from unstall.benchmarks.tune.search import COST_IMAGES, Tuner
from unstall.pipeline import ImageSource, PipelineConfig
from unstall.pipeline.cost_model import stages_of
from unstall.profiles.provenance import usable_cores

_ROUNDS, _DUEL_ROUNDS = 5, 10


def small_space(base: PipelineConfig) -> Iterator[PipelineConfig]:
    """Yields ten pipelines: five kinds of work, each without parallelism, and with parallel calls and prefetching."""
    base = replace(base, loader="tf_data", autotune=False, rewrites=True)
    composed = replace(base, resample="composed", augment_with="opencv", augment_at="batch")
    for work in (
        base,
        replace(base, decode="scaled"),
        replace(composed, decode="scaled"),
        replace(base, cache="memory", augment_at="batch"),
        replace(composed, storage="raw"),
    ):
        for workers, prefetch in ((1, 0), (max(2, round(usable_cores())), 2)):
            yield replace(work, workers=workers, prefetch=prefetch, one_iterator=prefetch > 0)


def open_run(plan: CheckPlan, progress: Progress, errors: Console) -> Run:
    """Reads the images, and gets ready to measure."""
    source = read_source(plan.data, progress, errors, skip_list=plan.skip_list)
    return Run(plan, source, progress)


class Run(LabRun[CheckAsked, CheckSamples]):
    """Measures every target of a check.

    Args:
      source: all images.
    """

    command = "tune --check"

    def __init__(self, plan: CheckPlan, source: ImageSource, progress: Progress) -> None:
        super().__init__(plan.asked, progress, source.to_dict())
        self._plan = plan
        self._source = source
        self._say = say_beside(progress)
        self._measured: dict[Target, MeasuredTarget] = {}

    def samples(self) -> CheckSamples:
        return CheckSamples(targets=tuple(self._measured.values()))

    def measure(self, after_round: Callable[[], object]) -> None:
        """Runs the tuner and the exhaustive search for every target, and measures the choice beside the best.

        Args:
          after_round: called whenever there are new samples to write.
        Raises:
          UserError: if a target cannot be measured.
        """
        for target in self._plan.asked.targets:
            self._search(target, after_round)
            self._measure_everything(target, after_round)
            self._measure_duel(target, after_round)

    def _say_of(self, target: Target, text: str) -> None:
        self._say(f"{target.model} on {target.device.name}: {text}")

    def _search(self, target: Target, after_round: Callable[[], object]) -> None:
        check = self._plan
        asked = Asked(
            data=check.asked.data,
            model=target.model,
            device=target.device,
            base=PipelineConfig(),
            limits=check.asked.limits,
        )
        plan = Plan(asked=asked, data=check.data, model=target.model, out=check.out, thorough=True)
        tuner = Tuner(plan, self._source, functools.partial(self._say_of, target), small_space)

        def keep(*, searched: bool) -> None:
            self._measured[target] = MeasuredTarget(target=target, search=tuner.samples, searched=searched)
            after_round()

        try:
            tuner.search(lambda: keep(searched=False))
            keep(searched=True)
            tuner.close()
        except BaseException:
            tuner.kill()
            raise

    def _measure_everything(self, target: Target, after_round: Callable[[], object]) -> None:
        base = PipelineConfig(image_size=self._chosen(target).config.image_size)
        space = {name_of(config): config for config in small_space(base)}
        keys = tuple(dict.fromkeys(key for config in space.values() for key, _ in stages_of(config)))
        costs: list[MeasuredCosts] = []
        self._say_of(target, "exhaustive search")

        def measure_costs(group: Group) -> None:
            stages, consumer = group.ask("stage_costs", keys, base, target.model, COST_IMAGES)
            measured = tuple(MeasuredStage(stage=stage, cost=cost) for stage, cost in stages.items())
            costs.append(MeasuredCosts(stages=measured, consumer=consumer))

        def keep(everything: tuple[MeasuredConfig, ...]) -> None:
            self._measured[target] = replace(self._measured[target], everything=everything, costs=tuple(costs))
            after_round()

        self._measure(target, space, _ROUNDS, keep, measure_costs)

    def _measure_duel(self, target: Target, after_round: Callable[[], object]) -> None:
        chosen, best = self._chosen(target), best_of(self._measured[target], self._source.images)
        if chosen.config == best.config:
            return
        self._say_of(target, f"{chosen.name} against {best.name}")

        def keep(duel: tuple[MeasuredConfig, ...]) -> None:
            self._measured[target] = replace(self._measured[target], duel=duel)
            after_round()

        self._measure(target, {chosen.name: chosen.config, best.name: best.config}, _DUEL_ROUNDS, keep)

    def _chosen(self, target: Target) -> Result:
        chosen = chosen_of(self._measured[target], self._source.images)
        assert chosen is not None
        return chosen

    def _measure(
        self,
        target: Target,
        configs: Mapping[str, PipelineConfig],
        rounds: int,
        keep: Callable[[tuple[MeasuredConfig, ...]], None],
        around: Callable[[Group], object] | None = None,
    ) -> None:
        """Measures pipelines side by side.

        Args:
          configs: by name.
          keep: called with all that was measured so far whenever that is more.
          around: measures something else, before each round and after the last.
        Raises:
          UserError: if one of them cannot be measured.
        """
        jobs = [Job(variant=name, config=config, model=target.model) for name, config in configs.items()]
        group = Group(target.device, self._source, jobs, self._plan.out / "check.log", {}, SESSION)
        try:
            group.open()
            for job in group.jobs:
                group.prepare(job)
            order = random.Random()
            for number in range(rounds):
                if around is not None:
                    around(group)
                run_round(group.turns(loader=False, model_alone=False), number, order)
                keep(_measured_in(group))
            if around is not None:
                around(group)
                keep(_measured_in(group))
            group.close()
        except (ChildDied, JobRefused) as error:
            raise UserError(f"{target.device.name}: {error}", exit_code=3) from error
        finally:
            group.kill()
        if group.left_out:
            reasons = "; ".join(f"{left_out.label}: {left_out.reason}" for left_out in group.left_out)
            raise UserError(reasons, exit_code=3)


def _measured_in(group: Group) -> tuple[MeasuredConfig, ...]:
    return tuple(
        MeasuredConfig(name=job.variant, config=job.config, samples=tuple(group.measured[job].samples))
        for job in group.jobs
    )
