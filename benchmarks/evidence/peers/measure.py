"""Runs a plan: decodes the images once for all peers, then measures each work in rounds over its peers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from unstall.benchmarks.evidence.peers.material import Material, make_material
from unstall.benchmarks.evidence.peers.plan import Asked, Plan
from unstall.benchmarks.evidence.peers.processes import Launcher, link_packages
from unstall.benchmarks.evidence.peers.rounds import PeerRun
from unstall.benchmarks.evidence.peers.samples import Measurements
from unstall.benchmarks.lab.child import ChildDied, JobRefused
from unstall.benchmarks.lab.command import read_files
from unstall.benchmarks.lab.options import UserError
from unstall.benchmarks.lab.run import LabRun
from unstall.pipeline import ImageSource
from unstall.pipeline.cache import remove_scratch, scratch_folder
from unstall.profiles.report import LeftOut


def open_run(plan: Plan, progress: Progress, errors: Console) -> Run:
    """Reads the photos, and gets ready to measure.

    Raises:
      UserError: if the photos are not files.
    """
    return Run(plan, read_files(plan.data, progress, errors, skip_list=plan.skip_list), progress)


class Run(LabRun[Asked, Measurements]):
    """Measures a plan. The peers' processes and files exist only while `measure` runs."""

    command = "peers"

    def __init__(self, plan: Plan, source: ImageSource, progress: Progress) -> None:
        super().__init__(plan.asked, progress, source.to_dict())
        self._plan, self._source = plan, source
        self._runs: list[PeerRun] = []

    def samples(self) -> Measurements:
        return Measurements(works=tuple(run.measured_work for run in self._runs))

    def left_out(self) -> tuple[LeftOut, ...]:
        """Returns the peers that failed, one entry for all works at which a peer failed for the same reason."""
        works: dict[tuple[str, str], list[str]] = {}
        for run in self._runs:
            for failed in run.left_out.items():
                works.setdefault(failed, []).append(run.work)
        return tuple(
            LeftOut(who=f"{name} ({', '.join(failed_at)})", reason=reason)
            for (name, reason), failed_at in works.items()
        )

    def measure(self, after_round: Callable[[], object]) -> None:
        """Measures one work after another; a peer that fails at a work is not measured any further at that work.

        Args:
          after_round: called after each round of each work, so that the caller can write the document.
        Raises:
          UserError: if the images cannot be decoded.
        """
        # The path is made absolute, because the child processes run in other working folders.
        scratch = scratch_folder(self._plan.out.resolve())
        try:
            launcher = Launcher(scratch, link_packages(scratch / "modules"), self._plan.pythons)
            try:
                material = self._material(launcher, scratch)
                for work in self._asked.works:
                    self._measure_work(work, material, launcher, after_round)
            finally:
                launcher.end()
        finally:
            remove_scratch(scratch)

    def _material(self, launcher: Launcher, scratch: Path) -> Material:
        task = self._progress.add_task("decoding", total=None)
        self._progress.refresh()
        try:
            return make_material(
                self._source, launcher, scratch, works=self._asked.works, least=self._asked.prepared_images
            )
        except (ChildDied, JobRefused) as error:
            raise UserError(f"the images cannot be decoded: {error}", exit_code=3) from error
        finally:
            self._progress.remove_task(task)

    def _measure_work(
        self, work: str, material: Material, launcher: Launcher, after_round: Callable[[], object]
    ) -> None:
        asked, progress = self._asked, self._progress
        peers = asked.peers_of(work)
        if not peers:
            return
        task = progress.add_task(work, total=len(peers) * (1 + asked.rounds))

        def tell(text: str) -> None:
            progress.update(task, description=f"{work}: {text}"[:40], refresh=True)

        def done(_: str) -> None:
            progress.update(task, advance=1, refresh=True)

        run = PeerRun(work, peers, material, launcher, cores=asked.cores, workers=asked.workers, tell=tell)
        self._runs.append(run)
        try:
            run.prepare(done)
            for number in range(asked.rounds):
                run.measure(number, done)
                after_round()
            run.end()
        finally:
            progress.remove_task(task)
