"""Notes the programs and processes that a script starts, to say where it trains if it does not train itself."""

from __future__ import annotations

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
        """Notes from now on each program that the script runs. An audit hook of Python's stays until it ends."""
        sys.addaudithook(self._audit)

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

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen":
            self._note_program(arguments[1])
        elif event in ("os.system", "os.posix_spawn"):
            self._note_program(arguments[0] if event == "os.system" else arguments[1])

    def _note_program(self, command: Any) -> None:
        try:
            in_shell = isinstance(command, str | bytes)
            words = shlex.split(_text(command)) if in_shell else [_text(word) for word in command]
            place = users_call(sys._getframe(2))
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
