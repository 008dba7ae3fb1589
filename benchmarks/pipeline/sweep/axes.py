"""Lists the settings that `--sweep` changes, and reads their values from the command line."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from unstall.benchmarks.devices.experiments import FLOAT32, PRECISIONS
from unstall.benchmarks.lab.options import UserError
from unstall.pipeline import ConfigError, PipelineConfig
from unstall.pipeline.config import AUTO
from unstall.text import did_you_mean

Value = int | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What is measured for a value: a pipeline, the model that it feeds, and the cores of the process.

    Attributes:
      variant, model: names.
      image_size: pixels a side of the model's input; None for the model's own.
      precision: the dtype policy of the model, as Keras names it.
      steps_per_execution: as Keras' `compile` takes it; None where it is no subject, and every step is timed.
      cores: how many cores the process may use; None for all.
    """

    variant: str
    config: PipelineConfig
    model: str
    image_size: int | None = None
    precision: str = FLOAT32
    steps_per_execution: int | None = None
    cores: int | None = None

    @property
    def name(self) -> str:
        """Names the place in words; no two places have the same name."""
        cores = f", {self.cores} cores" if self.cores else ""
        return f"{self.variant}: {self.opened}, batch {self.config.batch_size}, workers {self.config.workers}{cores}"

    @property
    def opened(self) -> str:
        """Names the model in a process that opens it in several ways."""
        parts = [self.model]
        if self.image_size is not None:
            parts.append(f"{self.image_size} px")
        if self.precision != FLOAT32:
            parts.append(self.precision)
        if self.steps_per_execution is not None:
            parts.append(f"{self.steps_per_execution} steps an execution")
        return ", ".join(parts)


def _batch_size(place: Place, value: Value) -> Place | str:
    return replace(place, config=replace(place.config, batch_size=int(value)))


def _workers(place: Place, value: Value) -> Place | str:
    if place.config.loader == "image_dataset_from_directory":
        return "Keras' image_dataset_from_directory has no number of workers"
    try:
        return replace(place, config=replace(place.config, workers=int(value)))
    except ConfigError as error:
        return str(error)


def _image_size(place: Place, value: Value) -> Place | str:
    return replace(place, image_size=int(value))


def _cores(place: Place, value: Value) -> Place | str:
    # As many workers as cores, unless the variant leaves the number of workers to tf.data's tuner.
    workers = place.config.workers if place.config.workers == AUTO else int(value)
    return replace(place, config=replace(place.config, workers=workers), cores=int(value))


def _precision(place: Place, value: Value) -> Place | str:
    return replace(place, precision=str(value))


def _steps_per_execution(place: Place, value: Value) -> Place | str:
    return replace(place, steps_per_execution=int(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A setting that can be swept.

    Attributes:
      change: returns the place with another value of the setting, or the reason why the place has no such setting.
      at: a value in words, as in "at 4 workers"; `span`: from a value to another.
      most: the largest value; 0 where values are names.
      example: values for error messages.
      emulated: whether a device that computes nothing has this setting.
    """

    change: Callable[[Place, Value], Place | str]
    at: str
    span: str
    most: int
    example: str
    emulated: bool = True


AXES: Mapping[str, Axis] = MappingProxyType(
    {
        "batch-size": Axis(
            change=_batch_size,
            at="batch size {}",
            span="batch size {} to {}",
            most=65_536,
            example="32,64,128,512",
        ),
        "workers": Axis(change=_workers, at="{} workers", span="{} to {} workers", most=64, example="1,2,4"),
        "image-size": Axis(
            change=_image_size,
            at="{} pixels a side",
            span="{} to {} pixels a side",
            most=1024,
            example="32,64,128",
        ),
        "cores": Axis(change=_cores, at="{} cores", span="{} to {} cores", most=1024, example="1,2,4"),
        "precision": Axis(
            change=_precision,
            at="{}",
            span="{} to {}",
            most=0,
            example=",".join(PRECISIONS),
            emulated=False,
        ),
        "steps-per-execution": Axis(
            change=_steps_per_execution,
            at="{} steps an execution",
            span="{} to {} steps an execution",
            most=1000,
            example="1,4,16",
            emulated=False,
        ),
    }
)


def read_sweeps(texts: Sequence[str]) -> dict[str, tuple[Value, ...]]:
    """Reads AXIS=VALUE,VALUE, once or several times. Returns the values of each axis.

    Raises:
      UserError: if an axis is unknown or comes twice, or cannot have these values.
    """
    sweeps: dict[str, tuple[Value, ...]] = {}
    for text in texts:
        axis, _, listed = text.partition("=")
        if axis not in AXES:
            raise UserError(f"--sweep: {axis!r} is not known.{did_you_mean(axis, AXES)} Known: {', '.join(AXES)}.")
        if axis in sweeps:
            raise UserError(f"--sweep {axis} is given twice: give all of its values at once.")
        words = [word.strip() for word in listed.split(",") if word.strip()]
        if len(words) < 2:
            raise UserError(
                f"--sweep {axis} needs two values at least, such as {axis}={AXES[axis].example}. Received: {text!r}."
            )
        sweeps[axis] = tuple(_value(axis, word) for word in words)
        _check_order(axis, sweeps[axis], listed)
    return sweeps


def _value(axis: str, word: str) -> Value:
    most = AXES[axis].most
    if not most:
        if word not in PRECISIONS:
            names = ", ".join(PRECISIONS)
            raise UserError(f"--sweep {axis}: {word!r} is not known.{did_you_mean(word, PRECISIONS)} Known: {names}.")
        return word
    if not (re.fullmatch(r"[0-9]{1,9}", word) and 1 <= int(word) <= most):
        raise UserError(f"--sweep {axis}: values must be whole numbers from 1 to {most:,}. Received: {word!r}.")
    return int(word)


def _check_order(axis: str, values: tuple[Value, ...], listed: str) -> None:
    """Refuses a value that comes twice, and numbers that do not ascend."""
    if len(set(values)) < len(values):
        raise UserError(f"--sweep {axis}: each value comes once. Received: {listed!r}.")
    if AXES[axis].most and list(values) != sorted(values, key=int):
        raise UserError(f"--sweep {axis}: values must ascend. Received: {listed!r}.")
