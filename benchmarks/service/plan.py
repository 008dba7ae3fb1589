"""Reads what a command of the service is asked to do."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

from unstall.benchmarks.lab.options import (
    UserError,
    check_least,
    config_of,
    device_of,
    link_bytes_per_sec,
    servable,
    split_names,
)
from unstall.benchmarks.service.parser import VARIANT
from unstall.pipeline import VARIANTS, ConfigError, PipelineConfig
from unstall.pipeline.service import NO_SERVICE, Address, parse_address
from unstall.profiles import Device
from unstall.profiles.provenance import without_folder

_MOST_WORKERS = 64
_HERE = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is compared; kept in the document of a run.

    Attributes:
      config: the pipeline, without a service.
      services: the config's `service` of each subject; "none" are the threads of the training process.
      device: the name of the emulated device that consumes batches; None to read as fast as can be.
      images_per_sec: what that device consumes.
      link_bytes_per_sec: what the network to the workers carries; None where it is no limit, or is not stated.
      rounds: windows of each subject.
      data: the photos' name, without folders.
    """

    config: PipelineConfig
    services: tuple[str, ...]
    device: str | None
    images_per_sec: float | None
    link_bytes_per_sec: float | None
    rounds: int
    data: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A comparison: what was asked, which photos are used, and where the files of the run go."""

    asked: Asked
    data: str
    out: Path
    skip_list: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlan:
    """A server to start.

    Attributes:
      port: where it listens; 0 for a free port.
      open_to_others: whether other hosts may connect.
      journal: the dispatcher's folder.
      dispatcher: whom a worker works for; None for a dispatcher.
      data, pipeline: what a worker serves: photos, or a function of the user's, as "module:function".
      config: of the photos' pipeline.
      host: how clients reach a worker's host; None for its address on the way to the dispatcher.
    """

    port: int
    open_to_others: bool
    journal: Path | None = None
    dispatcher: Address | None = None
    data: str | None = None
    pipeline: str | None = None
    config: PipelineConfig | None = None
    skip_list: Path | None = None
    host: str | None = None


def read_server(arguments: argparse.Namespace) -> ServerPlan:
    """Checks the options of a server.

    Raises:
      UserError: if an option is wrong; the message has one line.
    """
    if arguments.verb == "dispatcher":
        return ServerPlan(port=_port(arguments.port), open_to_others=arguments.open, journal=arguments.journal)
    return _worker(arguments)


def _worker(arguments: argparse.Namespace) -> ServerPlan:
    if (arguments.data is None) == (arguments.pipeline is None):
        raise UserError("worker needs what it serves: either --data DIR, or --pipeline MODULE:FUNCTION.")
    if arguments.pipeline is not None and ":" not in arguments.pipeline:
        raise UserError(f"--pipeline must be MODULE:FUNCTION. Received: {arguments.pipeline}.")
    of_photos = {"--config": arguments.config, "--set": arguments.set, "--skip-list": arguments.skip_list}
    if arguments.pipeline is not None and (given := [option for option, value in of_photos.items() if value]):
        raise UserError(f"{given[0]} goes with --data: what MODULE:FUNCTION returns is served as it is.")
    dispatcher = _address(arguments.dispatcher, "--dispatcher")
    plan = ServerPlan(
        port=_port(arguments.port, least=0),
        open_to_others=arguments.open,
        dispatcher=dispatcher,
        data=arguments.data,
        pipeline=arguments.pipeline,
        config=_config(arguments) if arguments.data is not None else None,
        skip_list=arguments.skip_list,
        host=arguments.host,
    )
    if not arguments.open and (dispatcher.host not in _HERE or (arguments.host or "localhost") not in _HERE):
        raise UserError("worker needs --open to work for another host: without it no other host can reach this worker.")
    return plan


def read_plan(arguments: argparse.Namespace, out: Path) -> Plan:
    """Checks all options of `local` which can be checked before anything is opened.

    Raises:
      UserError: if an option is wrong; the message has one line.
    """
    check_least(1, rounds=arguments.rounds)
    numbers = split_names(arguments.workers, "--workers")
    for number in numbers:
        if not (number.isdecimal() and 1 <= int(number) <= _MOST_WORKERS):
            raise UserError(f"--workers must be numbers from 1 to {_MOST_WORKERS}. Received: {number}.")
    services = [NO_SERVICE, *(f"local:{int(number)}" for number in numbers)]
    if arguments.service is not None:
        services.append(_address(arguments.service, "--service").text)
    services = list(dict.fromkeys(services))
    device = _device(arguments.device)
    asked = Asked(
        config=_config(arguments),
        services=tuple(services),
        device=device.name if device else None,
        images_per_sec=device.images_per_sec if device else None,
        link_bytes_per_sec=link_bytes_per_sec(arguments.network),
        rounds=arguments.rounds,
        data=without_folder(arguments.data),
    )
    return Plan(asked=asked, data=arguments.data, out=out, skip_list=arguments.skip_list)


def _config(arguments: argparse.Namespace) -> PipelineConfig:
    check_least(1, image_size=arguments.image_size)
    refused = {"service": "this command starts its services itself. Use --workers, or --service HOST:PORT."}
    config = servable(config_of(arguments.config, arguments.set, VARIANTS[VARIANT], refused=refused))
    return replace(config, image_size=(arguments.image_size, arguments.image_size))


def _address(text: str, option: str) -> Address:
    try:
        address = parse_address(text)
    except ConfigError:
        address = None
    if address is None or address.workers:
        raise UserError(f"{option} must be HOST:PORT, such as trainer:5050. Received: {text}.")
    return address


def _port(port: int, *, least: int = 1) -> int:
    if not least <= port < 1 << 16:
        raise UserError(f"--port must be a number from {least} to 65535. Received: {port}.")
    return port


def _device(text: str | None) -> Device | None:
    if text is None:
        return None
    device = device_of(text)
    if device.images_per_sec is None:
        raise UserError(f"--device must be emulated:RATE here: no model is trained. Received: {text}.")
    return device
