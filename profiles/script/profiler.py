"""Watches every `fit` of a script, from outside: Keras' own `fit` is replaced by one that adds a callback."""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np

from profiles import clock
from profiles.devices import Device
from profiles.measure import backends
from profiles.script.ceilings import measure_ceilings
from profiles.script.hooks import time_hooks
from profiles.script.results import Ceilings, FitRecord, again
from profiles.script.run import wait_for_threads
from profiles.script.watch import Watch, WatchCallback

# Batches kept for the ceilings; data that is read again for stage tables.
_KEPT_BATCHES, _READ_AGAIN = 4, 3
# What all ceilings of a script may take: so much, and this part of what its `fit` calls took.
_CEILINGS_S, _CEILINGS_RATIO = 20.0, 0.1


class Profiler:
    """Collects what the `fit` calls of a script come to.

    Of a `fit` that has ended neither the model nor a batch is held. For the stage tables data is read again when the
    script has ended: that of the `fit` that took longest is held for this, other data is read where the script still
    holds it.

    Args:
      ceilings: whether to run the model apart after each `fit`.
      max_steps: steps after which `fit` is left with SystemExit(0), counted over the whole script; None for no end.

    Attributes:
      fits: those that made a step, in order; calls of one line on one model count as one.
    """

    def __init__(self, *, ceilings: bool, max_steps: int | None) -> None:
        self.fits: list[FitRecord] = []
        self._ceilings = ceilings
        self._max_steps = max_steps
        self._steps = 0
        # A script may train in several threads.
        self._here = _ThisThread()
        self._running: set[threading.Thread] = set()
        self._changed = threading.Condition()
        self._ended = False
        self._noting = threading.Lock()
        self._called: list[_Called] = []
        self._data: dict[str, _Data] = {}
        self._held: Any = None
        self._fit_s = self._ceilings_s = 0.0
        self._patched: tuple[type, Callable[..., Any]] | None = None
        self._untime_hooks: Callable[[], None] | None = None

    @property
    def seen(self) -> Mapping[str, Any]:
        """The data of each `fit` whose kind can be read again, by the name of the `fit`, for the stage tables.

        None for data that is gone, for what a longer `fit` was fed as well, and beyond three.
        """
        found: dict[str, Any] = dict.fromkeys(self._data)
        left = _READ_AGAIN
        for name, fed in sorted(self._data.items(), key=lambda item: item[1].took_ns, reverse=True):
            data = fed.data()
            if left and data is not None and not any(data is other for other in found.values()):
                found[name] = data
                left -= 1
        return found

    def attach(self) -> None:
        """Replaces `fit` in the class that Keras models get it from, and times the hooks of callback lists."""
        owner = next(one for one in keras.Model.__mro__ if "fit" in vars(one))
        original = vars(owner)["fit"]
        profiler, signature = self, inspect.signature(original)

        @functools.wraps(original)
        def fit(model: Any, *arguments: Any, **options: Any) -> Any:
            if profiler._ended or profiler._here.paused:
                return original(model, *arguments, **options)
            try:
                bound = signature.bind(model, *arguments, **options)
            except TypeError:
                return original(model, *arguments, **options)  # says what is wrong
            return profiler._fit(original, bound, _place(sys._getframe(1)))

        owner.fit = fit
        self._patched = (owner, original)
        self._untime_hooks = time_hooks()

    def detach(self) -> None:
        """Gives Keras its own `fit` and hooks back."""
        if self._patched is not None:
            owner, original = self._patched
            owner.fit = original  # type: ignore[attr-defined]
            self._patched = None
        if self._untime_hooks is not None:
            self._untime_hooks()
            self._untime_hooks = None

    def backend(self) -> dict[str, Any]:
        """Describes Keras and its backend."""
        return backends.backend()

    def wait(self) -> None:
        """Waits for threads that may train; of an executor's, for those that do."""
        wait_for_threads()
        with self._changed:
            self._changed.wait_for(lambda: all(one.daemon or not one.is_alive() for one in self._running))

    def pause(self) -> None:
        """From now on `fit` is ours: nothing of it is watched."""
        self._ended = True

    @contextmanager
    def _counted_as_running(self) -> Iterator[None]:
        """Notes that this thread is inside a `fit` of the script's."""
        thread = threading.current_thread()
        self._here.depth += 1
        with self._changed:
            self._running.add(thread)
        try:
            yield
        finally:
            self._here.depth -= 1
            with self._changed:
                if not self._here.depth:
                    self._running.discard(thread)
                self._changed.notify_all()

    def _fit(self, original: Callable[..., Any], bound: inspect.BoundArguments, place: str) -> Any:
        model, data = bound.arguments["self"], bound.arguments.get("x")
        canary_ns, began_ns = clock.canary_ns(), clock.now_ns()
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
        with self._counted_as_running():
            try:
                returned = original(*bound.args, **bound.kwargs)
                whole = True
            except (Exception, KeyboardInterrupt):
                interrupted = True
                raise
            finally:
                self._fit_s += (clock.now_ns() - began_ns) / 1e9
                if isinstance(given, keras.callbacks.CallbackList):
                    given.callbacks.remove(callback)
                if callback.watch is not None:
                    callback.watch.close()
                    try:
                        if callback.watch.epochs:
                            self._note(
                                place, model, data, callback.watch, canary_ns, whole=whole, interrupted=interrupted
                            )
                    finally:  # the frames of an error that the script keeps hold the callback
                        callback.watch.kept.clear()
        return returned

    def _count(self, steps: int) -> None:
        self._steps += steps
        if self._max_steps is not None and self._steps >= self._max_steps:
            raise SystemExit(0)

    def _note(
        self, place: str, model: Any, data: Any, watch: Watch, canary_ns: int, *, whole: bool, interrupted: bool
    ) -> None:
        with self._noting:
            called = next((one for one in self._called if one.is_of(place, model, data)), None)
            ceilings = self._ceilings_of(model, watch, interrupted, called)
            fit = FitRecord(
                name=f"fit {len(self.fits) + 1} ({place})" if called is None else self.fits[called.at].name,
                model=model.name,
                data_kind=data_kind(data),
                epochs=tuple(watch.records),
                device=_device(),
                ceilings=ceilings,
                canary_ns=canary_ns,
                training=_training(model, data),
                why_unknown=watch.why_unknown,
                whole=whole,
            )
            if called is None:
                self._called.append(_Called(place, model, data, at=len(self.fits)))
                self.fits.append(fit)
            else:
                self.fits[called.at] = again(self.fits[called.at], fit)
            if _is_re_iterable(data):
                fed = self._data.setdefault(fit.name, _Data())
                fed.data = weakref.ref(data)
                fed.took_ns += _took_ns(watch)
                if fed is max(self._data.values(), key=lambda one: one.took_ns):
                    self._held = data

    def _ceilings_of(self, model: Any, watch: Watch, interrupted: bool, called: _Called | None) -> Ceilings:
        if not self._ceilings:
            return Ceilings(samples=(), reason="--no-ceilings")
        if interrupted:
            return Ceilings(samples=(), reason="fit was interrupted")
        if self._here.depth > 1:
            return Ceilings(samples=(), reason="fit was called inside another fit")
        if called is not None and self.fits[called.at].ceilings.samples:
            return self.fits[called.at].ceilings
        if self._ceilings_s > _CEILINGS_S + _CEILINGS_RATIO * self._fit_s:
            return Ceilings(samples=(), reason=f"those of earlier fits took {self._ceilings_s:.0f} s")
        began_ns = clock.now_ns()
        self._here.paused = True
        try:
            return measure_ceilings(model, watch, first_round=watch.records[-1].epoch + 1)
        finally:
            self._here.paused = False
            self._ceilings_s += (clock.now_ns() - began_ns) / 1e9


class _ThisThread(threading.local):
    """How many `fit` calls this thread is inside of, and whether those it makes now are ours."""

    depth = 0
    paused = False


class _Called:
    """One place of a script that has called `fit`: what it comes to there, again and again, is summed up.

    Another model, or one that was compiled anew, is another one. None of them is kept alive.
    """

    def __init__(self, place: str, model: Any, data: Any, at: int) -> None:
        self.at = at
        self._place = (place, data_kind(data))
        self._model: Callable[[], Any] = weakref.ref(model)
        self._optimizer: Callable[[], Any] = weakref.ref(model.optimizer) if model.optimizer else lambda: None

    def is_of(self, place: str, model: Any, data: Any) -> bool:
        same = self._model() is model and self._optimizer() is model.optimizer
        return same and self._place == (place, data_kind(data))


@dataclass(slots=True)
class _Data:
    """What the calls of one row were fed: a reference to the data of the last, and how long all of them took."""

    data: Callable[[], Any] = lambda: None
    took_ns: int = 0


def _took_ns(watch: Watch) -> int:
    return sum(record.outer_ns for record in watch.records)


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
        return backends.device_here()
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
