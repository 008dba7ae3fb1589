"""Notes the programs and processes that a script starts, to say where it trains if it does not train itself."""

from __future__ import annotations

import functools
import itertools
import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from unstall.profiles.stages.places import is_library, users_call

# Files that a program trains by: a notebook, a script; and programs that run them.
_NOTEBOOK, _SCRIPT = ".ipynb", ".py"
_RUNS_NOTEBOOKS = ("jupyter", "papermill", "runipy", "python")
_RUNS_SCRIPTS = ("python", "torchrun", "accelerate", "deepspeed", "horovodrun", "mpirun", "srun")
# Where a command of a shell ends.
_ENDS = ("&&", "||", "|", "|&", ";", "&", ">", ">>", ">&", "&>", "<")


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
                words = _shell_words(_text(command))
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
        try:
            self._note_call(process, frame, by_pytorch)
        except Exception:  # the script's own process class; noting it must not end the script
            return

    def _note_call(self, process: Any, frame: Any, by_pytorch: bool) -> None:
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


def _shell_words(command: str) -> list[str]:
    """Returns the words of a shell's command; operators are words."""
    words = shlex.shlex(re.sub(r"(?<=\s)\d(?=>)", "", command), posix=True, punctuation_chars=True)
    words.whitespace_split = True
    words.commenters = ""
    return list(words)


def _told(words: Sequence[str]) -> str | None:
    """Returns what to type to watch a program that may train; None for other programs."""
    for at, word in enumerate(words):
        if word.endswith(_NOTEBOOK) and _has(words[:at], _RUNS_NOTEBOOKS):
            return f"put `%load_ext unstall` into {word}, and `%%stalls` on top of the cell that trains"
        if word.endswith(_SCRIPT) and (not at or _has(words[:at], _RUNS_SCRIPTS)):
            arguments = itertools.takewhile(lambda word: word not in _ENDS, words[at:])
            return f"type unstall profile {shlex.join(arguments)}"
        if word == "-m" and _has(words[max(at - 1, 0) : at], ("python",)):
            return "type unstall profile and the path of that module's file"
    return None


def _has(words: Sequence[str], names: Sequence[str]) -> bool:
    """Whether one of the words is the path of such a program, whatever its version."""
    return any(os.path.basename(word).startswith(tuple(names)) for word in words)


def _short(words: Sequence[str]) -> str:
    text = " ".join(words)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _text(word: Any) -> str:
    return word.decode("utf-8", "backslashreplace") if isinstance(word, bytes) else str(word)
