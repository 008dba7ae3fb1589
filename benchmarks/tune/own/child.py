"""Tries remedies for a user's own tf.data pipeline, each with the same model.

Runs in a measuring child: see `benchmarks.tune.child`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

import unstall
from unstall.benchmarks.lab.backend import Refused
from unstall.profiles.measure.windows import Windows
from unstall.profiles.remedies import (
    NEEDS,
    Failed,
    Room,
    TooInvolved,
    Trial,
    Turns,
    diff,
    edited,
    gains_of,
    name_from_here,
    source_of,
)
from unstall.profiles.remedies.tf.tf_data_rebuilt import TfData
from unstall.profiles.stages import note_places
from unstall.profiles.trial.held_fit import measure_with


def call(text: str) -> Any:
    """Imports `module:function` and returns the tf.data.Dataset that it gives.

    Raises:
      Refused: if there is no such function, it fails, or gives something else.
    """
    note_places(tf.data.Dataset)
    try:
        dataset = unstall.of_users(text)()
    except Exception as error:  # the user's code may raise anything; they get its first line
        reason = (str(error).strip().splitlines() or [""])[0].rstrip(".")
        raise Refused(f"--pipeline {text}: {type(error).__name__}: {reason}.") from error
    if not isinstance(dataset, tf.data.Dataset):
        raise Refused(f"--pipeline {text} must return a tf.data.Dataset. Received: {type(dataset).__name__}.")
    return dataset


class UserPipeline:
    """A pipeline, and the trial of its remedies on a model.

    Raises:
      Refused: if the pipeline cannot be taken apart, or gives no batch.
    """

    def __init__(self, dataset: Any, windows: Windows, room: Room, budget_s: float) -> None:
        try:
            self._data = TfData(dataset, needs=NEEDS, room=room)
        except Failed as error:
            raise Refused(f"{error}.") from error
        windows.prepare([next(iter(self._data.built((), 1)))])
        self._trials: Iterator[Trial] = Turns(self._data, measure_with(windows), budget_s=budget_s).run()
        self._last = Trial()

    def change(self) -> str:
        """Returns a diff of the user's file that puts the chosen remedies in place, to be applied in this folder.

        Raises:
          Refused: if nothing was chosen, or the code cannot be edited by machine.
        """
        chosen = gains_of(self._last).chosen
        if chosen is None:
            raise Refused("nothing is faster")
        edits = self._last.edits_of(chosen.contender)
        if not edits:
            raise Refused("the code is too involved for an edit by machine")
        file = Path(edits[0].place.file)
        try:
            source = source_of(file)
            return diff(source, edited(source, edits), name_from_here(file))
        except (OSError, UnicodeDecodeError, TooInvolved) as error:
            raise Refused(str(error)) from error

    def advance(self) -> Trial:
        """Measures the next round, and returns all that was measured so far; its `ended` says whether that is all.

        Raises:
          Refused: if the pipeline as written cannot be measured.
        """
        try:
            self._last = next(self._trials)
        except Failed as error:
            raise Refused(f"{error}.") from error
        except ValueError as error:
            if self._data.held_by is None:
                raise
            raise Refused(f"{self._data.held_by} lets only whole epochs be measured. {error}") from error
        finally:
            if self._last.ended:
                self._data.close()
        return self._last.without_folders
