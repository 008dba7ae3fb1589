"""Reads what `unstall pipeline --sweep` is asked to do, and refuses what cannot be measured."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from unstall.benchmarks.lab.options import UserError, check_least
from unstall.benchmarks.pipeline.plan import devices_of, models_of, variants_of
from unstall.benchmarks.pipeline.sweep.axes import AXES, Place, Value, read_sweeps
from unstall.models import MODELS
from unstall.pipeline import PipelineConfig
from unstall.profiles import Device
from unstall.profiles.provenance import usable_cores, without_folder

# The tutorial's pipeline, and tf.data as most write it.
_VARIANTS = ("generator", "tf-data-autotune")
# Fewer than three rounds have no interval.
_ROUNDS = 3
# Options of the main job that have no meaning for a sweep, and what to do instead.
_NOT_SWEPT = {
    "list": "leave out --sweep to see the names",
    "cold": "a sweep is measured from the page cache",
    "stages": "the stages are taken apart by a run without --sweep",
    "lines": "the lines are timed by a run without --sweep",
    "thorough": "--rounds says how many rounds a sweep has",
}
# What else sets what an axis changes: fields of a pipeline, by axis.
_SET = {"batch-size": "batch_size", "workers": "workers", "cores": "workers"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A value of an axis for a variant and a model: the place that is measured, or the reason why there is none."""

    axis: str
    value: Value
    variant: str
    model: str
    place: Place | None
    reason: str | None = None

    @property
    def name(self) -> str:
        return f"{self.variant}, {self.axis} {self.value} ({self.model})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is measured. The document of a run keeps all of it.

    Attributes:
      sweeps: the values of each axis; numbers ascend.
      rounds: how many windows of each kind are measured at each place.
      data: the name of the photos, without folders.
    """

    sweeps: Mapping[str, tuple[Value, ...]]
    variants: Mapping[str, PipelineConfig]
    models: tuple[str, ...]
    rounds: int
    data: str

    @property
    def points(self) -> tuple[Point, ...]:
        """Every value of every axis, for each model and variant. Points of several axes may have the same place."""
        return tuple(
            _point(axis, value, Place(variant=variant, config=config, model=model))
            for axis, values in self.sweeps.items()
            for model in self.models
            for variant, config in self.variants.items()
            for value in values
        )

    @property
    def places(self) -> tuple[Place, ...]:
        """The places of all points, each once."""
        return tuple(dict.fromkeys(point.place for point in self.points if point.place is not None))


def _point(axis: str, value: Value, base: Place) -> Point:
    changed = AXES[axis].change(base, value)
    place, reason = (changed, None) if isinstance(changed, Place) else (None, changed)
    return Point(axis=axis, value=value, variant=base.variant, model=base.model, place=place, reason=reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A run: what is measured, of which photos, and where its files go.

    Attributes:
      models: as the user named them, by their names without folders.
      devices: None for "auto".
    """

    asked: Asked
    models: Mapping[str, str]
    devices: tuple[Device, ...] | None
    data: str
    out: Path
    skip_list: Path | None = None
    details: bool = False


def read_plan(arguments: argparse.Namespace, out: Path) -> Plan:
    """Checks all options that can be checked before anything is opened.

    Raises:
      UserError: if an option is wrong; the message has one line, and suggests the nearest known name if there is one.
    """
    for option, instead in _NOT_SWEPT.items():
        if getattr(arguments, option):
            raise UserError(f"--sweep does not go with --{option}: {instead}.")
    check_least(1, rounds=arguments.rounds, batch_size=arguments.batch_size)
    sweeps = read_sweeps(arguments.sweep)
    _check_set_once(sweeps, arguments)
    models, devices = models_of(arguments.model), devices_of(arguments.device)
    plan = Plan(
        asked=Asked(
            sweeps=sweeps,
            variants=variants_of(arguments, _VARIANTS),
            models=tuple(models),
            rounds=arguments.rounds or _ROUNDS,
            data=without_folder(arguments.data),
        ),
        models=models,
        devices=devices,
        data=arguments.data,
        out=out,
        skip_list=arguments.skip_list,
        details=arguments.details,
    )
    _check_cores(sweeps)
    _check_models(sweeps, models)
    for axis in sweeps:
        if not AXES[axis].emulated and devices and all(device.kind == "emulated" for device in devices):
            raise UserError(f"--sweep {axis}: {devices[0].name} sleeps, and has no {axis}. Choose another --device.")
        reasons = [point.reason for point in plan.asked.points if point.axis == axis]
        if all(reasons):
            raise UserError(f"--sweep {axis}: {reasons[0]}. Choose other --variants.")
    return plan


def _check_set_once(sweeps: Mapping[str, object], arguments: argparse.Namespace) -> None:
    fields = {pair.partition("=")[0].strip() for pair in arguments.set}
    for axis in sweeps:
        if axis == "batch-size" and arguments.batch_size is not None:
            raise UserError("--sweep batch-size and --batch-size set the same: leave out one of them.")
        if _SET.get(axis) in fields:
            raise UserError(f"--sweep {axis} and --set {_SET[axis]} set the same: leave out one of them.")


def _check_cores(sweeps: Mapping[str, tuple[Value, ...]]) -> None:
    if "cores" not in sweeps:
        return
    if not hasattr(os, "sched_setaffinity"):
        raise UserError("--sweep cores needs a system that binds processes to cores, such as Linux.")
    most, here = int(sweeps["cores"][-1]), max(1, int(usable_cores()))
    if most > here:
        raise UserError(f"--sweep cores: this process may use {here} cores. Received: {most}.")


def _check_models(sweeps: Mapping[str, tuple[Value, ...]], models: Mapping[str, str]) -> None:
    """Refuses values that a model's input cannot have, and a precision that a file has stored."""
    for name in models:
        if "image-size" in sweeps:
            if name not in MODELS:
                raise UserError(f"--sweep image-size: the input of {name} has a size of its own. Choose one of --list.")
            least = int(sweeps["image-size"][0])
            if least < MODELS[name].least_side:
                raise UserError(
                    f"--sweep image-size: {name} takes {MODELS[name].least_side} pixels a side at least. "
                    f"Received: {least}."
                )
        if "precision" in sweeps and name.endswith(".keras"):
            raise UserError(f"--sweep precision: {name} holds a precision of its own. Give module:function.")
