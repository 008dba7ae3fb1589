"""Reads what `unstall train` is asked to do: a network, photos, a pipeline and a file."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, replace
from pathlib import Path

from unstall import models
from unstall.benchmarks.lab.options import MODEL, UserError, check_least, check_model, config_from_file
from unstall.benchmarks.train.parser import _VARIANT
from unstall.pipeline import VARIANTS, PipelineConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The checked options of a training.

    Attributes:
      config: the pipeline; the network sets its image size later.
      epochs: passes over the photos.
      out: the file to which the model is saved.
      overwrite: whether an existing file may be replaced.
    """

    model: str
    data: str
    config: PipelineConfig
    epochs: int
    out: Path
    overwrite: bool
    skip_list: Path | None = None


def read_plan(arguments: argparse.Namespace) -> Plan:
    """Checks all options that can be checked before anything is opened.

    Raises:
      UserError: if an option is wrong; the message has one line.
    """
    check_model(arguments.model)
    published = models.MODELS.get(arguments.model, models.MODELS[MODEL]).training
    config = VARIANTS[_VARIANT] if arguments.config is None else config_from_file(arguments.config)
    batch_size = arguments.batch_size
    if batch_size is None:
        batch_size = config.batch_size if arguments.config or published.batch_size is None else published.batch_size
    epochs = published.epochs if arguments.epochs is None else arguments.epochs
    check_least(1, epochs=epochs, batch_size=batch_size)
    check_least(0, seed=arguments.seed)
    _check_file(arguments.out, overwrite=arguments.overwrite)
    return Plan(
        model=arguments.model,
        data=arguments.data,
        config=replace(config, batch_size=batch_size, seed=arguments.seed),
        epochs=epochs,
        out=arguments.out,
        overwrite=arguments.overwrite,
        skip_list=arguments.skip_list,
    )


def _check_file(out: Path, *, overwrite: bool) -> None:
    """Checks before training that the file can be written."""
    if out.suffix != ".keras":
        raise UserError(f"--out {out} must end in .keras.")
    if out.is_dir() or (out.exists() and not overwrite):
        raise UserError(f"--out {out} exists already. Choose another name, or give --overwrite.")
    if not out.parent.is_dir():
        raise UserError(f"--out {out}: there is no folder {out.parent}. Make it first.")
    if not os.access(out.parent, os.W_OK | os.X_OK):
        raise UserError(f"--out {out}: the folder {out.parent} cannot be written to.")
