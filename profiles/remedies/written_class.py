"""The source of a class that an edit adds to a script: as the trial has measured it, without its types."""

from __future__ import annotations

import inspect
import re

# Annotations of parameters and of what is returned; the names in brackets are those of these classes alone.
_TYPES = re.compile(r"(?<=\w): (?:Any|bool|int|str)(?=[,)])| -> [\w.\[\]]+(?=:\n)|(?<=set)\[Any\]|(?<=\w): dict(?= = )")


def written(what: type) -> str:
    """Returns the source of a class as a script has it."""
    return _TYPES.sub("", inspect.getsource(what)).rstrip("\n")
