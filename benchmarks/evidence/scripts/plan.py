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

# Files of a script's folder: the script, the script as somebody edited it by hand, the script with data that cost
# nothing, and what is known of them.
TRAIN, BY_HAND, HELD, ABOUT = "train.py", "by_hand.py", "held.py", "about.toml"
_EPILOG = (
    "Each folder of DIR that holds a train.py is a script. Next to it may lie by_hand.py, the script edited by hand, "
    "and about.toml with source, words, environment, and follows: the remedies that by_hand.py puts in place. held.py "
    "may be the script with batches that lie in memory ready: what it would be if loading cost nothing. Lines "
    "EPOCH_S SECONDS that a script prints are the times of its epochs; without them the whole run is timed. "
    "docs/evidence/scripts.md says more."
)
_TYPES: dict[str, type] = {"source": str, "words": list, "environment": dict, "follows": list}


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A training script.

    Attributes:
      name: of its folder.
      source: where it was published: repository, commit and path.
      words: arguments of the script.
      environment: variables that are set for it.
      follows: names of the remedies that `by_hand.py` puts in place; empty where there is no such file.
      held: whether there is a `held.py`.
    """

    name: str
    source: str = ""
    words: tuple[str, ...] = ()
    environment: Mapping[str, str]
    follows: tuple[str, ...] = ()
    held: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the document keeps.

    Attributes:
      rounds: how often each script runs as written, as edited by hand, and with data that cost nothing.
      budget_s: of the trial of remedies.
      limit_s: after which a run is ended.
    """

    scripts: tuple[Script, ...]
    rounds: int
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
        description="Runs training scripts plainly, under unstall profile, and as somebody edited them by hand: "
        "what was said of each, what watching costs, and whether following the advice gains what was measured.",
        epilog=_EPILOG,
    )
    add = arguments.add_argument
    add("folder", type=Path, metavar="DIR", help="holds a folder for each script")
    add("--only", metavar="NAME,...", help="these scripts (default: all)")
    add("--rounds", type=int, default=2, metavar="N", help="plain runs of each script (default: 2)")
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
    check_least(1, rounds=arguments.rounds)
    for option in ("budget", "limit"):
        seconds = getattr(arguments, option)
        if not 1 <= seconds <= 86400:
            raise UserError(f"--{option} must be from 1 to 86400 seconds. Received: {seconds:g}.")
    scripts = tuple(_read_script(folder / name) for name in names)
    asked_for = Asked(scripts=scripts, rounds=arguments.rounds, budget_s=arguments.budget, limit_s=arguments.limit)
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
    if bool(about.get("follows")) != (folder / BY_HAND).is_file():
        raise UserError(f"{folder}: {BY_HAND} and `follows` in {ABOUT}, the remedies in it, go together.")
    return Script(
        name=folder.name,
        source=about.get("source", ""),
        words=tuple(about.get("words", ())),
        environment=about.get("environment", {}),
        follows=tuple(about.get("follows", ())),
        held=(folder / HELD).is_file(),
    )
