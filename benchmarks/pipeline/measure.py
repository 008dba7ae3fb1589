"""One main job: who is measured when, and what is written of it."""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from PIL import Image
from rich.console import Console
from rich.progress import Progress, TaskID

from benchmarks.lab.backend import unread_gpu
from benchmarks.lab.child import ChildDied, Group, JobRefused, LeftOut, Measured, Turn, run_round
from benchmarks.lab.options import UserError
from benchmarks.lab.session import Job
from benchmarks.pipeline.plan import Request
from pipeline import ImageSource
from pipeline.config import config_to_dict
from pipeline.sources import Changes, FolderWatch
from pipeline.variants import other_work
from profiles import Device, provenance
from profiles.machine import Recorder, Trace, during, spans
from profiles.measure import LOADER_ROUNDS
from profiles.provenance import Throttling, throttled_ratio
from profiles.report import document, print_stages, text
from profiles.results import Contender, Evidence, Result, Verdict, evidence_of, judge, summarise
from profiles.stage_table import AnnotatedFunction, StageTable
from profiles.statistics import median

BASELINE = "generator"
# Photos whose size stands for that of all, spread over the list.
_SIZED_PHOTOS = 64


class Run:
    """Measures what a request asks for, in rounds over all variants, models and devices."""

    def __init__(
        self, request: Request, source: ImageSource, devices: tuple[Device, ...], progress: Progress, errors: Console
    ) -> None:
        self._request = request
        self._source = source
        self._progress = progress
        self._errors = errors
        self._created = document.now()
        self.verdicts: list[Verdict] = []
        self._recorder = Recorder()
        self._stages: dict[tuple[Device, str, str], tuple[StageTable, tuple[AnnotatedFunction, ...]]] = {}
        self._before_rounds: tuple[Throttling, ...] = ()
        self._throttled_ratio: float | None = None
        self._watch = FolderWatch(source)
        self._changes = Changes()
        self._groups = [group for device in devices for group in self._groups_of(device)]

    def _groups_of(self, device: Device) -> list[Group]:
        """Returns the jobs of a device: those with worker processes in a child of their own, since they fork."""
        jobs = [
            Job(variant=variant, config=config, model=model, cold=self._request.cold)
            for model in self._request.models
            for variant, config in self._request.variants.items()
        ]
        name = device.name.replace(":", "-")
        images: dict[tuple[str, int], int] = {}
        return [
            Group(device, self._source, some, self._request.out / f"{name}{'-forks' * forks}.log", images)
            for forks in (False, True)
            if (some := [job for job in jobs if job.config.use_multiprocessing == forks])
        ]

    def measure(self) -> None:
        """Opens, warms up and measures everything.

        Raises:
          UserError: if a device that was asked for is not there (exit code 3), or a model cannot be used.
        """
        jobs = sum(len(group.jobs) for group in self._groups)
        loader_rounds = min(LOADER_ROUNDS, self._request.rounds)
        windows = self._request.rounds * (1 + self._request.cold) + loader_rounds
        order = random.Random()
        task = self._progress.add_task("starting", total=jobs * (1 + windows))

        def done(name: str) -> None:
            self._progress.update(task, advance=1, description=name, refresh=True)

        def begin(turn: Turn, job: Job) -> None:
            recorder.mark(_window_name(turn.window, job.variant, job.model, turn.group.device.name))

        self._progress.refresh()
        with self._recorder as recorder:
            recorder.phase("warm-up")
            for group in list(self._groups):
                self._open(group)
            self._warn_of_image_sizes()
            for group in self._groups:
                for job in group.jobs:
                    group.prepare(job)
                    done(job.variant)
            self._before_rounds = Throttling.now()
            for number in range(self._request.rounds):
                recorder.phase(f"round {number + 1}")
                loader = number < loader_rounds
                turns = [turn for group in self._groups for turn in group.turns(loader=loader)]
                run_round(turns, number, order, done=done, begin=begin)
            recorder.phase("again")
            self._measure_again(task, order, begin)
            recorder.phase("stages")
            self._take_apart(task)
        self._progress.remove_task(task)

    def _measure_again(self, task: TaskID, order: random.Random, begin: Callable[[Turn, Job], None]) -> None:
        """Measures those whose speed-ups are told once more, in rounds that had no say in who is the fastest.

        The fastest of many has had luck as well: rounds that chose it say too much of it.
        """
        verdicts = judge([one for one in self._results() if one.contender.page_cache == "warm"])
        told = {id(one) for one in text.spoken_of([verdict.result for verdict in verdicts], BASELINE)}
        names = {
            (verdict.result.contender.device, verdict.result.contender.model, name)
            for verdict in verdicts
            if id(verdict.result) in told
            for change in verdict.told
            for name in (verdict.result.contender.variant, change.change)
        }
        turns = [
            Turn(group=group, of=job, window="again")
            for group in self._groups
            for job in group.jobs
            if (group.device, job.model, job.variant) in names
        ]
        (total,) = (one.total or 0 for one in self._progress.tasks if one.id == task)
        self._progress.update(task, total=total + self._request.rounds * len(turns))

        def done(name: str) -> None:
            self._progress.update(task, advance=1, description=f"{name} again", refresh=True)

        for number in range(self._request.rounds, 2 * self._request.rounds):
            run_round(turns, number, order, done=done, begin=begin)

    def _take_apart(self, task: TaskID) -> None:
        """Takes loaders apart, after all windows: every one, or the baseline's and the fastest of each device."""
        results = [one for one in self._results() if one.contender.page_cache == "warm"]
        chosen = results if self._request.stages else text.spoken_of(results, BASELINE)
        names = [(one.contender.device, one.contender.variant, one.contender.model) for one in chosen]
        for group in self._groups:
            for job in group.jobs:
                key = (group.device, job.variant, job.model)
                if key in names:
                    self._progress.update(task, description=f"stages of {job.variant}", refresh=True)
                    self._stages[key] = group.stages(job, self._request.lines)

    def _open(self, group: Group) -> None:
        try:
            group.open()
        except JobRefused as error:
            missing = group.device.kind == "gpu" and not group.backend
            if missing and self._request.devices is None:
                self._errors.print(f"left out gpu: {error}", style="yellow", markup=False, highlight=False)
                group.kill()
                self._groups.remove(group)
                return
            raise UserError(f"{group.device.name}: {error}", exit_code=3 if missing else 2) from error
        except ChildDied as error:
            raise UserError(f"{group.device.name}: {error}. See {group.log}.", exit_code=3) from error

    def _warn_of_image_sizes(self) -> None:
        """Warns where the rate of a named accelerator belongs to images of another size than the model's."""
        lines = {
            f"{group.device.name} is a rate for {size[0]}x{size[1]} images; {model} takes "
            f"{facts.image_size[0]}x{facts.image_size[1]}.": None
            for group in self._groups
            for model, facts in group.models.items()
            if (size := group.device.image_size) is not None and size != facts.image_size
        }
        for line in lines:
            self._errors.print(line, style="yellow", markup=False, highlight=False)

    def kill(self) -> None:
        for group in self._groups:
            group.kill()

    def close(self) -> None:
        for group in self._groups:
            group.close()

    def left_out(self) -> list[tuple[str, str]]:
        """Returns who has no result, and why."""
        return [(f"{one.label} ({one.job.model}, {one.device.name})", one.reason) for one in self._all_left_out()]

    def _all_left_out(self) -> list[LeftOut]:
        return [one for group in self._groups for one in group.left_out]

    def write(self, *, complete: bool) -> bool:
        """Writes results.json and report.html of what there is; returns whether there is anything."""
        self._changes = self._watch.changes()
        results = [self._flagged(result) for result in self._results()]
        if not results:
            return False
        self._throttled_ratio = throttled_ratio(self._before_rounds, Throttling.now())
        self.verdicts = self._judged(results)
        texts: dict[tuple[str, str], list[str]] = {}
        for verdict in self.verdicts:
            one = verdict.result.contender
            group = [v for v in self.verdicts if _key(v.result) == _key(verdict.result)]
            texts[one.model, one.device.name] = text.verdict_lines(group, BASELINE)
        document.write(self._request.out, self._document(results, complete), texts)
        return True

    def _flagged(self, result: Result) -> Result:
        """Returns the result, with a flag if the photos are not what they were when the run began."""
        if not self._changes:
            return result
        return replace(result, flags=(*result.flags, f"data changed during the run: {self._changes.sentence()}"))

    def print(self, console: Console) -> None:
        for group in self._groups[:1]:
            for model, facts in group.models.items():
                console.print(
                    f"{model}: {facts.parameters:,} parameters, {facts.optimizer}, {facts.loss}; "
                    f"{self._source.images:,} images of {len(self._source.class_names)} classes "
                    f"from {self._source.name}",
                    highlight=False,
                    markup=False,
                )
        text.print_results(console, self.verdicts, baseline=BASELINE, left_out=self.left_out())
        for line in unread_gpu((group.device for group in self._groups), self._recorder.trace):
            console.print(line, style="dim", highlight=False)
        for one in (verdict.result for verdict in self.verdicts):
            if one.stages is not None:
                contender = one.contender
                print_stages(console, f"{contender.variant} ({contender.model}, {contender.device.name})", one.stages)

    def _results(self) -> list[Result]:
        everything = [
            sample
            for group in self._groups
            for samples in (*group.ceilings.values(), *(one.samples for one in group.measured.values()))
            for sample in samples
        ]
        if not everything:
            return []
        typical_canary_ns = median([sample.canary_ns for sample in everything])
        results = []
        for group in self._groups:
            # A variant that failed later has no result: it stands among those left out.
            for measured in (one for one in group.measured.values() if one.job in group.jobs):
                samples = group.ceilings.get(measured.facts.ceiling, []) + measured.samples
                windows = {sample.window for sample in samples}
                for page_cache in ("warm", "cold") if measured.cold and "cold" in windows else ("warm",):
                    if {"train", "resident"} <= windows:
                        contender = self._contender(group, measured, page_cache)
                        result = summarise(contender, samples, typical_canary_ns=typical_canary_ns)
                        key = (group.device, measured.job.variant, measured.job.model)
                        if page_cache == "warm" and key in self._stages:
                            stages, lines = self._stages[key]
                            result = replace(result, stages=stages, lines=lines)
                        results.append(result)
        devices = list(dict.fromkeys(group.device for group in self._groups))
        variants = list(self._request.variants)

        def place(result: Result) -> tuple[int, int, int, bool]:
            one = result.contender
            return (
                devices.index(one.device),
                self._request.models.index(one.model),
                variants.index(one.variant),
                one.page_cache == "cold",
            )

        return sorted(results, key=place)

    def _contender(self, group: Group, measured: Measured, page_cache: str) -> Contender:
        facts, model = measured.facts, group.models[measured.job.model]
        return Contender(
            variant=measured.job.variant,
            model=measured.job.model,
            device=group.device,
            batch_size=facts.config.batch_size,
            config=config_to_dict(facts.config),
            training={
                "loss": model.loss,
                "optimizer": model.optimizer,
                "jit_compile": facts.jit_compile,
                "parameters": model.parameters,
                "workers_asked": facts.config.workers,
                "workers_effective": facts.workers,
                "images_per_window_epoch": facts.images,
            },
            work=other_work(facts.config),
            images=self._source.images,
            buffered_batches=facts.buffered_batches,
            notes=facts.notes,
            page_cache=page_cache,
            storage=facts.storage if page_cache == "cold" else None,
        )

    def _judged(self, results: list[Result]) -> list[Verdict]:
        cores, pixels = provenance.usable_cores(), _mean_pixels(self._source)
        facts = {
            (group.device, one.job.variant, one.job.model): one.facts
            for group in self._groups
            for one in group.measured.values()
        }

        def evidence(result: Result) -> Evidence:
            one = result.contender
            known = facts[one.device, one.variant, one.model]
            decodes_files = known.config.storage in ("files", "records") and known.config.cache == "none"
            decodes_all = known.config.decode == "full" and decodes_files
            return replace(
                evidence_of(result),
                cores=cores,
                frozen_by_cache=known.frozen_by_cache,
                throttled_ratio=self._throttled_ratio,
                decoded_pixels=pixels if decodes_all else None,
                wanted_pixels=math.prod(known.config.image_size),
            )

        return judge(results, evidence)

    def _document(self, results: list[Result], complete: bool) -> dict[str, Any]:
        backend = next((group.backend for group in self._groups if group.backend), {})
        trace = self._recorder.trace
        content = document.document(
            [{**result.to_dict(), "machine": _machine(trace, result)} for result in results],
            self.verdicts,
            created=self._created,
            complete=complete,
            provenance={**provenance.machine(), **backend, "throttled_ratio": self._throttled_ratio},
            settings={"rounds": self._request.rounds, "data": provenance.without_folder(self._request.data)},
            dataset=self._source.to_dict() | self._changes.to_dict(),
            left_out=[
                document.left_out_row(
                    one.job.variant, one.job.model, one.device.name, one.reason, page_cache=one.page_cache
                )
                for one in self._all_left_out()
            ],
        )
        return {**content, "telemetry": trace.to_dict()}


def _mean_pixels(source: ImageSource) -> float | None:
    """Returns the pixels of a mean photo, from the headers of some; None where nothing is decoded."""
    sizes = []
    for path in source.take(_SIZED_PHOTOS).paths:
        with contextlib.suppress(OSError), Image.open(path) as photo:  # it may be gone by now
            sizes.append(photo.width * photo.height)
    return sum(sizes) / len(sizes) if sizes else None


def _window_name(window: str, variant: str, model: str, device: str) -> str:
    return f"{window}: {variant}, {model}, {device}"


def _machine(trace: Trace, result: Result) -> dict[str, float | None]:
    """Returns how busy cores and GPU were in the windows that the result is about."""
    one = result.contender
    window = result.explained[0].window
    return asdict(during(trace, spans(trace, _window_name(window, one.variant, one.model, one.device.name))))


def _key(result: Result) -> tuple[str, str]:
    return result.contender.model, result.contender.device.name
