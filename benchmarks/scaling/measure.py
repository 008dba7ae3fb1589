"""Makes lists of links, measures each place in a fresh process in each round, and removes the lists."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from unstall.benchmarks.lab.child import Child, ChildDied, JobRefused
from unstall.benchmarks.lab.command import new_log, read_files
from unstall.benchmarks.lab.run import LabRun
from unstall.benchmarks.scaling.lists import copy_photos, link_files
from unstall.benchmarks.scaling.plan import Asked, MeasuredPlace, Measurement, Measurements, Place, Plan
from unstall.pipeline import ImageSource
from unstall.pipeline.cache import cache_root, remove_scratch, scratch_folder
from unstall.profiles.devices import CPU
from unstall.profiles.report import LeftOut

# A child that takes longer hangs. The child imports, makes batches for some seconds, and scans its list and makes links
# to its files, which takes some 0.2 ms a file on a slow disk.
_TIMEOUT_S, _TIMEOUT_PER_FILE_S = 300.0, 0.003
_LOG = "children.log"


def open_run(plan: Plan, progress: Progress, errors: Console) -> Run:
    """Opens the photos, and gets ready to measure.

    Raises:
      UserError: if the photos are not files.
    """
    return Run(plan, read_files(plan.data, progress, errors, skip_list=plan.skip_list), progress)


class Run(LabRun[Asked, Measurements]):
    """Measures what a plan asks for.

    Args:
      source: where the photos come from; nothing is written there.
    """

    command = "scaling"

    def __init__(self, plan: Plan, source: ImageSource, progress: Progress) -> None:
        super().__init__(plan.asked, progress, source.to_dict())
        self._out, self._source = plan.out, source
        self._cores = core_order()
        self._measurements: dict[Place, list[Measurement]] = {}
        self._failures: dict[Place, str] = {}

    def samples(self) -> Measurements:
        places = tuple(
            MeasuredPlace(
                place=place,
                measurements=tuple(self._measurements.get(place, ())),
                failure=self._failures.get(place),
            )
            for place in self._asked.places
        )
        return Measurements(places=places)

    def left_out(self) -> list[LeftOut]:
        return [LeftOut(who=place.name, reason=why) for place, why in self._failures.items()]

    def measure(self, after_round: Callable[[], object]) -> None:
        """Measures every place once in each round. A place that failed is not tried again.

        Args:
          after_round: called after each round, to write the results so far.
        Raises:
          UserError: if the photos cannot be copied.
        """
        # A folder of this process in the cache: if this run is killed, the next run removes the folder.
        scratch = scratch_folder(cache_root())
        log = new_log(self._out / _LOG)
        progress = self._progress
        try:
            folders = self._lists(scratch, progress)
            places = self._asked.places
            task = progress.add_task("", total=self._asked.rounds * len(places))
            for round_ in range(self._asked.rounds):
                for place in places:
                    progress.update(task, description=place.name, refresh=True)
                    if place not in self._failures:
                        self._measure_place(place, folders[place.files], scratch / "cache", round_, log)
                    progress.update(task, advance=1, refresh=True)
                after_round()
            progress.remove_task(task)
        finally:
            remove_scratch(scratch)
            if not self._failures:
                log.unlink(missing_ok=True)

    def _lists(self, scratch: Path, progress: Progress) -> dict[int, Path]:
        lengths = sorted({point.place.files for point in self._asked.points})
        # Every list links to the same photos, so that lists differ in their length alone.
        photos = copy_photos(self._source, lengths[0], scratch / "photos")
        task = progress.add_task("linking files", total=sum(lengths))
        folders: dict[int, Path] = {}
        for files in lengths:
            linked = sum(folders)

            def report(done: int, linked: int = linked) -> None:
                progress.update(task, completed=linked + done, refresh=True)

            folders[files] = link_files(photos, files, scratch / f"files-{files}", report)
        progress.remove_task(task)
        return folders

    def _measure_place(self, place: Place, folder: Path, cache: Path, round_: int, log: Path) -> None:
        cores = None if place.cores is None else self._cores[: place.cores]
        timeout_s = _TIMEOUT_S + _TIMEOUT_PER_FILE_S * place.files
        child = None
        try:
            child = Child("benchmarks.scaling.child:PlaceSession", CPU, log, cores, str(cache))
            measurement = child.ask("measure", place, str(folder), round_, timeout_s=timeout_s)
            self._measurements.setdefault(place, []).append(measurement)
            child.close()
        except (ChildDied, JobRefused) as error:
            self._failures[place] = str(error)
        finally:
            try:
                if child is not None:
                    child.kill()
            finally:
                remove_scratch(cache)


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
