"""Reads what `unstall service plan` is asked to do."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path

from unstall.benchmarks.lab.options import (
    UserError,
    check_least,
    check_model,
    config_of,
    device_of,
    link_bytes_per_sec,
    servable,
    size_bytes,
)
from unstall.benchmarks.service.parser import CUT_VARIANT, EPOCHS
from unstall.benchmarks.service.planning.model import MOST_ACCELERATORS, Hosts
from unstall.pipeline import VARIANTS, PipelineConfig
from unstall.profiles import Device
from unstall.profiles.provenance import usable_cores, without_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a prediction is asked for; kept in the document of a run.

    Attributes:
      config: the pipeline, without a service.
      image_size: height and width of its images in pixels; None for the model's.
      model: the name of the network that consumes the batches, without folders.
      device: what trains it.
      hosts: of trainers and workers.
      goal_ratio: how far the device is to be used.
      images: of an epoch of the training; None where it is not planned as a whole.
      epochs: of the training.
      data: the photos' name, without folders.
    """

    config: PipelineConfig
    image_size: tuple[int, int] | None
    model: str
    device: Device
    hosts: Hosts
    goal_ratio: float
    images: int | None
    epochs: int
    data: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A prediction: what was asked, which photos are used, and where the files of the run go.

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
    if not 0 < arguments.goal <= 1:
        raise UserError(f"--goal must be above 0 and at most 1. Received: {arguments.goal}.")
    check_model(arguments.model)
    hosts, device = _hosts(arguments), device_of(arguments.device)
    if hosts.accelerators > 1 and device.images_per_sec is None:
        raise UserError(
            f"--device must be emulated:RATE with --accelerators: they are not here. Received: {arguments.device}."
        )
    asked = Asked(
        config=_config(arguments),
        image_size=_image_size(arguments.image_size, device),
        model=without_folder(arguments.model),
        device=device,
        hosts=hosts,
        goal_ratio=arguments.goal,
        images=_images(arguments),
        epochs=EPOCHS if arguments.epochs is None else arguments.epochs,
        data=without_folder(arguments.data),
    )
    return Plan(asked=asked, data=arguments.data, model=arguments.model, out=out, skip_list=arguments.skip_list)


def _hosts(arguments: argparse.Namespace) -> Hosts:
    check_least(1, accelerators=arguments.accelerators, per_host=arguments.per_host)
    accelerators, per_host = arguments.accelerators, min(arguments.per_host, arguments.accelerators)
    if accelerators > MOST_ACCELERATORS:
        raise UserError(f"--accelerators must be at most {MOST_ACCELERATORS:,}. Received: {accelerators}.")
    if accelerators % per_host:
        raise UserError(f"--accelerators must be a multiple of --per-host. Received: {accelerators} and {per_host}.")
    if (arguments.worker_price is None) != (arguments.trainer_price is None):
        raise UserError("--worker-price and --trainer-price must be given together.")
    return Hosts(
        worker_cores=_positive(arguments.worker_cores, "--worker-cores", usable_cores()),
        trainer_cores=_positive(arguments.trainer_cores, "--trainer-cores", usable_cores()),
        worker_price=_price(arguments.worker_price, "--worker-price"),
        trainer_price=_price(arguments.trainer_price, "--trainer-price"),
        link_bytes_per_sec=link_bytes_per_sec(arguments.network),
        delay_s=_at_least_0(arguments.delay, "--delay") / 1e3,
        accelerators=accelerators,
        per_host=per_host,
        storage_bytes_per_sec=link_bytes_per_sec(arguments.storage, "--storage"),
        memory_bytes=size_bytes(arguments.memory, "--memory") if arguments.memory else 0.0,
    )


def _images(arguments: argparse.Namespace) -> int | None:
    """Reads --images, without which two other options say nothing."""
    check_least(1, epochs=arguments.epochs)
    if arguments.images is None:
        for option, means in (("memory", "whether it holds all files"), ("epochs", "how long they take")):
            if getattr(arguments, option) is not None:
                raise UserError(f"--{option} needs --images N, those of an epoch: {means} depends on them.")
        return None
    if not (math.isfinite(arguments.images) and arguments.images >= 1):
        raise UserError(f"--images must be a number of at least 1. Received: {arguments.images}.")
    return int(arguments.images)


def _image_size(side: int | None, device: Device) -> tuple[int, int] | None:
    check_least(1, image_size=side)
    if side is not None and device.images_per_sec is None:
        raise UserError(f"--image-size goes with --device emulated:RATE: on {device.name} the size is the model's.")
    return device.image_size if side is None else (side, side)


def _positive(value: float | None, option: str, default: float) -> float:
    if value is None:
        return default
    if not (value > 0 and math.isfinite(value)):
        raise UserError(f"{option} must be a number above 0. Received: {value}.")
    return value


def _price(value: float | None, option: str) -> float | None:
    return None if value is None else _at_least_0(value, option)


def _at_least_0(value: float, option: str) -> float:
    if not (value >= 0 and math.isfinite(value)):
        raise UserError(f"{option} must be a number of at least 0. Received: {value}.")
    return value


def _config(arguments: argparse.Namespace) -> PipelineConfig:
    """Reads --config and --set: a pipeline that a service can serve."""
    refused = dict.fromkeys(("service", "served"), "this command chooses it.")
    return servable(config_of(arguments.config, arguments.set, VARIANTS[CUT_VARIANT], refused=refused))
