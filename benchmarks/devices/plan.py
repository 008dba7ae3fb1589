"""Reads what `unstall devices` is asked to do: cases, and sweeps that change one setting of a case.

`--sweep` is not an axis of `benchmarks.scaling`, which measures loaders without a network: precision and steps per
execution would change nothing there, and that command would need a copy of this command's child, samples, results and
tables for training rates, advantages, peaks and predictions.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from unstall.benchmarks.devices.experiments import EXPERIMENTS, FLOAT32, PRECISIONS, Case, Experiment
from unstall.benchmarks.lab.options import DATA, UserError, check_least, known_names
from unstall.parser import ArgumentParser
from unstall.pipeline.sources import FORMS, add_skip_list_option
from unstall.profiles import Device
from unstall.profiles.devices import NAMED_RATES, parse_device
from unstall.profiles.provenance import without_folder
from unstall.text import did_you_mean

Value = int | str


def _batch_size(case: Case, value: Value) -> Case | str:
    size = int(value)
    config = case.config if case.config is None else replace(case.config, batch_size=size)
    return replace(case, config=config, batch_size=size)


def _workers(case: Case, value: Value) -> Case | str:
    if case.config is None:
        return "its data lie in memory: no workers fetch them"
    return replace(case, config=replace(case.config, workers=int(value)))


def _precision(case: Case, value: Value) -> Case | str:
    return replace(case, precision=str(value))


def _steps_per_execution(case: Case, value: Value) -> Case | str:
    return replace(case, steps_per_execution=int(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A setting of a case that can be swept.

    Attributes:
      change: returns the case with another value of the setting, or the reason why the case has no such setting.
      most: the largest value; None where values are names.
      example: values for error messages.
    """

    change: Callable[[Case, Value], Case | str]
    most: int | None
    example: str


