"""The parser of all our command lines."""

from __future__ import annotations

import argparse
from typing import NoReturn

from unstall.commands import typed
from unstall.text import printable


class ArgumentParser(argparse.ArgumentParser):
    """Names commands as the user can type them. Escapes its error messages, which may hold what a terminal obeys."""

    def format_help(self) -> str:
        return typed(super().format_help())

    def format_usage(self) -> str:
        return typed(super().format_usage())

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.format_usage()}{typed(self.prog)}: error: {typed(printable(message))}\n")
