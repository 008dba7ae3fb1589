"""Notes the programs and processes that a script starts, to say where it trains if it does not train itself."""

from __future__ import annotations

import functools
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from profiles.stages.places import is_library, users_call

# Files that a program trains by: a notebook, a script.
_NOTEBOOK, _SCRIPT = ".ipynb", ".py"


@dataclass(slots=True)
class Children:
    """What a script has started, the last of each kind: a text that says where training happened, and what to type."""

    said: dict[str, str] = field(default_factory=dict)

    def attach(self) -> None:
        """Notes from now on each program that the script runs by `os.system`.

        An audit hook of Python's would see all programs, and be called for every import and every open file.
        """
        original = os.system

        @functools.wraps(original)
        def system(command: Any) -> int:
            self._note_program(command, sys._getframe(1))
            return original(command)

        os.system = system

    def attach_programs(self) -> None:
        """Notes each program that the script runs by `subprocess`."""
        popen = sys.modules["subprocess"].Popen
        original = popen.__init__

        @functools.wraps(original)
        def __init__(process: Any, args: Any, *arguments: Any, **options: Any) -> None:
            self._note_program(args, sys._getframe(1))
            original(process, args, *arguments, **options)

        popen.__init__ = __init__

    def attach_processes(self) -> None:
        """Notes each process of `multiprocessing` that the script's own code starts."""
        base = sys.modules["multiprocessing.process"].BaseProcess
        original = base.start

        def start(process: Any) -> Any:
            self._note_process(process, sys._getframe(1))
            return original(process)

        base.start = start

    @property
    def sentence(self) -> str:
        """Says where training may have happened; empty where the script has started nothing that could train."""
        return " ".join(self.said.values())

    def _note_program(self, command: Any, frame: Any) -> None:
        try:
            if isinstance(command, str | bytes):
                words = shlex.split(_text(command))
            elif isinstance(command, list | tuple):
                words = [_text(word) for word in command]
            else:  # an iterator would be empty for the script
                return
            place = users_call(frame)
        except Exception:  # a command that the operating system will refuse; noting it must not end the script
            return
        told = _told(words)
        if told is not None and place is not None:
            self.said["program"] = f"It ran `{_short(words)}` ({place}): {told}."

    def _note_process(self, process: Any, frame: Any) -> None:
        by_pytorch = frame.f_globals.get("__name__") == "torch.multiprocessing.spawn"
        if is_library(frame.f_code.co_filename) and not by_pytorch:
            return
        target, given = getattr(process, "_target", None), getattr(process, "_args", ())
        run = given[0] if by_pytorch and given else target
        name = getattr(run, "__name__", type(process).__name__)
        place = users_call(frame)
        where = f" ({place})" if place is not None else ""
        self.said["process"] = (
            f"It started a process for `{name}`{where}, and one process is watched: call `{name}` in the script itself."
        )


def _told(words: Sequence[str]) -> str | None:
    """Returns what to type to watch a program that may train; None for other programs."""
    for at, word in enumerate(words):
        if word.endswith(_NOTEBOOK):
            return f"put `%load_ext unstall` into {word}, and `%%stalls` on top of the cell that trains"
        if word.endswith(_SCRIPT) and at:
            return f"type python -m profiles {shlex.join(words[at:])}"
    if words[1:2] == ["-m"] and "python" in words[0]:
        return "type python -m profiles and the path of that module's file"
    return None


def _short(words: Sequence[str]) -> str:
    text = " ".join(words)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _text(word: Any) -> str:
    return word.decode("utf-8", "backslashreplace") if isinstance(word, bytes) else str(word)
