"""Runs a script in this process until its loader is made, so that remedies for that loader can be written into it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unstall.profiles.stages.places import note_places


def loader_of(script: Path, *, silent: bool = False) -> Any:
    """Returns the loader that a script's `main` returns, or its variable `loader`; its random numbers are put back.

    Args:
      silent: whether the script prints nothing here.
    """
    import torch
    from torch.utils.data import DataLoader

    text = script.read_text().replace("print(", "str.format('', ") if silent else script.read_text()
    names: dict[str, Any] = {"__name__": "train"}
    end_notes = note_places(DataLoader)
    try:
        with torch.random.fork_rng():
            exec(compile(text, str(script), "exec"), names)
            return names["main"]() if "main" in names else names["loader"]
    finally:
        end_notes()
