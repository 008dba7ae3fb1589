"""Runs one search over a folder, and writes the chosen pipeline as settings and as a script."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from unstall.benchmarks.lab.command import read_source
from unstall.benchmarks.lab.run import LabRun
from unstall.benchmarks.tune.plan import TOML, Asked, Plan
from unstall.benchmarks.tune.results import Results
from unstall.benchmarks.tune.rounds import say_beside
from unstall.benchmarks.tune.samples import SearchSamples
from unstall.benchmarks.tune.search import Tuner
from unstall.pipeline import ImageSource, SourceError
from unstall.pipeline.config import config_to_toml
from unstall.pipeline.errors import ExportError
from unstall.pipeline.export import export
from unstall.profiles.report import LeftOut, write_atomically


def open_run(plan: Plan, progress: Progress, errors: Console) -> Run:
    """Reads the images, and gets ready to search."""
    return Run(plan, read_source(plan.data, progress, errors, skip_list=plan.skip_list), progress)


class Run(LabRun[Asked, SearchSamples]):
    """Searches as a plan says.

    Args:
      source: all images.
    """

    command = "tune"

    def __init__(self, plan: Plan, source: ImageSource, progress: Progress) -> None:
        super().__init__(plan.asked, progress, source.to_dict())
        self._plan = plan
        self._source = source
        self._tuner = Tuner(plan, source, say_beside(progress))

    def measure(self, after_round: Callable[[], object]) -> None:
        """Searches.

        Args:
          after_round: called whenever there are new samples to write.
        Raises:
          UserError: if the device is not there, the model cannot be used, or nothing could be measured.
        """
        self._tuner.search(after_round)

    def samples(self) -> SearchSamples:
        return self._tuner.samples

    def left_out(self) -> tuple[LeftOut, ...]:
        return self._tuner.left_out

    def close(self) -> None:
        self._tuner.close()

    def kill(self) -> None:
        self._tuner.kill()

    def write_products(self, console: Console, results: Results) -> tuple[Path, ...]:
        """Writes the chosen pipeline as settings, then as a script, and the copy of the images that the script reads.

        If there is no room for the copy, prints a line that says so and writes no script.
        """
        assert results.chosen is not None
        config = results.chosen.config
        toml, script = self._plan.out / TOML, self._plan.script
        write_atomically(toml, config_to_toml(config))
        try:
            text = export(config, self._source, self._plan.data)
            if os.path.lexists(script):
                raise FileExistsError("another file has this name by now")
            write_atomically(script, text)
        except (ExportError, SourceError, OSError) as error:
            console.print(f"no {script.name}: {error}", soft_wrap=True)
            return (toml,)
        return toml, script
