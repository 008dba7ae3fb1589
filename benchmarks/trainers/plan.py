"""Reads what several trainers are asked to do."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

from unstall.benchmarks.lab.options import UserError, check_least, check_model, config_of, known_names
from unstall.benchmarks.trainers.parser import VARIANT
from unstall.benchmarks.trainers.subjects import SUBJECTS
from unstall.pipeline import VARIANTS, PipelineConfig
from unstall.pipeline.service import NO_SERVICE
from unstall.profiles.provenance import without_folder

# Each is a process with Keras, TensorFlow and JAX in it, or a device that shares this host's cores with the others.
_MOST_PROCESSES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is compared; kept in the document of a run.

    Attributes:
      subjects: names of `SUBJECTS`.
      config: the pipeline; `batch_size` is that of one trainer.
      model: the network's name, without folders.
      trainers: how many trainers the subjects with several of them have.
      rounds: epochs of each subject.
      data: the photos' name, without folders.
    """

    subjects: tuple[str, ...]
    config: PipelineConfig
    model: str
    trainers: int
    rounds: int
    data: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A comparison: what was asked, which photos are used, and where the files of the run go.

    Attributes:
      data, model: as the user named them.
    """

    asked: Asked
    data: str
    model: str
    out: Path
    skip_list: Path | None = None


def read_plan(arguments: argparse.Namespace, out: Path) -> Plan:
    """Checks all options that can be checked before anything is opened.

    Raises:
      UserError: if an option is wrong; the message has one line.
    """
    check_least(1, rounds=arguments.rounds)
    if not 2 <= arguments.processes <= _MOST_PROCESSES:
        raise UserError(f"--processes must be from 2 to {_MOST_PROCESSES}. Received: {arguments.processes}.")
    check_model(arguments.model)
    asked = Asked(
        subjects=tuple(SUBJECTS) if arguments.only is None else known_names(arguments.only, "--only", SUBJECTS),
        config=_config(arguments),
        model=without_folder(arguments.model),
        trainers=arguments.processes,
        rounds=arguments.rounds,
        data=without_folder(arguments.data),
    )
    return Plan(asked=asked, data=arguments.data, model=arguments.model, out=out, skip_list=arguments.skip_list)


def _config(arguments: argparse.Namespace) -> PipelineConfig:
    config = config_of(arguments.config, arguments.set, VARIANTS[VARIANT], batch_size=arguments.batch_size)
    if config.loader != "tf_data":
        raise UserError(f"Several trainers are fed by tf.data here: loader must be tf_data. Received: {config.loader}.")
    if config.service != NO_SERVICE:
        raise UserError(f"A service decodes elsewhere: service must be none. Received: {config.service}.")
    if config.cache != "none":
        raise UserError(f"A cache hides what is decoded in vain: cache must be none. Received: {config.cache}.")
    on_device = config.augmentation is not None and config.augment_at == "device"
    if config.output_dtype == "uint8" or on_device:
        raise UserError(
            "The model is trained without layers in front: output_dtype must be float32, and augment_at not device. "
            f"Received: {config.output_dtype} and {config.augment_at}."
        )
    # One iterator for all epochs reads on at the end of an epoch, so that no epoch's images could be counted.
    return replace(config, one_iterator=False)
