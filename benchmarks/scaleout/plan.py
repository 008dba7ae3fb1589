"""Reads what `unstall scaleout` is asked to do."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path

from unstall.benchmarks.lab.options import UserError, check_model, config_of, device_of, link_bytes_per_sec, servable
from unstall.benchmarks.scaleout.check.plan import CheckPlan, read_check
from unstall.benchmarks.scaleout.model import Hosts
from unstall.benchmarks.scaleout.parser import VARIANT
from unstall.pipeline import VARIANTS, PipelineConfig
from unstall.profiles import Device
from unstall.profiles.provenance import usable_cores, without_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a decision is asked for; kept in the document of a run.

    Attributes:
      config: the pipeline, without a service.
      model: the name of the network that consumes the batches, without folders.
      device: what trains it.
      goal_ratio: how far the device is to be used.
      data: the photos' name, without folders.
    """

    config: PipelineConfig
    model: str
    device: Device
    hosts: Hosts
    goal_ratio: float
    data: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A decision: what was asked, which photos are used, and where the files of the run go.

    Attributes:
      data, model: as the user named them.
    """

    asked: Asked
    data: str
    model: str
    out: Path
    skip_list: Path | None = None


def read_plan(arguments: argparse.Namespace, out: Path) -> Plan | CheckPlan:
    """Checks all options that can be checked before anything is opened.

    Raises:
      UserError: if an option is wrong; the message has one line.
    """
    if arguments.check:
        return read_check(arguments, out)
    for option, default in (("only", None), ("loopback", False), ("rounds", None)):
        if getattr(arguments, option) is not default:
            raise UserError(f"--{option} needs --check.")
    return Plan(
        asked=_asked(arguments),
        data=arguments.data,
        model=arguments.model,
        out=out,
        skip_list=arguments.skip_list,
    )


def _asked(arguments: argparse.Namespace) -> Asked:
    if not 0 < arguments.goal <= 1:
        raise UserError(f"--goal must be above 0 and at most 1. Received: {arguments.goal}.")
    check_model(arguments.model)
    return Asked(
        config=read_config(arguments),
        model=without_folder(arguments.model),
        device=device_of(arguments.device),
        hosts=read_hosts(arguments),
        goal_ratio=arguments.goal,
        data=without_folder(arguments.data),
    )


def read_hosts(arguments: argparse.Namespace) -> Hosts:
    """Reads the options of `add_hosts`.

    Raises:
      UserError: if an option is wrong; the message has one line.
    """
    if (arguments.worker_price is None) != (arguments.trainer_price is None):
        raise UserError("--worker-price and --trainer-price must be given together.")
    return Hosts(
        worker_cores=_positive(arguments.worker_cores, "--worker-cores", usable_cores()),
        trainer_cores=_positive(arguments.trainer_cores, "--trainer-cores", usable_cores()),
        worker_price=_price(arguments.worker_price, "--worker-price"),
        trainer_price=_price(arguments.trainer_price, "--trainer-price"),
        link_bytes_per_sec=link_bytes_per_sec(arguments.network),
        delay_s=_at_least_0(arguments.delay, "--delay") / 1e3,
    )


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


def read_config(arguments: argparse.Namespace) -> PipelineConfig:
    """Reads --config and --set: a pipeline that a service can serve.

    Raises:
      UserError: if an option is wrong; the message has one line.
    """
    refused = dict.fromkeys(("service", "served"), "this command chooses it.")
    return servable(config_of(arguments.config, arguments.set, VARIANTS[VARIANT], refused=refused))
