"""Measures what the main job asks for: in which order subjects are measured, and the document that is written."""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

from PIL import Image
from rich.console import Console
from rich.progress import Progress, TaskID

from unstall.benchmarks.lab.child import ChildDied, JobRefused
from unstall.benchmarks.lab.command import devices_here, read_source, say_data
from unstall.benchmarks.lab.options import UserError
from unstall.benchmarks.lab.rounds import MOST_IMAGES, QUICK_IMAGES, Group, MeasuredJob, Turn, run_round
from unstall.benchmarks.lab.session import Job
from unstall.benchmarks.pipeline.plan import Plan
from unstall.pipeline import ImageSource
from unstall.pipeline.config import config_to_dict
from unstall.pipeline.sources import Changes, FolderWatch
from unstall.pipeline.variants import other_work
from unstall.profiles import Device, provenance
from unstall.profiles.machine import Recorder, storage_of
from unstall.profiles.measure import LOADER_ROUNDS
from unstall.profiles.provenance import Throttling, throttled_ratio, usable_cores
from unstall.profiles.report import Document, LeftOut, measurements, now, terminal
from unstall.profiles.report.measurements import Measurement, MeasurementDocument, Measurements
from unstall.profiles.results import Facts, Flag, FlagKind, Subject, Verdict
from unstall.profiles.samples import Sample
from unstall.profiles.stage_table import AnnotatedFunction, StageTable
from unstall.profiles.statistics import LEAST_ROUNDS

BASELINE = "generator"
# So many photos, spread over the list, are opened to estimate the mean size of all.
_SIZED_PHOTOS = 64


def open_run(plan: Plan, progress: Progress, errors: Console) -> Run:
    """Reads the images, and gets ready to measure."""
    source = read_source(plan.data, progress, errors, skip_list=plan.skip_list)
    return Run(plan, source, plan.devices or devices_here(), progress, errors)


def open_groups(groups: list[Group], errors: Console, *, chosen: bool) -> None:
    """Opens the models of each group; takes those of a GPU that is missing from the list unless it was asked for.

    Args:
      chosen: whether the devices were asked for.
    Raises:
      UserError: if a device that was asked for is not there (exit code 3), or a model cannot be used.
    """
    for group in list(groups):
        if group not in groups:  # its device was left out with a group before
            continue
        try:
            group.open()
        except JobRefused as error:
            missing = group.device.kind == "gpu" and not group.backend
            if missing and not chosen:
                errors.print(f"left out gpu: {error}", style="yellow")
                for unusable in [other for other in groups if other.device == group.device]:
                    unusable.kill()
                    groups.remove(unusable)
                continue
            raise UserError(f"{group.device.name}: {error}", exit_code=3 if missing else 2) from error
        except ChildDied as error:
            raise UserError(f"{group.device.name}: {error}. See {group.log}.", exit_code=3) from error


