"""Reads what `unstall devices` is asked to do: the cases of experiments."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from unstall.benchmarks.devices.experiments import EXPERIMENTS, PRECISIONS, Case, Experiment
from unstall.benchmarks.lab.options import UserError, check_least, known_names
from unstall.pipeline.sources import FORMS
from unstall.profiles import Device
from unstall.profiles.devices import NAMED_RATES, parse_device
from unstall.profiles.provenance import without_folder
from unstall.text import did_you_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is measured, and what its figures are derived with. The document of a run keeps all of it.

    Attributes:
      experiments: the names of the experiments.
      precision: the precision of all cases.
      epochs: how many epochs of each case are trained on each device.
      rounds: how many windows of each kind are measured.
      longest_epoch_s: an epoch that would take longer is trained on fewer examples.
      target_accuracy: the accuracy whose time is printed; None for none.
      prices: per hour, by the device's name or kind.
      data: the name of the photos, without folders.
    """

    experiments: tuple[str, ...]
    precision: str
    epochs: int
    rounds: int
    longest_epoch_s: float
    target_accuracy: float | None
    prices: Mapping[str, float]
    data: str

    @property
    def chosen(self) -> dict[str, Experiment]:
        """The experiments to measure, in the precision of this run."""
        return {name: EXPERIMENTS[name].in_precision(self.precision) for name in self.experiments}

    @property
    def cases(self) -> tuple[Case, ...]:
        """All cases to measure, each once."""
        return tuple(dict.fromkeys(case for experiment in self.chosen.values() for case in experiment.cases))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A comparison of devices.

    Attributes:
      emulated: an accelerator to emulate beside the devices of this machine; None for none.
      data: where the photos are.
      arrays: files or folders of data that are no photos, by name; other data are looked for, or generated.
      download: whether Keras may download data that are not on this machine.
      details: whether all tables and sentences are printed.
    """

    asked: Asked
    emulated: Device | None
    data: str
    arrays: Mapping[str, str]
    download: bool
    out: Path
    skip_list: Path | None = None
    details: bool = False


def read_plan(arguments: argparse.Namespace, out: Path) -> Plan:
    """Checks all options that can be checked before anything is opened.

    Raises:
      UserError: if an option is wrong; the message has one line, and suggests the nearest known name if there is one.
    """
    check_least(1, epochs=arguments.epochs, rounds=arguments.rounds)
    if not 0 < arguments.longest_epoch < math.inf:
        raise UserError(f"--longest-epoch must be a number of seconds above 0. Received: {arguments.longest_epoch}.")
    if arguments.target_accuracy is not None and not 0 < arguments.target_accuracy <= 1:
        raise UserError(f"--target-accuracy must be above 0 and at most 1. Received: {arguments.target_accuracy}.")
    precisions = known_names(arguments.precision, "--precision", PRECISIONS)
    if len(precisions) > 1:
        raise UserError(
            f"--precision takes one. To compare them: unstall pipeline --sweep precision={','.join(precisions)}."
        )
    emulated = _emulated(arguments.emulate)
    return Plan(
        asked=Asked(
            experiments=_experiments(arguments.experiment),
            precision=precisions[0],
            epochs=arguments.epochs,
            rounds=arguments.rounds,
            longest_epoch_s=arguments.longest_epoch,
            target_accuracy=arguments.target_accuracy,
            prices=_prices(arguments.price, emulated),
            data=without_folder(arguments.data),
        ),
        emulated=emulated,
        data=arguments.data,
        arrays=_arrays(arguments.arrays),
        download=arguments.download,
        out=out,
        skip_list=arguments.skip_list,
        details=arguments.details,
    )


def _experiments(text: str) -> tuple[str, ...]:
    names = known_names(text, "--experiment", [*EXPERIMENTS, "all"])
    return tuple(EXPERIMENTS) if "all" in names else names


def _emulated(rate: str | None) -> Device | None:
    if rate is None:
        return None
    try:
        return parse_device(f"emulated:{rate}")
    except ValueError:
        names = ", ".join(NAMED_RATES)
        raise UserError(
            f"--emulate must be images/sec above 0 and at most 10,000,000, or one of {names}. Received: {rate!r}."
        ) from None


def _arrays(text: str | None) -> dict[str, str]:
    """Reads NAME=PATH pairs."""
    paths: dict[str, str] = {}
    for pair in [] if text is None else text.split(","):
        name, equals, path = (part.strip() for part in pair.partition("="))
        if not equals or name not in FORMS:
            near = did_you_mean(name, FORMS)
            raise UserError(f"--arrays needs NAME=PATH of {', '.join(FORMS)}.{near} Received: {pair!r}.")
        if not Path(path).exists():
            raise UserError(f"--arrays {name}: {path} does not exist.")
        paths[name] = path
    return paths


def _prices(text: str | None, emulated: Device | None) -> dict[str, float]:
    """Reads DEVICE=PRICE pairs."""
    prices: dict[str, float] = {}
    names = ["cpu", "gpu", *([emulated.name, "emulated"] if emulated is not None else [])]
    for pair in [] if text is None else text.split(","):
        name, _, number = (part.strip() for part in pair.rpartition("="))
        if name not in names:
            raise UserError(f"--price needs DEVICE=PRICE of {', '.join(names)}, such as cpu=0.10. Received: {pair!r}.")
        if name in prices:
            raise UserError(f"--price names {name} twice. Received: {text!r}.")
        try:
            prices[name] = float(number)
        except ValueError:
            prices[name] = math.nan
        if not 0 <= prices[name] < math.inf:
            raise UserError(f"--price {name} must be a number per hour, at least 0. Received: {number!r}.")
    return prices
