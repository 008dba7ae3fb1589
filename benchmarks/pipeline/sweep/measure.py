"""Measures the places of a sweep in rounds, their windows interleaved; a process for each number of cores."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from unstall.benchmarks.lab.command import devices_here, read_source, say_data
from unstall.benchmarks.lab.rounds import Group, MeasuredJob, run_round
from unstall.benchmarks.lab.run import LabRun
from unstall.benchmarks.lab.session import Job
from unstall.benchmarks.pipeline.measure import open_groups
from unstall.benchmarks.pipeline.sweep.axes import AXES, Place
from unstall.benchmarks.pipeline.sweep.plan import Asked, Plan, Point
from unstall.benchmarks.pipeline.sweep.samples import MeasuredPlace, Measurements, SweepDocument
from unstall.pipeline import ImageSource
from unstall.pipeline.config import config_to_dict
from unstall.profiles import Device
from unstall.profiles.provenance import usable_cores
from unstall.profiles.report import LeftOut
from unstall.profiles.results import Facts, Subject
from unstall.profiles.samples import Sample

_SESSION = "benchmarks.pipeline.sweep.child:SweepSession"


def open_run(plan: Plan, progress: Progress, errors: Console) -> Run:
    """Reads the images, and gets ready to measure."""
    source = read_source(plan.data, progress, errors, skip_list=plan.skip_list)
    return Run(plan, source, plan.devices or devices_here(), progress, errors)


class Run(LabRun[Asked, Measurements]):
    """Measures what a plan asks for.

    Args:
      devices: a GPU that is missing is left out unless the plan names it.
    """

    command = "pipeline --sweep"

    def __init__(
        self, plan: Plan, source: ImageSource, devices: Sequence[Device], progress: Progress, errors: Console
    ) -> None:
        super().__init__(plan.asked, progress, source.to_dict())
        self._plan, self._source, self._errors = plan, source, errors
        self._devices = tuple(devices)
        # The places of each group, by their jobs.
        self._places: dict[Group, dict[Job, Place]] = {}
        images: dict[tuple[str, int], int] = {}
        self._groups = [group for device in devices for group in self._groups_of(device, images)]

    def _groups_of(self, device: Device, images: dict[tuple[str, int], int]) -> list[Group]:
        """Returns the jobs of a device: a process for each number of cores, and one for those that fork workers."""
        places = dict.fromkeys(
            point.place
            for point in self._asked.points
            if point.place is not None and why_not(point, device, self._source) is None
        )
        groups = []
        for cores, forks in dict.fromkeys((place.cores, place.config.use_multiprocessing) for place in places):
            some = [place for place in places if (place.cores, place.config.use_multiprocessing) == (cores, forks)]
            name = f"{device.name.replace(':', '-')}{f'-{cores}-cores' if cores else ''}{'-forks' * forks}.log"
            group = Group(
                device,
                self._source,
                [_job(place) for place in some],
                self._plan.out / name,
                images,
                _SESSION,
                paths={place.opened: self._plan.models[place.model] for place in some},
                arguments=(core_order()[:cores] if cores else None, {place.opened: place for place in some}),
            )
            self._places[group] = {_job(place): place for place in some}
            groups.append(group)
        return groups

    def measure(self, after_round: Callable[[], object]) -> None:
        """Opens, warms up and measures everything.

        Args:
          after_round: called after each round, to write the results so far.
        Raises:
          UserError: if a device that was asked for is not there (exit code 3), or a model cannot be used.
        """
        jobs = sum(len(group.jobs) for group in self._groups)
        task = self._progress.add_task("starting", total=jobs * (1 + 2 * self._asked.rounds))

        def done(name: str) -> None:
            self._progress.update(task, advance=1, description=name[:40], refresh=True)

        self._progress.refresh()
        open_groups(self._groups, self._errors, chosen=self._plan.devices is not None)
        say_data(self._errors, self._source)
        for group in self._groups:
            for job in group.jobs:
                group.prepare(job)
                done(job.variant)
        order = random.Random()
        for number in range(self._asked.rounds):
            turns = [turn for group in self._groups for turn in group.turns(loader=True)]
            run_round(turns, number, order, done=done)
            after_round()
        self._progress.remove_task(task)

    def samples(self) -> Measurements:
        places: list[MeasuredPlace] = []
        windows: dict[str, tuple[Sample, ...]] = {}
        for group in self._groups:
            for job, place in self._places[group].items():
                measured = group.measured.get(job)
                if measured is None or job not in group.jobs or not {"train", "loader"} <= _windows_of(measured):
                    continue
                # Each process measures the model alone: the log's name tells which.
                of_model = f"{measured.facts.ceiling}, {group.log.stem}"
                of_place = f"{place.name}, {group.log.stem}"
                windows |= {
                    of_model: tuple(group.ceilings.get(measured.facts.ceiling, ())),
                    of_place: tuple(measured.samples),
                }
                subject = self._subject(group, measured, place)
                places.append(MeasuredPlace(place=place, subject=subject, windows=(of_model, of_place)))
        return Measurements(places=tuple(places), windows=windows)

    def _subject(self, group: Group, measured: MeasuredJob, place: Place) -> Subject:
        facts = measured.facts
        return Subject(
            variant=place.variant,
            model=place.model,
            device=group.device,
            batch_size=facts.config.batch_size,
            config=config_to_dict(facts.config),
            facts=Facts(jit_compile=facts.jit_compile, parameters=group.models[place.opened].parameters),
            images=self._source.images,
            buffered_batches=facts.buffered_batches,
            notes=facts.notes,
            cores=place.cores or usable_cores(),
        )

    def left_out(self) -> list[LeftOut]:
        """Returns the points without a result: those that are impossible, and those whose place failed."""
        failed = {
            (group.device, self._places[group][left_out.job]): left_out.reason
            for group in self._groups
            for left_out in group.left_out
        }
        found = []
        for device in self._devices:
            for point in self._asked.points:
                reason = why_not(point, device, self._source)
                if reason is None and point.place is not None:
                    reason = failed.get((device, point.place))
                if reason is not None:
                    found.append(LeftOut(who=f"{point.name}, {device.name}", reason=reason))
        return found

    def document(self, *, complete: bool) -> SweepDocument:
        """Returns the document of what was measured so far, with the backend."""
        document = super().document(complete=complete)
        backends = [group.backend for group in self._groups if group.backend]
        gpus = list(dict.fromkeys(gpu for backend in backends for gpu in backend.get("gpus", ())))
        provenance = {**document.provenance, **(backends[0] | {"gpus": gpus} if backends else {})}
        return replace(document, provenance=provenance)

    def close(self) -> None:
        for group in self._groups:
            group.close()

    def kill(self) -> None:
        for group in self._groups:
            group.kill()


def why_not(point: Point, device: Device, source: ImageSource) -> str | None:
    """Returns why a point cannot be measured on a device; None if it can be tried."""
    if point.reason is not None or point.place is None:
        return point.reason
    if device.kind == "emulated" and not AXES[point.axis].emulated:
        return f"an emulated device computes nothing, and has no {point.axis}"
    if point.place.config.batch_size > source.images:
        return f"there are {source.images:,} images, too few for a batch"
    return None


def _job(place: Place) -> Job:
    return Job(variant=place.variant, config=place.config, model=place.opened)


def _windows_of(measured: MeasuredJob) -> set[str]:
    return {sample.window for sample in measured.samples}


def core_order(root: Path = Path("/sys/devices/system/cpu")) -> tuple[int, ...]:
    """Returns the CPUs that this process may use: one of each physical core first, then the second hardware threads.

    Two hardware threads of a core share its units. If they came first, any loader would seem to scale badly.

    Args:
      root: where Linux says which CPUs share a core.
    """
    if not hasattr(os, "sched_getaffinity"):
        return tuple(range(os.cpu_count() or 1))
    seen: Counter[str] = Counter()
    ranked = []
    for cpu in sorted(os.sched_getaffinity(0)):
        try:
            core = (root / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text().strip()
        except OSError:
            core = str(cpu)
        ranked.append((seen[core], cpu))
        seen[core] += 1
    return tuple(cpu for _, cpu in sorted(ranked))