class Run:
    """Measures what a plan asks for, in rounds over all variants, models and devices."""

    def __init__(
        self, plan: Plan, source: ImageSource, devices: tuple[Device, ...], progress: Progress, errors: Console
    ) -> None:
        self._plan = plan
        self._source = source
        self._progress = progress
        self._errors = errors
        self._created = now()
        self._provenance = provenance.machine()
        self._mean_pixels = _mean_pixels(source)
        self._recorder = Recorder()
        self._stages: dict[tuple[Device, str, str], tuple[StageTable, tuple[AnnotatedFunction, ...]]] = {}
        self._before_rounds: tuple[Throttling, ...] = ()
        storage = None if source.root is None else storage_of(source.root)
        self._storage = {} if storage is None else {"storage": asdict(storage)}
        self._watch = FolderWatch(source)
        self._changes = Changes()
        self._rounds = 0
        self._groups = [group for device in devices for group in self._groups_of(device)]

    def _groups_of(self, device: Device) -> list[Group]:
        """Returns the jobs of a device: those with worker processes in a child of their own, since they fork."""
        jobs = [
            Job(variant=variant, config=config, model=model, cold=self._plan.cold)
            for model in self._plan.models
            for variant, config in self._plan.variants.items()
        ]
        name = device.name.replace(":", "-")
        images: dict[tuple[str, int], int] = {}
        return [
            Group(
                device,
                self._source,
                some,
                self._plan.out / f"{name}{'-forks' * forks}.log",
                images,
                most_images=QUICK_IMAGES if self._plan.ends_early else MOST_IMAGES,
                paths=self._plan.models,
            )
            for forks in (False, True)
            if (some := [job for job in jobs if job.config.use_multiprocessing == forks])
        ]

    def measure(self, after_round: Callable[[], object]) -> None:
        """Opens, warms up and measures everything.

        Args:
          after_round: called whenever there are new samples to write.
        Raises:
          UserError: if a device that was asked for is not there (exit code 3), or a model cannot be used.
        """
        jobs = sum(len(group.jobs) for group in self._groups)
        # Where rounds may end early, the loader alone is measured of those whose speed-up the report states.
        loader_rounds = min(LOADER_ROUNDS, self._plan.rounds) if not self._plan.ends_early else 0
        windows = self._plan.rounds * (1 + self._plan.cold) + loader_rounds
        order = random.Random()
        task = self._progress.add_task("starting", total=jobs * (1 + windows))

        def done(name: str) -> None:
            self._progress.update(task, advance=1, description=name, refresh=True)

        def begin(turn: Turn, job: Job) -> None:
            recorder.mark(measurements.window_mark(turn.window, job.variant, job.model, turn.group.device))

        self._progress.refresh()
        try:
            with self._recorder as recorder:
                recorder.phase("warm-up")
                open_groups(self._groups, self._errors, chosen=self._plan.devices is not None)
                self._warn_of_image_sizes()
                say_data(self._errors, self._source)
                for group in self._groups:
                    for job in group.jobs:
                        group.prepare(job)
                        done(job.variant)
                self._before_rounds = Throttling.now()
                for number in range(self._plan.rounds):
                    recorder.phase(f"round {number + 1}")
                    loader = number < loader_rounds
                    turns = [turn for group in self._groups for turn in group.turns(loader=loader)]
                    run_round(turns, number, order, done=done, begin=begin)
                    self._rounds = number + 1
                    after_round()
                    if self._plan.ends_early and self._rounds >= LEAST_ROUNDS and is_decided(self._warm_verdicts()):
                        break
                recorder.phase("again")
                self._measure_again(task, order, begin)
                recorder.phase("stages")
                self._take_apart(task)
        finally:
            self._changes = self._watch.changes()
        self._progress.remove_task(task)

    def _measure_again(self, task: TaskID, order: random.Random, begin: Callable[[Turn, Job], None]) -> None:
        """Measures again the subjects whose speed-ups the report states, in rounds that do not choose the fastest.

        The fastest of many owes its place to noise as well, so that the rounds that chose it overestimate its rate.
        """
        verdicts = self._warm_verdicts()
        described_results = {
            id(result) for result in terminal.described_results([verdict.result for verdict in verdicts], BASELINE)
        }
        names = {
            (verdict.result.subject.device, verdict.result.subject.model, name)
            for verdict in verdicts
            if id(verdict.result) in described_results
            for advice in verdict.printed_advice
            for name in (verdict.result.subject.variant, advice.change)
        }
        turns = [
            Turn(group=group, of=job, window="again")
            for group in self._groups
            for job in group.jobs
            if (group.device, job.model, job.variant) in names
        ]
        loaders = [replace(turn, window="loader") for turn in turns] if self._plan.ends_early else []
        (total,) = (bar.total or 0 for bar in self._progress.tasks if bar.id == task)
        rounds = LEAST_ROUNDS if self._plan.ends_early else self._rounds
        self._progress.update(task, total=total + rounds * len(turns) + len(loaders))

        def done(name: str) -> None:
            self._progress.update(task, advance=1, description=f"{name} again", refresh=True)

        for number in range(rounds):
            more = loaders if number == 0 else []
            run_round([*turns, *more], self._rounds + number, order, done=done, begin=begin)

    def _take_apart(self, task: TaskID) -> None:
        """Measures the stages of loaders, after all windows.

        With --stages those of all loaders; else those of the baseline, and of the fastest unless rounds may end early.
        """
        results = [verdict.result for verdict in self._warm_verdicts()]
        chosen = results if self._plan.stages else terminal.described_results(results, BASELINE)
        if self._plan.ends_early and not self._plan.stages:
            chosen = [result for result in chosen if result.subject.variant == BASELINE] or chosen[:1]
        names = [(result.subject.device, result.subject.variant, result.subject.model) for result in chosen]
        for group in self._groups:
            for job in group.jobs:
                key = (group.device, job.variant, job.model)
                if key in names:
                    self._progress.update(task, description=f"stages of {job.variant}", refresh=True)
                    self._stages[key] = group.stages(job, self._plan.lines)

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
            self._errors.print(line, style="yellow")

    def kill(self) -> None:
        for group in self._groups:
            group.kill()

    def close(self) -> None:
        for group in self._groups:
            group.close()

    def _warm_verdicts(self) -> list[Verdict]:
        verdicts = measurements.derive(self.document(complete=False))
        return [verdict for verdict in verdicts if verdict.result.subject.page_cache == "warm"]

    def document(self, *, complete: bool) -> MeasurementDocument:
        """Returns what was measured so far."""
        backends = [group.backend for group in self._groups if group.backend]
        gpus = list(dict.fromkeys(gpu for backend in backends for gpu in backend.get("gpus", ())))
        left_out = [left_out for group in self._groups for left_out in group.left_out]
        return Document(
            command=measurements.PIPELINE,
            created=self._created,
            complete=complete,
            provenance={**self._provenance, **(backends[0] | {"gpus": gpus} if backends else {})},
            plan=measurements.Plan(
                rounds=self._rounds, data=provenance.without_folder(self._plan.data), baseline=BASELINE
            ),
            dataset=self._source.to_dict() | self._changes.to_dict() | self._storage,
            samples=self._measurements(),
            left_out=tuple(
                LeftOut(who=f"{subject.label} ({subject.job.model}, {subject.device.name})", reason=subject.reason)
                for subject in left_out
            ),
            telemetry=self._recorder.trace,
        )

    def _measurements(self) -> Measurements:
        """Returns the subjects in the order in which they were asked for, and their samples, some of them shared."""
        windows: dict[str, tuple[Sample, ...]] = {}
        subjects: list[Measurement] = []
        for group in self._groups:
            # A variant that failed after its first rounds has no result: it is in `left_out`.
            for measured in (subject for subject in group.measured.values() if subject.job in group.jobs):
                alone = group.ceilings.get(measured.facts.ceiling, [])
                names = {sample.window for sample in (*alone, *measured.samples)}
                if not {"train", "resident"} <= names:
                    continue
                # A device may have two children, and each of them measures the model alone: the log's name tells which.
                of_model = f"{measured.facts.ceiling}, {group.log.stem}"
                of_subject = f"{measured.job.variant}, {measured.job.model}, {group.device.name}"
                windows |= {of_model: tuple(alone), of_subject: tuple(measured.samples)}
                rows = ("warm", "cold") if measured.cold and "cold" in names else ("warm",)
                subjects += [self._measurement(group, measured, row, (of_model, of_subject)) for row in rows]
        return Measurements(
            subjects=tuple(sorted(subjects, key=self._place)),
            windows=windows,
            throttled_ratio=throttled_ratio(self._before_rounds, Throttling.now()),
        )

    def _measurement(
        self, group: Group, measured: MeasuredJob, page_cache: str, windows: tuple[str, ...]
    ) -> Measurement:
        subject = self._subject(group, measured, page_cache)
        apart = self._stages.get((group.device, measured.job.variant, measured.job.model))
        if apart is None or page_cache == "cold":
            return Measurement(subject=subject, windows=windows)
        return Measurement(subject=subject, windows=windows, stages=apart[0], lines=apart[1])

    def _place(self, measurement: Measurement) -> tuple[int, int, int, bool]:
        """Returns where a subject stands in the report."""
        subject = measurement.subject
        devices = [group.device for group in self._groups]
        return (
            devices.index(subject.device),
            list(self._plan.models).index(subject.model),
            list(self._plan.variants).index(subject.variant),
            subject.page_cache == "cold",
        )

    def _subject(self, group: Group, measured: MeasuredJob, page_cache: str) -> Subject:
        facts, model = measured.facts, group.models[measured.job.model]
        config = facts.config
        decodes_files = config.storage in ("files", "records") and config.cache == "none"
        decodes_all = config.decode == "full" and decodes_files
        changed = (Flag(kind=FlagKind.DATA_CHANGED, text=self._changes.sentence()),) if self._changes else ()
        return Subject(
            variant=measured.job.variant,
            model=measured.job.model,
            device=group.device,
            batch_size=config.batch_size,
            config=config_to_dict(config),
            facts=Facts(
                loss=model.loss,
                optimizer=model.optimizer,
                jit_compile=facts.jit_compile,
                parameters=model.parameters,
                workers_asked=config.workers,
                workers_effective=facts.workers,
                images_per_window_epoch=facts.images,
            ),
            work=other_work(config),
            images=self._source.images,
            buffered_batches=facts.buffered_batches,
            notes=facts.notes,
            doubts=changed,
            page_cache=page_cache,
            storage=facts.storage if page_cache == "cold" else None,
            cores=usable_cores(),
            frozen_by_cache=facts.frozen_by_cache,
            decoded_pixels=self._mean_pixels if decodes_all else None,
            wanted_pixels=math.prod(config.image_size),
        )


