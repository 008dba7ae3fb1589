"""Finds the fastest pipeline for a folder, a model and a device: predicts the rates of all, measures the best few.

Over 400 lines: the steps of a search share one child process, and what was measured so far is read from all of them.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from unstall.benchmarks.lab.child import ChildDied, JobRefused
from unstall.benchmarks.lab.options import UserError
from unstall.benchmarks.lab.rounds import MOST_IMAGES, QUICK_IMAGES, Group, Turn, run_round
from unstall.benchmarks.lab.session import Job
from unstall.benchmarks.tune.exactness import Exactness, allowed
from unstall.benchmarks.tune.plan import Plan
from unstall.benchmarks.tune.results import (
    AUTOTUNE,
    EQUAL_RATIO,
    HEURISTIC,
    NAIVE,
    Result,
    choose,
    has_place,
    name_of,
    rates_of_subjects,
    rivals_of,
    settle,
    simplicity,
    undecided,
)
from unstall.benchmarks.tune.rounds import LEAST_ROUNDS, QUICK_ROUNDS, SESSION, Say, rounds_within
from unstall.benchmarks.tune.samples import MeasuredPipeline, MeasuredStage, OrderSamples, SearchSamples, Subject
from unstall.pipeline import ImageSource, PipelineConfig
from unstall.pipeline.config import AUTO, CHOICES
from unstall.pipeline.cost_model import Consumer, StageCost, StageKey, candidates, kind_of, predict, stages_of
from unstall.pipeline.prepared import bytes_of
from unstall.profiles import clock
from unstall.profiles.provenance import usable_cores
from unstall.profiles.report import LeftOut

# Pipelines that are measured beside naive, heuristic and AUTOTUNE, and by a quick search beside AUTOTUNE.
SHORTLIST, QUICK_SHORTLIST = 5, 3
# Images, spread over the source, that are read to measure the costs of stages, and those of a quick search.
COST_IMAGES, _QUICK_COST_IMAGES = 256, 128
# Where fewer rounds than this have not decided which pipeline is the fastest, so many more rounds are measured of those
# that may be; and so many rounds measure the choice again.
_DECIDING_ROUNDS = 8
# Rounds of each of TensorFlow's algorithms for AUTOTUNE.
_ALGORITHM_ROUNDS = 3
# Rounds that measure the choice of a quick search again. They alone must show that it is faster.
_QUICK_AGAIN = 5


class Tuner:
    """One search.

    Args:
      plan: what is asked; the child's log goes to its folder if something fails.
      source: all images.
      say: called with a text that says what is going on.
      space: returns the configs to choose from; by default all that the tuner knows.
    """

    def __init__(
        self,
        plan: Plan,
        source: ImageSource,
        say: Say,
        space: Callable[[PipelineConfig], Iterator[PipelineConfig]] | None = None,
    ) -> None:
        self._source = source
        self._source_bytes = bytes_of(source)
        self._model = plan.model
        self._device = plan.asked.device
        self._limits = plan.asked.limits
        self._thorough = plan.thorough
        self._cost_images = COST_IMAGES if plan.thorough else _QUICK_COST_IMAGES
        self._say = say
        self._space = space or self._all
        self._base = plan.asked.base
        self._cores = usable_cores()
        first = Job(variant=AUTOTUNE, config=self._base, model=plan.model)
        most_images = MOST_IMAGES if plan.thorough else QUICK_IMAGES
        self._group = Group(self._device, source, [first], plan.out / "tune.log", {}, SESSION, most_images=most_images)
        self._order = random.Random()
        self._after_round: Callable[[], object] = lambda: None
        # What `samples` returns, filled as the search goes on.
        self._costs: dict[StageKey, StageCost] = {}
        self._consumer: Consumer | None = None
        self._predicted = 0
        self._rejected: Counter[str] = Counter()
        self._subjects: dict[Job, Subject] = {}
        self._chosen_first: str | None = None
        # AUTOTUNE with each of TensorFlow's algorithms, and on the copy of the chosen pipeline: none can be chosen.
        self._by_algorithm: dict[Job, Subject] = {}
        self._on_copy: dict[Job, Subject] = {}
        # The subjects' windows until `_measure_order` clears those of the chosen one and measures it anew.
        self._measured_before_order: tuple[MeasuredPipeline, ...] | None = None
        self._any_and_in_order: tuple[Job, Job] | None = None
        self._prepare_s_per_image = 0.0
        self._unprepared: tuple[LeftOut, ...] = ()
        self._began_ns = clock.now_ns()
        self._seconds: float | None = None

    def _all(self, base: PipelineConfig) -> Iterator[PipelineConfig]:
        accelerator = self._device.kind == "gpu"
        return candidates(
            base,
            cores=self._cores,
            accelerator=accelerator,
            scales=self._source.formats == ("JPEG",),
            sends=accelerator and self._group.backend.get("keras_backend") == "tensorflow",
        )

    def close(self) -> None:
        self._group.close()

    def kill(self) -> None:
        self._group.kill()

    @property
    def samples(self) -> SearchSamples:
        """What was measured so far."""
        order = None
        if self._any_and_in_order is not None and all(job in self._group.jobs for job in self._any_and_in_order):
            any_order, in_order = map(self._measured_of, self._any_and_in_order)
            order = OrderSamples(any_order=any_order, in_order=in_order)
        return SearchSamples(
            stages=tuple(MeasuredStage(stage=stage, cost=cost) for stage, cost in self._costs.items()),
            consumer=self._consumer,
            predicted=self._predicted,
            rejected=dict(+self._rejected),
            subjects=self._measured if self._measured_before_order is None else self._measured_before_order,
            chosen_first=self._chosen_first,
            algorithms=self._measured_in(self._by_algorithm),
            on_copy=next(iter(self._measured_in(self._on_copy)), None),
            order=order,
            prepare_s_per_image=self._prepare_s_per_image,
            seconds=(clock.now_ns() - self._began_ns) / 1e9 if self._seconds is None else self._seconds,
        )

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """Subjects that could not be measured, and why; also the copy of the chosen one."""
        return self._unprepared + tuple(
            LeftOut(who=left_out.label, reason=left_out.reason)
            for left_out in self._group.left_out
            if left_out.job in self._subjects | self._by_algorithm | self._on_copy
        )

    def search(self, after_round: Callable[[], object]) -> None:
        """Searches.

        Args:
          after_round: called whenever there is more in `samples`.
        Raises:
          UserError: if the device is not there, the model cannot be used, or nothing could be measured.
        """
        self._after_round = after_round
        self._began_ns = clock.now_ns()
        try:
            self._say("opening the model")
            self._group.open()
            base = replace(self._base, image_size=self._group.models[self._model].image_size)
            self._say("measuring the stages' costs")
            space = list(self._space(base))
            bars = _bars(base, self._cores)
            if not self._thorough:  # the other usual pipelines decide nothing
                bars = {AUTOTUNE: bars[AUTOTUNE]}
            on_copies = [replace(bars[AUTOTUNE], storage=storage) for storage in CHOICES["storage"] if self._thorough]
            keys = dict.fromkeys(key for config in (*bars.values(), *on_copies, *space) for key, _ in stages_of(config))
            self._costs, self._consumer = self._group.ask(
                "stage_costs", tuple(keys), base, self._model, self._cost_images
            )
            self._predicted = len(space)
            after_round()
            shortlist = self._shortlist(self._rank(space), base)
            if self._thorough:
                bars[AUTOTUNE] = self._best_algorithm(bars[AUTOTUNE])
            subjects = {name: self._subject(config, name) for name, config in bars.items()}
            subjects |= {subject.name: subject for subject in shortlist}
            self._measure(list(subjects.values()))
            self._settle()
        except JobRefused as error:
            raise UserError(f"{self._device.name}: {error}", exit_code=3) from error
        except ChildDied as error:
            raise UserError(f"{self._device.name}: {error}. See {self._group.log}.", exit_code=3) from error
        self._seconds = (clock.now_ns() - self._began_ns) / 1e9

    def _subject(self, config: PipelineConfig, name: str | None = None) -> Subject:
        """Returns a pipeline with its prediction; without a `name` it is named after what it does."""
        assert self._consumer is not None
        prediction = predict(
            config,
            self._costs,
            self._consumer,
            cores=self._cores,
            images=self._source.images,
            source_bytes=self._source_bytes,
        )
        return Subject(name=name or name_of(config), config=config, prediction=prediction)

    def _rank(self, space: Sequence[PipelineConfig]) -> list[Subject]:
        """Returns the best pipeline of each kind within the limits, the fastest first; of equals the simpler first."""
        best: dict[PipelineConfig, Subject] = {}
        for config in space:
            if any(key not in self._costs for key, _ in stages_of(config)):
                self._rejected["not to be had from this source"] += 1
                continue
            subject = self._subject(config)
            if subject.prediction.memory_bytes > self._limits.memory_bytes:
                self._rejected["more memory than --memory-limit"] += 1
            elif subject.prediction.disk_bytes > self._limits.disk_bytes:
                self._rejected["more disk than --disk-limit"] += 1
            else:
                kind = kind_of(config)
                if kind not in best or _place(subject) < _place(best[kind]):
                    best[kind] = subject
        slower = len(space) - self._rejected.total() - len(best)
        self._rejected["predicted slower than another of its kind"] = slower
        return sorted(best.values(), key=_place)

    def _shortlist(self, ranked: list[Subject], base: PipelineConfig) -> list[Subject]:
        """Returns the first few subjects whose images are exact enough; compares pixels only until there are enough.

        See `has_place` for those that are taken though others are predicted to be faster.
        """
        reference = replace(base, loader="tf_data", augment_with="tf_ops", augment_at="element")
        places = SHORTLIST if self._thorough else QUICK_SHORTLIST
        chosen: list[Subject] = []
        for subject in ranked:
            if not has_place(subject, chosen, places):  # whatever its pixels are
                self._rejected["predicted slower"] += 1
                continue
            exactness: Exactness | None = None
            widest = "distribution"  # Keras layers make random draws of their own
            if not subject.config.augment_with.startswith("keras_"):
                self._say(f"comparing pixels: {subject.name}")
                try:
                    compared: Exactness = self._group.ask("exactness", subject.config, reference)
                except JobRefused as error:
                    self._rejected[f"cannot be built: {error}"] += 1
                    continue
                exactness, widest = compared, compared.name
            subject = replace(subject, exactness=exactness)
            if not allowed(widest, self._limits.exactness):
                self._rejected[f"images are of class {widest}, --exactness is {self._limits.exactness}"] += 1
            elif has_place(subject, chosen, places):
                chosen.append(subject)
            else:
                self._rejected["predicted slower"] += 1
        return chosen

    def _best_algorithm(self, autotune: PipelineConfig) -> PipelineConfig:
        """Returns AUTOTUNE with the fastest of TensorFlow's algorithms for it, after a few rounds of each.

        Noise may choose one that is a little slower than the best. AUTOTUNE is measured anew afterwards, so that the
        rounds that chose its algorithm do not flatter it.
        """
        group, by_job = self._group, self._by_algorithm
        for algorithm in CHOICES["autotune_algorithm"]:
            subject = self._subject(replace(autotune, autotune_algorithm=algorithm), f"{AUTOTUNE}, {algorithm}")
            self._say(f"warming up {subject.name}")
            job = Job(variant=subject.name, config=subject.config, model=self._model)
            by_job[job] = subject
            group.add(job)
        for number in range(_ALGORITHM_ROUNDS):
            self._say(f"{AUTOTUNE}'s algorithms, round {number + 1}")
            turns = [Turn(group=group, of=job, window="train") for job in group.jobs if job in by_job]
            run_round(turns, number, self._order)
            self._after_round()
        results = rates_of_subjects(self._measured_in(by_job), self._source.images)
        return max(results, key=lambda result: result.rate).config if results else autotune

    def _measure(self, subjects: Sequence[Subject]) -> None:
        group = self._group
        for first in group.jobs:
            group.retire(first)
        for subject in subjects:
            self._say(f"warming up {subject.name}")
            job = Job(variant=subject.name, config=subject.config, model=self._model)
            self._subjects[job] = subject
            group.add(job)
        number = 0
        least = LEAST_ROUNDS if self._thorough else QUICK_ROUNDS
        for number in rounds_within(self._limits.budget_s, self._began_ns, least):
            self._say(f"round {number + 1}")
            self._round(number, loader=self._thorough and number < LEAST_ROUNDS)
        if self._thorough:
            self._decide(number + 1)

    def _decide(self, rounds: int) -> None:
        """Measures further rounds of those subjects among which the rounds so far do not decide the fastest.

        With a slow model the budget holds few rounds, whose intervals are as wide as the differences between subjects.
        """
        group, names = self._group, {result.name for result in undecided(self._results())}
        if rounds >= _DECIDING_ROUNDS or not names:
            return
        for job in group.jobs:
            if self._subjects[job].name not in names:
                group.retire(job)
        for further in range(rounds, rounds + _DECIDING_ROUNDS):
            self._say(f"round {further + 1}, between {len(names)}")
            self._round(further, loader=False)

    def _round(self, number: int, *, loader: bool) -> None:
        """Measures one round of training."""
        run_round(self._group.turns(loader=loader, model_alone=False), number, self._order)
        self._after_round()

    @property
    def _measured(self) -> tuple[MeasuredPipeline, ...]:
        return self._measured_in(self._subjects)

    def _measured_in(self, subjects: Mapping[Job, Subject]) -> tuple[MeasuredPipeline, ...]:
        """Returns those of the subjects that were measured, and have not failed."""
        failed = {left_out.job for left_out in self._group.left_out}
        measured = self._group.measured
        return tuple(
            MeasuredPipeline(subject=subject, samples=tuple(measured[job].samples))
            for job, subject in subjects.items()
            if job in measured and job not in failed
        )

    def _measured_of(self, job: Job) -> MeasuredPipeline:
        return MeasuredPipeline(subject=self._subjects[job], samples=tuple(self._group.measured[job].samples))

    def _results(self) -> tuple[Result, ...]:
        """Returns the results of the rounds so far.

        Raises:
          UserError: if none could be measured.
        """
        results = rates_of_subjects(self._measured, self._source.images)
        if not results:
            reasons = "; ".join(f"{left_out.who}: {left_out.reason}" for left_out in self.left_out)
            raise UserError(reasons, exit_code=3)
        return results

    def _settle(self) -> None:
        """Measures the choice again, and what a fixed order and its prepared copy cost."""
        results = self._results()
        # Rounds that follow must confirm the choice: of a single pipeline, that is one comparison.
        chosen = choose(results, surely=False)
        if chosen.name != AUTOTUNE:
            self._chosen_first = chosen.name
            self._measure_again([rival.name for rival in rivals_of(results, chosen.name)])
            chosen = settle(self._results(), self._chosen_first)
        self._measured_before_order = self._measured
        if self._thorough:
            self._measure_order(chosen.subject)
        if chosen.config.storage != "files" or chosen.config.cache == "disk":
            try:
                self._prepare_s_per_image = self._group.ask("seconds_to_prepare", chosen.config)
            except (JobRefused, ChildDied) as error:
                self._unprepared = (LeftOut(who="its copy", reason=f"how long it takes is not known: {error}"),)

    def _measure_again(self, rivals: Sequence[str]) -> None:
        """Measures the chosen subject, which comes first, and its rivals in new rounds, which did not choose it.

        The fastest of many owes its place to noise as well, so that the rounds that chose it overestimate its rate.
        """
        group = self._group
        self._say(f"again: {', '.join(rivals)}")
        for job in group.jobs:
            if self._subjects[job].name not in rivals:
                group.retire(job)
        failed = {left_out.job for left_out in group.left_out}
        for job, subject in self._subjects.items():
            if subject.name in rivals and job not in group.jobs and job in group.measured and job not in failed:
                group.add(job)
        if self._thorough:
            self._add_copy(rivals[0])
        turns = [Turn(group=group, of=job, window="again") for job in group.jobs]
        for number in range(_DECIDING_ROUNDS if self._thorough else _QUICK_AGAIN):
            run_round(turns, number, self._order)
            self._after_round()

    def _add_copy(self, name: str) -> None:
        """Adds AUTOTUNE on the prepared copy or the cache of a subject, and with its iterator, where it has one."""
        by_name = {subject.name: subject for subject in self._subjects.values()}
        chosen, autotune = by_name[name], by_name[AUTOTUNE]
        if chosen.config.storage == "files" and chosen.config.cache == "none":
            return
        config = replace(
            autotune.config,
            storage=chosen.config.storage,
            cache=chosen.config.cache,
            one_iterator=chosen.config.one_iterator,
        )
        job = Job(variant=f"{AUTOTUNE}, the same copy", config=config, model=self._model)
        self._on_copy[job] = self._subject(config, job.variant)
        self._group.add(job)

    def _measure_order(self, chosen: Subject) -> None:
        """Measures the chosen pipeline beside a copy of it whose elements come in the order in which they are ready."""
        if chosen.config.workers == 1:
            return
        self._say("the price of a fixed order")
        group = self._group
        in_order = next(job for job, subject in self._subjects.items() if subject.name == chosen.name)
        for job in group.jobs:
            if job != in_order:
                group.retire(job)
        if in_order not in group.jobs:  # `_decide` may have retired it: the choice can be simpler than the fastest
            group.add(in_order)
        group.measured[in_order].samples.clear()
        subject = replace(chosen, name="any order", config=replace(chosen.config, deterministic=False))
        any_order = Job(variant=subject.name, config=subject.config, model=self._model)
        self._subjects[any_order] = subject
        group.add(any_order)
        self._any_and_in_order = any_order, in_order
        for number in range(LEAST_ROUNDS):
            self._round(number, loader=True)


def _bars(base: PipelineConfig, cores: float) -> dict[str, PipelineConfig]:
    """Returns the usual pipelines: as first written, with as many workers as cores, and with AUTOTUNE.

    Like all that the tuner proposes, the first two have constant settings and no autotuning, so that the tuner may
    choose either.
    """
    plain = replace(
        base,
        loader="tf_data",
        augment_with="tf_ops",
        augment_at="element",
        resample="separate",
        decode="full",
        storage="files",
        cache="none",
        output_dtype="float32",
    )
    naive = replace(plain, workers=1, prefetch=0, rewrites=False, autotune=False)
    return {
        NAIVE: naive,
        HEURISTIC: replace(naive, workers=max(1, round(cores)), prefetch=2),
        AUTOTUNE: replace(plain, workers=AUTO, prefetch=AUTO, rewrites=True, autotune=True),
    }


def _place(subject: Subject) -> tuple[float, float, bool, tuple[int, ...]]:
    """Returns a key that sorts by predicted rate, then by the loader's CPU time, both in steps, then by simplicity.

    The loader's CPU time counts even where the model sets the rate: it leaves the model more of the cores. Of equals
    one iterator for all epochs comes first: the edges of epochs, which are not predicted, cost nothing then.
    """
    faster, leaner = subject.prediction.images_per_sec, 1 / subject.prediction.loader_us_per_image
    steps = [-round(math.log(value) / math.log1p(EQUAL_RATIO)) for value in (faster, leaner)]
    return steps[0], steps[1], not subject.config.one_iterator, simplicity(subject.config)
