"""Runs the cases one after the other in a child process, on a service that is whole at the beginning of each."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.progress import Progress

from unstall.benchmarks.lab.child import ChildDied, JobRefused
from unstall.benchmarks.lab.command import read_source
from unstall.benchmarks.lab.run import ChildRun
from unstall.benchmarks.service.faults.plan import FaultsAsked, FaultsPlan
from unstall.benchmarks.service.faults.samples import FaultSample, FaultSamples
from unstall.pipeline import ImageSource
from unstall.profiles.devices import CPU
from unstall.profiles.report import LeftOut

_SESSION = "benchmarks.service.faults.child:FaultSession"
# Starting three processes that import TensorFlow, and a case that waits for its limit.
_TIMEOUT_S = 300.0


def open_run(plan: FaultsPlan, progress: Progress, errors: Console) -> Run:
    """Makes the photos, and gets ready to run the cases."""
    return Run(plan, read_source(f"generated:{plan.asked.images}", progress, errors), progress)


class Run(ChildRun[FaultsAsked, FaultSamples]):
    """Runs the cases of a plan. A case whose processes fail is left out, and the next one has new processes."""

    command = "service faults"

    def __init__(self, plan: FaultsPlan, source: ImageSource, progress: Progress) -> None:
        super().__init__(plan.asked, progress, source.to_dict(), plan.out)
        self._source = source
        self._measured: list[FaultSample] = []
        self._start(_SESSION, CPU, plan.asked, source)

    def samples(self) -> FaultSamples:
        return FaultSamples(cases=tuple(self._measured))

    def measure(self, after_round: Callable[[], object]) -> None:
        """Runs every case once."""
        cases = self._asked.cases
        task = self._progress.add_task("starting", total=len(cases))
        self._progress.refresh()
        for case in cases:
            self._progress.update(task, description=case.name, refresh=True)
            try:
                self._measured.append(self._child.ask("run", case, timeout_s=_TIMEOUT_S))
            except (ChildDied, JobRefused) as error:
                self._left_out.append(LeftOut(who=case.name, reason=str(error)))
                self._child.kill()
                self._start(_SESSION, CPU, self._asked, self._source)
            self._progress.update(task, advance=1, refresh=True)
            after_round()
        self._progress.remove_task(task)
        if not self._left_out:
            self._log.unlink(missing_ok=True)