def is_decided(verdicts: Sequence[Verdict]) -> bool:
    """Whether more rounds would tell nothing new: what limits the baseline is known, and which variant is the fastest.

    The latter is surely faster than the baseline, or the baseline is the fastest itself. Its gain is measured again, in
    rounds that this look at the results does not choose, so that ending early makes no gain look larger.

    Args:
      verdicts: on all variants of each model and device, of rounds so far.
    """
    baselines = [verdict for verdict in verdicts if verdict.result.subject.variant == BASELINE]
    for baseline in baselines:
        subject = baseline.result.subject
        rates = {
            verdict.result.subject.variant: verdict.result.epoch_images_per_sec
            for verdict in verdicts
            if (verdict.result.subject.model, verdict.result.subject.device) == (subject.model, subject.device)
        }
        fastest = max(rates, key=rates.__getitem__)
        surely_faster = {advice.change for advice in baseline.advice}
        if baseline.result.attribution.bound == "uncertain" or fastest not in (BASELINE, *surely_faster):
            return False
    return bool(baselines)


def _mean_pixels(source: ImageSource) -> float | None:
    """Returns the mean number of pixels of a photo, from the headers of some; None where no files are decoded."""
    sizes = []
    for path in source.take(_SIZED_PHOTOS).paths:
        with contextlib.suppress(OSError), Image.open(path) as photo:  # the file may have been deleted since the scan
            sizes.append(photo.width * photo.height)
    return sum(sizes) / len(sizes) if sizes else None
