"""Watches every `fit` of a script, from outside: Keras' own `fit` is replaced by one that adds a callback."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import keras
import numpy as np

from profiles import clock
from profiles.backends import device_here
from profiles.ceilings import Ceilings, measure_ceilings
from profiles.devices import Device
from profiles.fits import FitRecord
from profiles.watch import Watch, WatchCallback

# Batches kept for the ceilings; data kept for the stage tables, each with its model.
_KEPT_BATCHES, _KEPT_DATA = 4, 3


class Profiler:
    """Collects what the `fit` calls of a script come to.

    Args:
      ceilings: whether to run the model apart after each `fit`.
      max_steps: steps after which `fit` is left with SystemExit(0), counted over the whole script; None for no end.

    Attributes:
      fits: those that made a step, in order.
      seen: for some of them, by name: model and data, for the stage tables.
    """

    def __init__(self, *, ceilings: bool, max_steps: int | None) -> None:
        self.fits: list[FitRecord] = []
        self.seen: dict[str, tuple[Any, Any]] = {}
        self._ceilings = ceilings
        self._max_steps = max_steps
        self._steps = 0
        self._calls = 0
        self._depth = 0
        self._paused = False
        self._patched: tuple[type, Callable[..., Any]] | None = None

    def attach(self) -> None:
        """Replaces `fit` in the class that Keras models get it from."""
        owner = next(one for one in keras.Model.__mro__ if "fit" in vars(one))
        original = vars(owner)["fit"]
        profiler, signature = self, inspect.signature(original)

        @functools.wraps(original)
        def fit(model: Any, *arguments: Any, **options: Any) -> Any:
            if profiler._paused:
                return original(model, *arguments, **options)
            try:
                bound = signature.bind(model, *arguments, **options)
            except TypeError:
                return original(model, *arguments, **options)  # says what is wrong
            return profiler._fit(original, bound, _place(sys._getframe(1)))

        owner.fit = fit
        self._patched = (owner, original)

    def detach(self) -> None:
        """Gives Keras its own `fit` back."""
        if self._patched is not None:
            owner, original = self._patched
            owner.fit = original  # type: ignore[attr-defined]
            self._patched = None

    def pause(self) -> None:
        """From now on `fit` is ours: nothing of it is watched."""
        self._paused = True

    def _fit(self, original: Callable[..., Any], bound: inspect.BoundArguments, place: str) -> Any:
        self._calls += 1
        name = f"fit {self._calls} ({place})"
        model, data = bound.arguments["self"], bound.arguments.get("x")
        canary_ns = clock.canary_ns()
        workers = getattr(data, "workers", None)
        callback = WatchCallback(
            keep_batches=_KEPT_BATCHES if self._ceilings else 0,
            ramp_steps=max(2, workers if isinstance(workers, int) else 0),
            on_steps=self._count,
        )
        given = bound.arguments.get("callbacks")
        if isinstance(given, keras.callbacks.CallbackList):
            callback.set_model(model)
            callback.set_params(given.params)
            given.callbacks.insert(0, callback)
        else:
            bound.arguments["callbacks"] = [callback, *keras.tree.flatten(given or [])]
        whole = interrupted = False
        self._depth += 1
        try:
            returned = original(*bound.args, **bound.kwargs)
            whole = True
        except (Exception, KeyboardInterrupt):
            interrupted = True
            raise
        finally:
            self._depth -= 1
            if isinstance(given, keras.callbacks.CallbackList):
                given.callbacks.remove(callback)
            if callback.watch is not None:
                callback.watch.close()
                if callback.watch.epochs:
                    self._note(name, model, data, callback.watch, canary_ns, whole=whole, interrupted=interrupted)
        return returned

    def _count(self, steps: int) -> None:
        self._steps += steps
        if self._max_steps is not None and self._steps >= self._max_steps:
            raise SystemExit(0)

    def _note(
        self, name: str, model: Any, data: Any, watch: Watch, canary_ns: int, *, whole: bool, interrupted: bool
    ) -> None:
        self.fits.append(
            FitRecord(
                name=name,
                model=model.name,
                data_kind=data_kind(data),
                epochs=tuple(watch.records),
                device=_device(),
                ceilings=self._measure_ceilings(model, watch, interrupted),
                canary_ns=canary_ns,
                training=_training(model, data),
                why_unknown=watch.why_unknown,
                whole=whole,
            )
        )
        new = not any(seen is data for _, seen in self.seen.values())
        if new and _is_re_iterable(data) and len(self.seen) < _KEPT_DATA:
            self.seen[name] = (model, data)

    def _measure_ceilings(self, model: Any, watch: Watch, interrupted: bool) -> Ceilings:
        if not self._ceilings:
            return Ceilings(samples=(), reason="--no-ceilings")
        if interrupted:
            return Ceilings(samples=(), reason="fit was interrupted")
        if self._depth:
            return Ceilings(samples=(), reason="fit was called inside another fit")
        self._paused = True
        try:
            return measure_ceilings(model, watch, first_round=watch.epochs)
        finally:
            self._paused = False


def data_kind(data: Any) -> str:
    """Says in plain words what `fit` was given."""
    if hasattr(data, "element_spec"):
        return "a tf.data.Dataset"
    if any(one.__module__.endswith("preprocessing.image") and one.__name__ == "Iterator" for one in type(data).__mro__):
        return "an ImageDataGenerator iterator"
    if isinstance(data, keras.utils.PyDataset):
        return f"a PyDataset ({type(data).__name__})"
    if isinstance(data, np.ndarray):
        return "NumPy arrays"
    if inspect.isgenerator(data):
        return "a generator"
    if isinstance(data, (dict, list, tuple)):
        return f"{type(data).__name__} of arrays"
    return f"{'an iterator' if hasattr(data, '__next__') else 'data'} of type {type(data).__name__}"


def _is_re_iterable(data: Any) -> bool:
    return hasattr(data, "element_spec") or isinstance(data, keras.utils.PyDataset)


def _place(frame: Any) -> str:
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def _device() -> Device:
    try:
        return device_here()
    except ValueError:
        return Device(kind="cpu", name="unknown")


def _training(model: Any, data: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "data": data_kind(data),
        "jit_compile": bool(model.jit_compile),
        "steps_per_execution": model.steps_per_execution,
    }
    with suppress(AttributeError, ValueError):
        facts["parameters"] = model.count_params()
    if model.optimizer is not None:
        facts["optimizer"] = type(model.optimizer).__name__
    if isinstance(model.loss, str):
        facts["loss"] = model.loss
    if isinstance(data, keras.utils.PyDataset):
        facts["workers_asked"] = data.workers
    return facts
