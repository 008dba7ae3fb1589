"""Finds the fastest pipeline for a folder, a model and a device: predicts all candidates, measures the best few."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.lab.child import ChildDied, Group, JobRefused, Turn, run_round
from benchmarks.lab.options import UserError
from benchmarks.lab.session import Job
from benchmarks.tune.exactness import Exactness, allowed
from benchmarks.tune.results import (
    AUTOTUNE,
    EQUAL_RATIO,
    HEURISTIC,
    LEAST_ROUNDS,
    NAIVE,
    SESSION,
    Candidate,
    Limits,
    Say,
    Tuned,
    choose,
    name_of,
    rates_of,
    rounds_within,
    simplicity,
    undecided,
)
from pipeline import ImageSource, PipelineConfig
from pipeline.config import AUTO
from pipeline.cost_model import Consumer, Prediction, StageCost, StageKey, candidates, kind_of, predict, stages_of
from pipeline.prepared import bytes_of
from profiles import Device, clock
from profiles.provenance import usable_cores

# Candidates that are measured, beside the three bars.
SHORTLIST = 5
# Where fewer rounds have not decided which is the fastest: so many more, of those alone that may be.
_DECIDING_ROUNDS = 8


@dataclass(slots=True, kw_only=True)
class _Ranked:
    """A candidate with what is predicted of it; `exactness` once it was compared."""

    config: PipelineConfig
    prediction: Prediction
    exactness: Exactness | None = None


class Tuner:
    """One search.

    Args:
      source: all images.
      model: its name.
      device: what trains.
      base: gives batch size, augmentation and seed.
      out: where the child's log goes if something fails.
      say: called with what is going on.
      space: configs to choose from; all candidates unless given.
    """

    def __init__(
        self,
        source: ImageSource,
        model: str,
        device: Device,
        base: PipelineConfig,
        limits: Limits,
        out: Path,
        say: Say,
        space: Callable[[PipelineConfig], Iterator[PipelineConfig]] | None = None,
    ) -> None:
        self._source = source
        self._source_bytes = bytes_of(source)
        self._model = model
        self._device = device
        self._limits = limits
        self._say = say
        self._space = space or self._all
        self._base = base
        self._cores = usable_cores()
        first = Job(variant=AUTOTUNE, config=base, model=model)
        self._group = Group(device, source, [first], out / "tune.log", {}, SESSION)
        self._names: dict[Job, tuple[str, _Ranked]] = {}
        self._order = random.Random()

    def _all(self, base: PipelineConfig) -> Iterator[PipelineConfig]:
        scales = self._source.formats == ("JPEG",)
        return candidates(base, cores=self._cores, accelerator=self._device.kind == "gpu", scales=scales)

    def close(self) -> None:
        self._group.close()

    def kill(self) -> None:
        self._group.kill()

    def search(self) -> Tuned:
        """Searches.

        Raises:
          UserError: if the device is not there, the model cannot be used, or nothing could be measured.
        """
        began_ns = clock.now_ns()
        try:
            self._say("opening the model")
            self._group.open()
            base = replace(self._base, image_size=self._group.models[self._model].image_size)
            self._say("measuring the stages' costs")
            space = list(self._space(base))
            bars = _bars(base, self._cores)
            keys = dict.fromkeys(key for config in (*bars.values(), *space) for key, _ in stages_of(config))
            costs, consumer = self._group.ask("stage_costs", tuple(keys), base, self._model)
            rejected: Counter[str] = Counter()
            ranked = self._rank(space, costs, consumer, rejected)
            chosen = self._shortlist(ranked, base, rejected)
            jobs = {name: self._predicted(config, costs, consumer) for name, config in bars.items()}
            jobs |= {name_of(one.config): one for one in chosen}
            self._measure(jobs, began_ns)
            return self._judge(costs, consumer, len(space), rejected, began_ns)
        except JobRefused as error:
            raise UserError(f"{self._device.name}: {error}", exit_code=3) from error
        except ChildDied as error:
            raise UserError(f"{self._device.name}: {error}. See {self._group.log}.", exit_code=3) from error

    def _predicted(self, config: PipelineConfig, costs: dict[StageKey, StageCost], consumer: Consumer) -> _Ranked:
        prediction = predict(
            config,
            costs,
            consumer,
            cores=self._cores,
            images=self._source.images,
            source_bytes=self._source_bytes,
        )
        return _Ranked(config=config, prediction=prediction)

    def _rank(
        self,
        space: Sequence[PipelineConfig],
        costs: dict[StageKey, StageCost],
        consumer: Consumer,
        rejected: Counter[str],
    ) -> list[_Ranked]:
        """Returns what the limits allow, the best of each kind, fastest first and the simpler first among equals."""
        best: dict[PipelineConfig, _Ranked] = {}
        for config in space:
            if any(key not in costs for key, _ in stages_of(config)):
                rejected["not to be had from this source"] += 1
                continue
            one = self._predicted(config, costs, consumer)
            if one.prediction.memory_bytes > self._limits.memory_bytes:
                rejected["more memory than --memory-limit"] += 1
            elif one.prediction.disk_bytes > self._limits.disk_bytes:
                rejected["more disk than --disk-limit"] += 1
            else:
                kind = kind_of(config)
                if kind not in best or _order(one) < _order(best[kind]):
                    best[kind] = one
        rejected["predicted slower than another of its kind"] = len(space) - rejected.total() - len(best)
        return sorted(best.values(), key=_order)

    def _shortlist(self, ranked: list[_Ranked], base: PipelineConfig, rejected: Counter[str]) -> list[_Ranked]:
        """Returns the first few whose images are exact enough; only those are compared that are in question."""
        reference = replace(base, loader="tf_data", augment_with="tf_ops", augment_at="element")
        chosen: list[_Ranked] = []
        for place, one in enumerate(ranked):
            if len(chosen) == SHORTLIST:
                rejected["predicted slower"] += len(ranked) - place
                break
            widest = "distribution"  # of layers that draw for themselves
            if not one.config.augment_with.startswith("keras_"):
                self._say(f"comparing pixels: {name_of(one.config)}")
                try:
                    one.exactness = self._group.ask("exactness", one.config, reference)
                except JobRefused as error:
                    rejected[f"cannot be built: {error}"] += 1
                    continue
                widest = one.exactness.name
            if allowed(widest, self._limits.exactness):
                chosen.append(one)
            else:
                rejected[f"images are of class {widest}, --exactness is {self._limits.exactness}"] += 1
        return chosen

    def _measure(self, jobs: dict[str, _Ranked], began_ns: int) -> None:
        group = self._group
        for first in group.jobs:
            group.retire(first)
        for name, one in jobs.items():
            self._say(f"warming up {name}")
            job = Job(variant=name, config=one.config, model=self._model)
            self._names[job] = (name, one)
            group.add(job)
        number = 0
        for number in rounds_within(self._limits.budget_s, began_ns):
            self._say(f"round {number + 1}")
            self._round(number, loader=number < LEAST_ROUNDS)
        self._decide(number + 1)

    @property
    def _failed(self) -> tuple[tuple[str, str], ...]:
        """Candidates that could not be measured, and why."""
        return tuple((one.label, one.reason) for one in self._group.left_out if one.job in self._names)

    def _decide(self, rounds: int) -> None:
        """Measures those further between which few rounds decide nothing.

        Slow models give few rounds in the budget, and the interval of few rounds is as wide as they are apart.
        """
        group, subjects = self._group, {one.name for one in undecided(self._candidates())}
        if rounds >= _DECIDING_ROUNDS or not subjects:
            return
        for job in group.jobs:
            if self._names[job][0] not in subjects:
                group.retire(job)
        for further in range(rounds, rounds + _DECIDING_ROUNDS):
            self._say(f"round {further + 1}, between {len(subjects)}")
            self._round(further, loader=False)

    def _round(self, number: int, *, loader: bool) -> None:
        """Measures one round of training."""
        run_round(self._group.turns(loader=loader, model_alone=False), number, self._order)

    def _candidates(self) -> tuple[Candidate, ...]:
        found = []
        failed = {one.job for one in self._group.left_out}
        for job, (name, one) in self._names.items():
            if job in failed or job not in self._group.measured:
                continue
            samples = self._group.measured[job].samples
            found.append(
                Candidate(
                    name=name,
                    config=replace(one.config, image_size=self._group.measured[job].facts.config.image_size),
                    prediction=one.prediction,
                    exactness=one.exactness,
                    epoch_images_per_sec=rates_of(samples, "train", self._source.images),
                    loader_images_per_sec=rates_of(samples, "loader", self._source.images),
                    again_images_per_sec=rates_of(samples, "again", self._source.images),
                )
            )
        return tuple(found)

    def _judge(
        self,
        costs: dict[StageKey, StageCost],
        consumer: Consumer,
        predicted: int,
        rejected: Counter[str],
        began_ns: int,
    ) -> Tuned:
        measured = self._candidates()
        if not measured:
            raise UserError("; ".join(f"{name}: {reason}" for name, reason in self._failed), exit_code=3)
        chosen = choose(measured)
        if chosen.name != AUTOTUNE:
            measured, chosen = self._again(chosen.name)
        unordered, prepare_s = self._price_of_order(chosen), 0.0
        if chosen.config.storage != "files" or chosen.config.cache == "disk":
            per_image_s = self._group.ask("seconds_to_prepare", chosen.config)
            prepare_s = per_image_s * self._source.images
        return Tuned(
            chosen=chosen,
            measured=measured,
            costs=costs,
            consumer=consumer,
            predicted=predicted,
            rejected=+rejected,
            failed=self._failed,
            unordered=unordered,
            prepare_s=prepare_s,
            seconds=(clock.now_ns() - began_ns) / 1e9,
        )

    def _again(self, name: str) -> tuple[tuple[Candidate, ...], Candidate]:
        """Measures the chosen one and AUTOTUNE in rounds that had no say in the choice; AUTOTUNE may stay.

        The fastest of many has had luck as well: rounds that chose it say too much of it.

        Returns:
          All candidates, and the chosen one.
        """
        group, rivals = self._group, (name, AUTOTUNE)
        self._say(f"{name} and {AUTOTUNE} again")
        for job in group.jobs:
            if self._names[job][0] not in rivals:
                group.retire(job)
        failed = {left_out.job for left_out in group.left_out}
        for job, (rival, _) in self._names.items():
            if rival in rivals and job not in group.jobs and job in group.measured and job not in failed:
                group.add(job)
        turns = [Turn(group=group, of=job, window="again") for job in group.jobs]
        for number in range(_DECIDING_ROUNDS):
            run_round(turns, number, self._order)
        measured = self._candidates()
        by_name = {one.name: one for one in measured}
        chosen, incumbent = by_name.get(name), by_name.get(AUTOTUNE)
        again = chosen.again_against(incumbent) if chosen is not None and incumbent is not None else None
        confirmed = again is not None and again[1] is not None and again[1][0] > 1
        stays = incumbent if incumbent is not None and not confirmed else chosen
        return measured, stays or measured[0]

    def _price_of_order(self, chosen: Candidate) -> tuple[Candidate, Candidate] | None:
        """Measures the chosen pipeline beside itself with elements in whatever order they are done."""
        if chosen.config.workers == 1:
            return None
        self._say("the price of a fixed order")
        group = self._group
        kept, ranked = next((job, one) for job, (name, one) in self._names.items() if name == chosen.name)
        for job in group.jobs:
            if job != kept:
                group.retire(job)
        if kept not in group.jobs:  # a simpler one as fast as the fastest may have been retired before
            group.add(kept)
        group.measured[kept].samples.clear()
        any_order = replace(ranked, config=replace(ranked.config, deterministic=False))
        free = Job(variant="any order", config=any_order.config, model=self._model)
        self._names[free] = (free.variant, any_order)
        group.add(free)
        for number in range(LEAST_ROUNDS):
            self._round(number, loader=True)
        both = {one.name: one for one in self._candidates()}
        return (both[free.variant], both[chosen.name]) if free in group.jobs and kept in group.jobs else None


def _bars(base: PipelineConfig, cores: float) -> dict[str, PipelineConfig]:
    """Returns the pipelines that people have: as first written, with as many workers as cores, and with AUTOTUNE.

    The first two have constants only, and are frozen like the candidates: either may be what the tuner returns.
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


def _order(one: _Ranked) -> tuple[float, float, tuple[int, ...]]:
    """Sorts by predicted rate, then by what the loader takes of the cores, both in steps; then by simplicity.

    Where the model sets the rate, a loader that takes less of the cores still leaves it more of them.
    """
    faster, leaner = one.prediction.images_per_sec, 1 / one.prediction.loader_us_per_image
    steps = [-round(math.log(value) / math.log1p(EQUAL_RATIO)) for value in (faster, leaner)]
    return steps[0], steps[1], simplicity(one.config)
