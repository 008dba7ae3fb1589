"""Reads what `unstall capacity` is asked to do."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass, replace
from pathlib import Path

from unstall.benchmarks.lab.options import UserError, check_least, device_of, link_bytes_per_sec, size_bytes
from unstall.benchmarks.scaleout.check.report import KIND as CHECK_KIND
from unstall.benchmarks.scaleout.check.results import CheckDocument
from unstall.benchmarks.scaleout.model import Hosts
from unstall.benchmarks.scaleout.plan import read_config, read_hosts
from unstall.pipeline import PipelineConfig
from unstall.profiles import Device
from unstall.profiles.provenance import without_folder
from unstall.profiles.report import DocumentError, load

_IMAGE_SIZE = 224
MOST_ACCELERATORS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a plan is asked for; kept in the document of a run.

    Attributes:
      images: of an epoch.
      epochs: of the training.
      device: the accelerator.
      accelerators, per_host: how many in all, and on a trainer's host.
      config: the pipeline, with the image size.
      hosts: of trainers and workers.
      storage_bytes_per_sec: that all hosts together read at; None where it is no limit.
      memory_bytes: of a worker's host for files that were read; 0 for none.
      goal_ratio: how far the devices are to be used.
      data: the name, without folders, of the photos on which costs are measured.
    """

    images: int
    epochs: int
    device: Device
    accelerators: int
    per_host: int
    config: PipelineConfig
    hosts: Hosts
    storage_bytes_per_sec: float | None
    memory_bytes: float
    goal_ratio: float
    data: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A plan of capacity: what was asked, small runs to hold the simulation against, and where files go."""

    asked: Asked
    data: str
    out: Path
    runs: CheckDocument | None = None
    skip_list: Path | None = None


def read_plan(arguments: argparse.Namespace, out: Path) -> Plan:
    """Checks all options that can be checked before anything is opened.

    Raises:
      UserError: if an option is wrong; the message has one line.
    """
    check_least(1, accelerators=arguments.accelerators, per_host=arguments.per_host, epochs=arguments.epochs)
    if arguments.accelerators > MOST_ACCELERATORS:
        raise UserError(f"--accelerators must be at most {MOST_ACCELERATORS:,}. Received: {arguments.accelerators}.")
    if arguments.accelerators % min(arguments.per_host, arguments.accelerators):
        raise UserError(
            f"--accelerators must be a multiple of --per-host. Received: {arguments.accelerators} and "
            f"{arguments.per_host}."
        )
    if not (math.isfinite(arguments.images) and arguments.images >= 1):
        raise UserError(f"--images must be a number of at least 1. Received: {arguments.images}.")
    if not 0 < arguments.goal <= 1:
        raise UserError(f"--goal must be above 0 and at most 1. Received: {arguments.goal}.")
    device = _device(arguments.device)
    size = (arguments.image_size,) * 2 if arguments.image_size is not None else device.image_size or (_IMAGE_SIZE,) * 2
    check_least(1, image_size=size[0])
    asked = Asked(
        images=int(arguments.images),
        epochs=arguments.epochs,
        device=device,
        accelerators=arguments.accelerators,
        per_host=min(arguments.per_host, arguments.accelerators),
        config=replace(read_config(arguments), image_size=size),
        hosts=read_hosts(arguments),
        storage_bytes_per_sec=link_bytes_per_sec(arguments.storage, "--storage"),
        memory_bytes=size_bytes(arguments.memory, "--memory") if arguments.memory else 0.0,
        goal_ratio=arguments.goal,
        data=without_folder(arguments.data),
    )
    return Plan(asked=asked, data=arguments.data, out=out, runs=_runs(arguments.runs), skip_list=arguments.skip_list)


def _device(text: str) -> Device:
    device = device_of(text)
    if device.images_per_sec is None:
        raise UserError(f"--device must be emulated:RATE: the accelerators are not here. Received: {text}.")
    return device


def _runs(path: Path | None) -> CheckDocument | None:
    if path is None:
        return None
    try:
        return load(path, {"scaleout check": CHECK_KIND})[0]
    except DocumentError as error:
        raise UserError(f"--runs {error}") from error
