"""One scaling run: lists of links made and removed, and every place measured in a fresh process, round by round."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from rich.progress import Progress

from benchmarks.lab.child import Child, ChildDied, JobRefused
from benchmarks.lab.command import new_log
from benchmarks.scaling.lists import copy_photos, link_files
from benchmarks.scaling.plan import Measurement, Place, Plan, Row
from pipeline import ImageSource
from pipeline.cache import cache_root, remove_scratch, scratch_folder
from profiles import Device

# A child that does not answer hangs: imports and some seconds of batches, and the scan of its list with links to it,
# some 0.2 ms a file where they are slow.
_TIMEOUT_S, _TIMEOUT_PER_FILE_S = 300.0, 0.003
_LOG = "children.log"
_CPU = Device(kind="cpu", name="cpu")


class Run:
    """Measures a plan.

    Args:
      source: where the photos come from; it is read only.
      out: where the children's output goes, kept only if one of them failed.
    """

    def __init__(self, plan: Plan, source: ImageSource, out: Path) -> None:
        self._plan = plan
        self._source = source
        self._out = out
        self._cores = core_order()
        self._measurements: dict[Place, list[Measurement]] = {}
        self._failures: dict[Place, str] = {}

    @property
    def rows(self) -> tuple[Row, ...]:
        """Every point, with what was measured so far."""
        return tuple(
            Row(
                point=point,
                measurements=tuple(self._measurements.get(point.place, ())),
                failure=self._failures.get(point.place),
            )
            for point in self._plan.points
        )

    def measure(self, progress: Progress) -> None:
        """Measures every place once a round; one that failed is not tried again.

        Raises:
          UserError: if the photos cannot be copied.
        """
        # In the cache, and there in a folder of this process: what a killed run leaves goes with the next.
        scratch = scratch_folder(cache_root())
        log = new_log(self._out / _LOG)
        try:
            folders = self._lists(scratch, progress)
            places = list(dict.fromkeys(point.place for point in self._plan.points))
            task = progress.add_task("", total=self._plan.rounds * len(places))
            for round_ in range(self._plan.rounds):
                for place in places:
                    progress.update(task, description=_description(place), refresh=True)
                    if place not in self._failures:
                        self._measure_place(place, folders[place.files], scratch / "cache", round_, log)
                    progress.update(task, advance=1, refresh=True)
            progress.remove_task(task)
        finally:
            remove_scratch(scratch)
            if not self._failures:
                log.unlink(missing_ok=True)

    def _lists(self, scratch: Path, progress: Progress) -> dict[int, Path]:
        lengths = sorted({point.place.files for point in self._plan.points})
        # The same photos in every list, so that their number is all that differs.
        photos = copy_photos(self._source, lengths[0], scratch / "photos")
        task = progress.add_task("linking files", total=sum(lengths))
        folders: dict[int, Path] = {}
        for files in lengths:
            begun = sum(folders)

            def report(done: int, begun: int = begun) -> None:
                progress.update(task, completed=begun + done, refresh=True)

            folders[files] = link_files(photos, files, scratch / f"files-{files}", report)
        progress.remove_task(task)
        return folders

    def _measure_place(self, place: Place, folder: Path, cache: Path, round_: int, log: Path) -> None:
        cores = None if place.cores is None else self._cores[: place.cores]
        timeout_s = _TIMEOUT_S + _TIMEOUT_PER_FILE_S * place.files
        child = Child("benchmarks.scaling.child:PlaceSession", _CPU, log, cores, str(cache))
        try:
            measurement = child.ask("measure", place, str(folder), round_, timeout_s=timeout_s)
            self._measurements.setdefault(place, []).append(measurement)
            child.close()
        except (ChildDied, JobRefused) as error:
            self._failures[place] = str(error)
        finally:
            try:
                child.kill()
            finally:
                remove_scratch(cache)


def _description(place: Place) -> str:
    config = place.config
    cores = "" if place.cores is None else f", {place.cores} cores"
    return f"{place.variant}: {place.files:,} files{cores}, batch {config.batch_size}, {config.image_size[0]} px"


def core_order(root: Path = Path("/sys/devices/system/cpu")) -> tuple[int, ...]:
    """Returns the CPUs that this process may use: one of each physical core first, then their second threads.

    Two hardware threads of one core are no two cores: those would make any loader look as if it scaled badly.

    Args:
      root: where Linux tells which belong together.
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
