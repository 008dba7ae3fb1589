"""Options of ours that were typed after the script, whose own they are then: it gets them, and a line says so."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Misplaced:
    """Options of the script that have the names of ours.

    Attributes:
      names: such as "--no-trial".
      line: says how they are typed for us.
    """

    names: tuple[str, ...]
    line: str

    def are_in(self, text: str) -> bool:
        """Whether a script's text names them all: as "--no-trial", "no_trial" or "no-trial"."""
        return all(re.search(rf"\b{re.sub('-', '[-_]', name[2:])}\b", text) for name in self.names)


def misplaced(before: Sequence[str], script: str, after: Sequence[str], takes: Mapping[str, bool]) -> Misplaced | None:
    """Finds options of ours among the words after a script; None if there are none.

    Args:
      before: the words before the script. What stands there as well is the script's own where it stands after.
      script: as it was typed.
      after: the words after the script.
      takes: our options, and whether each takes a value.
    """
    given = {word.partition("=")[0] for word in before}
    names: list[str] = []
    moved: list[str] = []
    left: list[str] = []
    words = list(after)
    while words:
        word = words.pop(0)
        name, equals, _ = word.partition("=")
        if name not in takes or name in given:
            left.append(word)
            continue
        names += [name] if name not in names else []
        moved.append(word)
        if takes[name] and not equals and words and not words[0].startswith("-"):
            moved.append(words.pop(0))
    if not names:
        return None
    is_, it, comes = ("is", "it", "comes") if len(names) == 1 else ("are", "them", "come")
    command = shlex.join(["unstall", "profile", *before, *moved, script, *left])
    line = f"{' and '.join(names)} {comes} after {script} and {is_} the script's own; for unstall, type {it} before: "
    return Misplaced(names=tuple(names), line=line + command)
