"""The words that a command is called with."""

from __future__ import annotations

import argparse
from typing import NoReturn

from pipeline.folders import shown


class ArgumentParser(argparse.ArgumentParser):
    """Repeats a wrong word so that no terminal obeys it: a name that a shell filled in may hold anything."""

    def error(self, message: str) -> NoReturn:
        super().error(shown(message))
