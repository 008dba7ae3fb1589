"""Sweeps: one thing about a case changed through some values, all else as it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from benchmarks.experiments import PRECISIONS, Case
from benchmarks.options import UserError
from pipeline.config import did_you_mean

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
    """What can be swept.

    Attributes:
      change: returns a case with one value of it, or says why it has none.
      most: the largest number; None where the values are no numbers.
      example: values to try.
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
    """An axis, and the values on it, in the order in which they were given."""

    axis: str
    values: tuple[Value, ...]

    def case(self, base: Case, value: Value) -> Case | str:
        """Returns a case with one of the values, or says why it has none."""
        return AXES[self.axis].change(base, value)


def read_sweep(text: str) -> Sweep:
    """Reads AXIS=VALUE,VALUE.

    Raises:
      UserError: at an unknown axis, or a value that it cannot have.
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
            known = ", ".join(PRECISIONS)
            raise UserError(f"--sweep {axis}: {word!r} is not known.{did_you_mean(word, PRECISIONS)} Known: {known}.")
        return word
    if not (word.isascii() and word.isdigit() and 1 <= int(word) <= most):
        raise UserError(f"--sweep {axis}: values must be whole numbers from 1 to {most:,}. Received: {word!r}.")
    return int(word)
