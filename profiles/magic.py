"""A cell magic for notebooks: `%load_ext unstall`, and `%%stalls` as the first line of a cell that trains."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from unstall.profiles.data import ADAPTERS
from unstall.profiles.report.measurements import MeasurementDocument
from unstall.profiles.report.notebook import Shown
from unstall.profiles.script.loops import Loops
from unstall.profiles.script.report import report_on

if TYPE_CHECKING:
    from unstall.profiles.script.profiler import Profiler

# The name of the cell in the report.
_CELL = "cell"


class Stalls(Shown):
    """What `%%stalls` has measured of a cell: each `fit`, and each loop over data."""

    def __init__(self, document: MeasurementDocument) -> None:
        self.document = document

    def _shown(self) -> MeasurementDocument:
        return self.document


def run_watched(run: Callable[[], object]) -> Stalls:
    """Runs something that trains, and watches it as `unstall profile` watches a script, without a trial of remedies.

    Libraries that are not imported yet are not watched: import them in a cell before.

    Args:
      run: trains. What it raises is raised, once its watching has ended.
    """
    loops = Loops(max_steps=None)
    watchers: list[Profiler | Loops] = [loops]
    with ExitStack() as undo:
        if "keras" in sys.modules:
            from unstall.profiles.script.profiler import Profiler
            from unstall.profiles.trial.ceilings import measure_ceilings

            profiler = Profiler(ceilings=measure_ceilings, max_steps=None)
            profiler.attach()
            undo.callback(profiler.detach)
            watchers.insert(0, profiler)
        for one in ADAPTERS:
            if one.module in sys.modules:
                undo.callback(one.attach(loops))
        run()
    for watcher in watchers:
        watcher.pause()
    return Stalls(report_on(watchers, script=_CELL))


def load(shell: Any) -> None:
    """Registers `%%stalls` with IPython's shell."""

    def stalls(line: str, cell: str) -> Stalls:
        return run_watched(lambda: shell.ex(shell.transform_cell(cell)))

    shell.register_magic_function(stalls, "cell", "stalls")
