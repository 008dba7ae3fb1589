"""The command line, and the plan of a run read from it: a folder of training scripts, and how often each runs."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from unstall.benchmarks.evidence.run import add_out
from unstall.benchmarks.lab.options import UserError, check_least, known_names
from unstall.parser import ArgumentParser
from unstall.text import did_you_mean

# Files of a script's folder: the script, the script as an expert edited its loading, and what is known of them.
TRAIN, EXPERT, ABOUT = "train.py", "expert.py", "about.toml"
_EPILOG = (
    "Each folder of DIR that holds a train.py is a script. Next to it may lie expert.py, the script with its loading "
    "edited by hand, and about.toml with source, words, environment, and expert: what that edit does, in words. A line "
    "TRAIN_S SECONDS that a script prints is the time of its whole training; without it the whole run is timed. "
    "docs/evidence/scripts.md says more."
)
_TYPES: dict[str, type] = {"source": str, "words": list, "environment": dict, "expert": str}


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A training script.

    Attributes:
      name: of its folder.
      source: where it was published: repository, commit and path.
      words: arguments of the script.
      environment: variables that are set for it.
      expert: what `expert.py` does, in words; empty where there is no such file.
    """

    name: str
    source: str = ""
    words: tuple[str, ...] = ()
    environment: Mapping[str, str]
    expert: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the document keeps.

    Attributes:
      pairs: of runs, for each edit of a script; as many again where their interval is wide.
      budget_s: of the trial of remedies.
      limit_s: after which a run is ended.
    """

    scripts: tuple[Script, ...]
    pairs: int
    budget_s: float
    limit_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A run: the scripts, the folder that they lie in, and where the results go."""

    asked: Asked
    folder: Path
    out: Path


def parser() -> argparse.ArgumentParser:
    arguments = ArgumentParser(
        prog="python -m benchmarks.evidence.scripts",
        description="Times training scripts as they are, with their loading edited by an expert, and with the diff "
        "that unstall profile writes: what part of the expert's gain comes without an expert.",
        epilog=_EPILOG,
    )
    add = arguments.add_argument
    add("folder", type=Path, metavar="DIR", help="holds a folder for each script")
    add("--only", metavar="NAME,...", help="these scripts (default: all)")
    add("--pairs", type=int, default=5, metavar="N", help="pairs of runs for each edit (default: 5)")
    add("--budget", type=float, default=60.0, metavar="S", help="seconds for trying remedies (default: 60)")
    add("--limit", type=float, default=900.0, metavar="S", help="seconds after which a run is ended (default: 900)")
    add_out(arguments)
    return arguments


def read_plan(arguments: argparse.Namespace, out: Path) -> Plan:
    """Lists the scripts.

    Raises:
      UserError: if there is none, or one of them is not described rightly.
    """
    folder: Path = arguments.folder
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder. It must hold a folder for each script, with a {TRAIN}.")
    names = sorted(path.parent.name for path in folder.glob(f"*/{TRAIN}"))
    if not names:
        raise UserError(f"{folder} holds no folder with a {TRAIN}.")
    if arguments.only is not None:
        names = list(known_names(arguments.only, "--only", names))
    check_least(1, pairs=arguments.pairs)
    for option in ("budget", "limit"):
        seconds = getattr(arguments, option)
        if not 1 <= seconds <= 86400:
            raise UserError(f"--{option} must be from 1 to 86400 seconds. Received: {seconds:g}.")
    scripts = tuple(_read_script(folder / name) for name in names)
    asked_for = Asked(scripts=scripts, pairs=arguments.pairs, budget_s=arguments.budget, limit_s=arguments.limit)
    return Plan(asked=asked_for, folder=folder, out=out)


def _read_script(folder: Path) -> Script:
    path = folder / ABOUT
    try:
        about = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    for key, value in about.items():
        if key not in _TYPES:
            raise UserError(f"{path} has {key!r}.{did_you_mean(key, _TYPES)} Known: {', '.join(_TYPES)}.")
        texts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
        if not isinstance(value, _TYPES[key]) or not all(isinstance(text, str) for text in texts):
            raise UserError(f"{path}: {key} must be a {_TYPES[key].__name__}, of texts only. Received: {value!r}.")
    if bool(about.get("expert")) != (folder / EXPERT).is_file():
        raise UserError(f"{folder}: {EXPERT} and `expert` in {ABOUT}, what that edit does, go together.")
    return Script(
        name=folder.name,
        source=about.get("source", ""),
        words=tuple(about.get("words", ())),
        environment=about.get("environment", {}),
        expert=about.get("expert", ""),
    )
