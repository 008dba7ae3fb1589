"""The parser of all our command lines."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from unstall.commands import typed
from unstall.needs import missing
from unstall.text import printable


class ArgumentParser(argparse.ArgumentParser):
    """Names commands as the user can type them. Escapes its error messages, which may hold what a terminal obeys.

    Args:
      needs: packages without which the command cannot do anything but help; see `unstall.needs`.
    """

    def __init__(self, *arguments: Any, needs: tuple[str, ...] = (), **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._needs = needs

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        arguments = super().parse_args(args, namespace)
        if not getattr(arguments, "list", False) and (line := missing(self.prog, *self._needs)):
            self.exit(2, f"{typed(line)}\n")
        return arguments

    def format_help(self) -> str:
        return typed(super().format_help())

    def format_usage(self) -> str:
        return typed(super().format_usage())

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.format_usage()}{typed(self.prog)}: error: {typed(printable(message))}\n")
