"""Reads the arguments of the main job, and refuses those that cannot be measured."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from pathlib import Path

from unstall.benchmarks.lab.options import (
    UserError,
    check_least,
    check_model,
    check_packages,
    config_from_file,
    device_of,
    packages_of,
    settings,
    split_names,
)
from unstall.benchmarks.pipeline.parser import ROUNDS
from unstall.pipeline import BASELINE, VARIANTS, ConfigError, PipelineConfig
from unstall.pipeline.config import config_from_dict
from unstall.pipeline.variants import DEFAULT, GENERATORS, TF_DATA, THOROUGH
from unstall.profiles import Device
from unstall.profiles.provenance import without_folder
from unstall.text import did_you_mean

# The names that rows of tables and files of results may have.
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_SETS = {"default": DEFAULT, "all": tuple(VARIANTS), "generators": GENERATORS, "all-tf-data": TF_DATA}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the main job is asked to measure.

    Attributes:
      models: as the user named them, by their names without folders.
      devices: None for "auto".
      rounds: windows of training of each variant, at most.
      ends_early: whether rounds end as soon as nothing is left to decide.
      cold: whether each variant is also measured with an empty page cache.
      stages: whether the stages of every loader are measured, or only those of the baseline and the fastest.
      lines: whether the lines of Python functions in these stages are timed as well.
      details: whether all tables and sentences are printed.
    """

    data: str
    models: dict[str, str]
    variants: dict[str, PipelineConfig]
    devices: tuple[Device, ...] | None
    rounds: int
    ends_early: bool
    cold: bool
    stages: bool
    lines: bool
    out: Path
    details: bool = False
    skip_list: Path | None = None


def read_plan(arguments: argparse.Namespace, out: Path) -> Plan:
    """Checks what can be checked before anything is opened.

    Raises:
      UserError: in one line, with the nearest known name where there is one.
    """
    check_least(1, rounds=arguments.rounds, batch_size=arguments.batch_size)
    return Plan(
        data=arguments.data,
        skip_list=arguments.skip_list,
        models=models_of(arguments.model),
        variants=variants_of(arguments, THOROUGH if arguments.thorough else DEFAULT),
        devices=devices_of(arguments.device),
        rounds=arguments.rounds or ROUNDS,
        ends_early=arguments.rounds is None and not arguments.thorough,
        cold=arguments.cold,
        stages=arguments.stages,
        lines=arguments.lines,
        out=out,
        details=arguments.details,
    )


def models_of(text: str) -> dict[str, str]:
    """Reads --model. Returns the models as the user named them, by their names without folders.

    Raises:
      UserError: if a model is unknown, or two have the same name.
    """
    named: dict[str, str] = {}
    for typed in split_names(text, "--model"):
        check_model(typed)
        name = without_folder(typed)
        if name in named:
            raise UserError(f"--model: two files are called {name}, which is all that results keep. Rename one.")
        named[name] = typed
    return named


def variants_of(arguments: argparse.Namespace, default: tuple[str, ...]) -> dict[str, PipelineConfig]:
    """Reads --variants, --config, --set and --batch-size. Returns the pipelines by their names.

    Args:
      default: the variants without --variants.
    Raises:
      UserError: if an option is wrong.
    """
    chosen: dict[str, PipelineConfig] = {}
    only_files = bool(arguments.config) and arguments.variants is None
    names = split_names("default" if arguments.variants is None else arguments.variants, "--variants")
    for name in () if only_files else names:
        if name not in _SETS and name not in VARIANTS:
            raise UserError(
                f"--variants: {name!r} is not a variant.{did_you_mean(name, [*VARIANTS, *_SETS])} See --list for all."
            )
        if name in VARIANTS:  # of a set, a variant whose library is missing is left out
            check_packages(f"--variants {name}", *packages_of(VARIANTS[name]))
        for variant in default if name == "default" else _SETS.get(name, (name,)):
            chosen[variant] = VARIANTS[variant]
    if only_files:
        chosen = {"generator": BASELINE}
    for path in arguments.config:
        if not _NAME.fullmatch(path.stem):
            raise UserError(
                f"--config {path}: its name is the variant's, of letters, digits, dots, hyphens and underscores. "
                "Rename the file."
            )
        if path.stem in chosen:
            raise UserError(f"--config {path}: there is a variant {path.stem!r} already. Give the file another name.")
        chosen[path.stem] = config_from_file(path)
    changes = settings(arguments.set)
    if arguments.batch_size is not None:
        changes["batch_size"] = arguments.batch_size
    for name, config in chosen.items():
        try:
            chosen[name] = config_from_dict(changes, config)
        except ConfigError as error:
            raise UserError(f"variant {name}: {error}") from error
    return chosen


def devices_of(text: str) -> tuple[Device, ...] | None:
    """Reads --device. Returns None for "auto"."""
    if text == "auto":
        return None
    return tuple(map(device_of, split_names(text, "--device")))
