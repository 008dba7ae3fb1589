"""Runs a user's unmodified script, and watches each Keras `fit` and each loop over data in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unstall.profiles.script.loops import Loops

# How long trying remedies may take unless the user says otherwise.
BUDGET_S = 60.0
# Returns the loops of the script that `unstall profile` runs; None where none is run so.
loops_of_run: Callable[[], Loops] | None = None
