"""What the tuner is asked for: a search over a folder, or advice on a user's own pipeline."""

from __future__ import annotations

import argparse
import itertools
import math
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from unstall.benchmarks.lab.options import (
    MODEL,
    UserError,
    check_least,
    check_model,
    config_of,
    device_of,
    size_bytes,
)
from unstall.benchmarks.tune.parser import BUDGET_S, THOROUGH_BUDGET_S, parser
from unstall.pipeline import PipelineConfig
from unstall.pipeline.cache import cache_root
from unstall.profiles import Device
from unstall.profiles.provenance import without_folder

# What a search writes: the chosen pipeline as settings, beside its results, and as plain tf.data code.
TOML, SCRIPT, DIFF = "tuned.toml", "tuned.py", "tuned.diff"
# The part of the free memory, and of the free disk, that a search may use unless the user gives a limit.
_FREE_RATIO = 0.5
# Options that have no meaning beside --pipeline.
_NOT_ADVISED = ("data", "skip_list", "disk_limit", "exactness", "thorough", "config", "set")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a pipeline: bytes of memory and disk, the widest class of exactness; and the seconds of measuring."""

    memory_bytes: float
    disk_bytes: float
    exactness: str
    budget_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a search was asked for; its document keeps this.

    Attributes:
      data: the name that the user gave to the images, without folders.
      model: its name, without folders.
      base: the augmentation, batch size, shuffle buffer and seed that every pipeline keeps.
      script: where the chosen pipeline is written as code, from the current folder, without those above the last one.
    """

    data: str
    model: str
    device: Device
    base: PipelineConfig
    limits: Limits
    script: str = SCRIPT  # of documents of earlier versions


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A search: what was asked, and where it reads and writes.

    Attributes:
      data: the images, as the user named them.
      model: as the user named it.
      script: where the chosen pipeline is written as code.
      details: whether all tables and sentences are printed.
      thorough: whether more pipelines are measured, in more rounds, and the price of a fixed order as well.
    """

    asked: Asked
    data: str
    model: str
    out: Path
    script: Path
    skip_list: Path | None = None
    details: bool = False
    thorough: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceAsked:
    """What the advice on a user's own pipeline was asked for; its document keeps this.

    Attributes:
      pipeline: "module:function", for reports only. What is run is `AdvicePlan.pipeline`, from the command line: a
        document that is read back must not name code to run.
      model: its name, without folders.
      classes: the number of classes of the pipeline's labels, for a known model.
      batch_size: with which the model is opened.
    """

    pipeline: str
    model: str
    classes: int
    device: Device
    batch_size: int
    limits: Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvicePlan:
    """Advice on a user's own pipeline: what was asked, and what is run.

    Attributes:
      pipeline: "module:function", a function that returns the pipeline.
      model: as the user named it.
      details: whether all tables and sentences are printed.
    """

    asked: AdviceAsked
    pipeline: str
    model: str
    out: Path
    details: bool = False


def read_search(arguments: argparse.Namespace, out: Path) -> Plan:
    """Checks what can be checked before anything is opened.

    Raises:
      UserError: in one line, with the nearest known name where there is one.
    """
    shared = _shared_options(arguments)
    # A script of the user's imports it from its own folder, which most often is the current one.
    folder = arguments.out or Path()
    script = free_module(folder / SCRIPT)
    return Plan(
        asked=Asked(
            data=without_folder(arguments.data),
            model=without_folder(shared.model),
            device=shared.device,
            base=shared.base,
            limits=shared.limits,
            script=str(Path(without_folder(str(folder)), script.name)),
        ),
        data=arguments.data,
        model=shared.model,
        out=out,
        script=script,
        skip_list=arguments.skip_list,
        details=arguments.details,
        thorough=arguments.thorough,
    )


def free_module(path: Path) -> Path:
    """Returns the path, or where something lies there already, the next like it: tuned_2.py. Each can be imported."""
    others = (path.with_stem(f"{path.stem}_{number}") for number in itertools.count(2))
    return next(one for one in itertools.chain([path], others) if not os.path.lexists(one))


def read_advice(arguments: argparse.Namespace, out: Path) -> AdvicePlan:
    """Checks what can be checked before anything is opened.

    Raises:
      UserError: in one line, with the nearest known name where there is one.
    """
    shared = _shared_options(arguments)
    return AdvicePlan(
        asked=AdviceAsked(
            pipeline=without_folder(arguments.pipeline),
            model=without_folder(shared.model),
            classes=arguments.classes,
            device=shared.device,
            batch_size=shared.base.batch_size,
            limits=shared.limits,
        ),
        pipeline=arguments.pipeline,
        model=shared.model,
        out=out,
        details=arguments.details,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _SharedOptions:
    """The options that a search and the advice read alike."""

    model: str
    device: Device
    base: PipelineConfig
    limits: Limits


def _shared_options(arguments: argparse.Namespace) -> _SharedOptions:
    if arguments.pipeline and (ignored := _given(arguments, _NOT_ADVISED)):
        raise UserError(
            f"--pipeline has images of its own, and remedies to try on them. Leave out: {', '.join(ignored)}."
        )
    model = arguments.model or MODEL
    check_model(model)
    device = device_of(arguments.device or "cpu")
    if arguments.pipeline is not None and not all(arguments.pipeline.partition(":")[::2]):
        raise UserError(f"--pipeline needs module:function. Received: {arguments.pipeline!r}.")
    check_least(2, classes=arguments.classes)
    if arguments.pipeline is None and _given(arguments, ("classes",)):
        raise UserError("--classes needs --pipeline: the images of --data have classes of their own. Leave it out.")
    if arguments.budget is not None and not 0 < arguments.budget < math.inf:
        raise UserError(f"--budget must be above 0 seconds, and finite. Received: {arguments.budget}.")
    return _SharedOptions(model=model, device=device, base=_base(arguments), limits=_limits(arguments))


def _given(arguments: argparse.Namespace, names: Sequence[str]) -> list[str]:
    """Returns those of these options that have another value than by default."""
    default = parser().get_default
    return [f"--{name.replace('_', '-')}" for name in names if getattr(arguments, name) != default(name)]


def _base(arguments: argparse.Namespace) -> PipelineConfig:
    """Returns a pipeline with the user's augmentation, batch size, shuffle buffer and seed.

    All other settings are left out: the search chooses them.
    """
    base = config_of(arguments.config, arguments.set, PipelineConfig(), batch_size=arguments.batch_size)
    return PipelineConfig(
        batch_size=base.batch_size,
        augmentation=base.augmentation,
        shuffle_buffer=base.shuffle_buffer,
        seed=base.seed,
    )


def _limits(arguments: argparse.Namespace) -> Limits:
    memory_bytes = _FREE_RATIO * psutil.virtual_memory().available
    disk_bytes = _FREE_RATIO * shutil.disk_usage(_existing(cache_root())).free
    return Limits(
        memory_bytes=size_bytes(arguments.memory_limit, "--memory-limit") if arguments.memory_limit else memory_bytes,
        disk_bytes=size_bytes(arguments.disk_limit, "--disk-limit") if arguments.disk_limit else disk_bytes,
        exactness=arguments.exactness,
        budget_s=arguments.budget or (BUDGET_S if _is_quick(arguments) else THOROUGH_BUDGET_S),
    )


def _is_quick(arguments: argparse.Namespace) -> bool:
    return not (arguments.thorough or arguments.pipeline)


def _existing(folder: Path) -> Path:
    return folder if folder.exists() else _existing(folder.parent)