AXES: Mapping[str, Axis] = MappingProxyType(
    {
        "batch-size": Axis(change=_batch_size, most=65_536, example="32,64,128,512"),
        "workers": Axis(change=_workers, most=64, example="1,2,4"),
        "precision": Axis(change=_precision, most=None, example=",".join(PRECISIONS)),
        "steps-per-execution": Axis(change=_steps_per_execution, most=1000, example="1,4,16"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """An axis and its values, in the order of the command line."""

    axis: str
    values: tuple[Value, ...]

    def case(self, base: Case, value: Value) -> Case | str:
        """Returns the case with a value of the axis, or the reason why the case has no such setting."""
        return AXES[self.axis].change(base, value)


def read_sweep(text: str) -> Sweep:
    """Reads AXIS=VALUE,VALUE.

    Raises:
      UserError: if the axis is unknown, or cannot have a value.
    """
    axis, equals, values = text.partition("=")
    if axis not in AXES:
        raise UserError(f"--sweep: {axis!r} is not known.{did_you_mean(axis, AXES)} Known: {', '.join(AXES)}.")
    words = [word.strip() for word in values.split(",") if word.strip()]
    if not equals or not words:
        raise UserError(f"--sweep {axis} needs values, such as {axis}={AXES[axis].example}. Received: {text!r}.")
    return Sweep(axis=axis, values=tuple(dict.fromkeys(_value(axis, word) for word in words)))


def _value(axis: str, word: str) -> Value:
    most = AXES[axis].most
    if most is None:
        if word not in PRECISIONS:
            names = ", ".join(PRECISIONS)
            raise UserError(f"--sweep {axis}: {word!r} is not known.{did_you_mean(word, PRECISIONS)} Known: {names}.")
        return word
    if not (word.isascii() and word.isdigit() and 1 <= int(word) <= most):
        raise UserError(f"--sweep {axis}: values must be whole numbers from 1 to {most:,}. Received: {word!r}.")
    return int(word)


# The shortest of the published experiments.
_EXPERIMENT = "mnist"
# The first epoch traces the network and fills buffers; the second takes as long as all later epochs.
_EPOCHS = 2
# Fewer than three rounds have no interval.
_ROUNDS = 3
_LONGEST_EPOCH_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is measured, and what its figures are derived with. The document of a run keeps all of it.

    Attributes:
      experiments: the names of the experiments.
      precision: the precision of all cases.
      sweeps: if there are any, their cases are measured instead of the experiments' cases.
      epochs: how many epochs of each case are trained on each device.
      rounds: how many windows of each kind are measured.
      longest_epoch_s: an epoch that would take longer is trained on fewer examples.
      target_accuracy: the accuracy whose time is printed; None for none.
      prices: per hour, by the device's name or kind.
      data: the name of the photos, without folders.
    """

    experiments: tuple[str, ...]
    precision: str
    sweeps: tuple[Sweep, ...]
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
        if not self.sweeps:
            return tuple(dict.fromkeys(case for experiment in self.chosen.values() for case in experiment.cases))
        return tuple(dict.fromkeys(case for _, case in self._swept if isinstance(case, Case)))

    @property
    def without(self) -> tuple[tuple[str, str], ...]:
        """Which sweeps of which cases are impossible, and why."""
        return tuple(dict.fromkeys((name, case) for name, case in self._swept if isinstance(case, str)))

    @property
    def _swept(self) -> list[tuple[str, Case | str]]:
        return [
            (f"{base.name}, {sweep.axis}", sweep.case(base, value))
            for sweep in self.sweeps
            for experiment in self.chosen.values()
            for base in experiment.swept
            for value in sweep.values
        ]


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


def parser() -> argparse.ArgumentParser:
    arguments = ArgumentParser(
        prog="unstall devices",
        description="Reproduces the published comparisons of CPU and GPU, and says how much of a GPU's advantage "
        "loading takes.",
        epilog="With KERAS_BACKEND=jax, JAX trains and TensorFlow only loads.",
        allow_abbrev=False,  # a shortened --inference would run the experiments
    )
    add = arguments.add_argument
    add("--experiment", default=_EXPERIMENT, metavar="NAME,...", help=f"names, or all (default: {_EXPERIMENT})")
    add("--epochs", type=int, default=_EPOCHS, metavar="N", help=f"epochs of each case (default: {_EPOCHS})")
    add("--precision", default=FLOAT32, metavar="NAME", help=f"{', '.join(PRECISIONS)} (default: {FLOAT32})")
    add("--emulate", metavar="RATE", help="emulates an accelerator beside the devices here: images/sec, or a name")
    add(
        "--sweep",
        action="append",
        default=[],
        metavar="AXIS=VALUE,...",
        help=f"changes a setting of the experiment: {', '.join(AXES)}",
    )
    add("--price", metavar="DEV=X,...", help="per hour of a device, in any currency: cpu=0.10,gpu=0.90")
    add("--target-accuracy", type=float, metavar="X", help="prints the time to this accuracy, 0 to 1")
    add("--data", default=DATA, metavar="DIR|tfds:NAME|generated:N", help=f"photos (default: {DATA})")
    add_skip_list_option(arguments)
    add("--arrays", metavar="NAME=PATH,...", help=f".npz files of the published data: {', '.join(FORMS)}")
    add("--download", action="store_true", help="lets keras.datasets download the published data that are not here")
    add("--rounds", type=int, default=_ROUNDS, metavar="N", help=f"windows of each kind (default: {_ROUNDS})")
    add(
        "--longest-epoch",
        type=float,
        default=_LONGEST_EPOCH_S,
        metavar="S",
        help=f"seconds; a longer epoch is cut short and extrapolated (default: {_LONGEST_EPOCH_S:.0f})",
    )
    add("--details", action="store_true", help="prints all tables and sentences, and the published figures")
    add("--list", action="store_true", help="lists the experiments and what was published, and ends")
    add(
        "--inference",
        action="store_true",
        help="predicts in float32, bfloat16 and int8 instead; --inference --help lists its options",
    )
    add("--check", action="store_true", help="lists the devices that can compute, tries each, and ends")
    return arguments


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
        raise UserError(f"--precision takes one. To compare them: --sweep precision={','.join(precisions)}.")
    emulated = _emulated(arguments.emulate)
    plan = Plan(
        asked=Asked(
            experiments=_experiments(arguments.experiment),
            precision=precisions[0],
            sweeps=tuple(map(read_sweep, arguments.sweep)),
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
    if not plan.asked.cases:
        raise UserError(f"--sweep {arguments.sweep[0]}: {plan.asked.without[0][1]}. Choose another --experiment.")
    return plan


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
