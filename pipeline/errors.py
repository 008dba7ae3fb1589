"""The errors that this package raises for wrong input; each message says what is wrong, the rule and the fix."""

from __future__ import annotations


class SourceError(ValueError):
    """Images that cannot be used; the message says what, where, the rule and the fix."""


class ConfigError(ValueError):
    """A pipeline that cannot be built; the message says the rule, the value received and the fix."""


class PreparedError(SourceError):
    """A prepared copy that cannot be made or used; the message says what, where and the fix."""


class WriteError(PreparedError):
    """A copy that cannot be written: no room, no permission, a failing disk."""


class ExportError(ValueError):
    """A pipeline that cannot be written as a script; the message says why."""


class UnavailableError(Exception):
    """This loader cannot serve this source on this machine; the message says why. Other loaders may be able to."""


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message, without a full stop; its type where it has none."""
    return (str(error).strip().splitlines() or [""])[0].rstrip(".")[:200] or type(error).__name__
