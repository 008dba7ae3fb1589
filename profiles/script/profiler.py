"""Watches every `fit` of a script: replaces Keras' `fit` by a function that adds a callback.

Over 400 lines: what the replaced `fit` does before, during and after a call shares one set of records and locks.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

import keras

from unstall.profiles import clock
from unstall.profiles.code_line import CodeLine, line_of
from unstall.profiles.data import adapter
from unstall.profiles.devices import Device
from unstall.profiles.measure import backends
from unstall.profiles.measure.epochs import EpochRecord
from unstall.profiles.results.account import Account
from unstall.profiles.results.facts import Facts
from unstall.profiles.script.callback import WatchCallback
from unstall.profiles.script.hooks import time_hooks
from unstall.profiles.script.last_data import LastData
from unstall.profiles.script.results import Ceilings, FitRecord, join_calls
from unstall.profiles.script.run import wait_for_threads
from unstall.profiles.script.seen import Applies, SeenFit, SeenLoop
from unstall.profiles.script.watch import Watch
from unstall.profiles.stage_table import UsersLine
from unstall.profiles.stages.places import Place, users_call
from unstall.profiles.stages.users_lines import LinesWithin
from unstall.profiles.unit import SAMPLE

# Arguments of `fit` that say what it is fed with.
_FED = (
    "x",
    "y",
    "sample_weight",
    "batch_size",
    "shuffle",
    "class_weight",
    "steps_per_epoch",
    "validation_split",
    "epochs",
    "initial_epoch",
)
# How many batches are kept for the ceilings, and the data of how many `fit` are read again for stage tables.
_KEPT_BATCHES, _READ_AGAIN = 4, 3
# An `evaluate` or `predict` of fewer steps has no row: nothing of it is steady.
_LEAST_STEPS_ALONE = 3
# How long measuring all ceilings of a script may take: these seconds, plus this part of the time of its `fit` calls.
_CEILINGS_S, _CEILINGS_RATIO = 20.0, 0.1


class MeasureCeilings(Protocol):
    """Measures the model of a `fit` that has ended, without its loader."""

    def __call__(self, model: Any, watch: Watch, *, first_round: int) -> Ceilings: ...


class Profiler:
    """Collects a record of each `fit` of a script.

    Once a `fit` has ended, no reference to its batches is held, nor to its model. For the stage tables, data are read
    again after the script has ended. So a reference is held to the data of the `fit` that took longest; other data are
    read again if the script still holds them.

    Args:
      ceilings: measures the model of a `fit` without its loader, after the `fit`; None where that is not wanted.
      max_steps: number of steps, over the whole script, after which `fit` raises SystemExit(0); None for no limit.
      tries: whether remedies are to be tried afterwards. Then the model of the longest `fit` is held as well, and what
        that `fit` was given.
      applies: puts remedies in place before each `fit`; None where none are wanted.

    Attributes:
      longest: the `fit` that took longest of those that have ended by themselves; None unless remedies are to be tried.
      fits: a record for each place in the script where `fit` made a step, in order. Calls on one line with the same
        model and kind of data share a record.
      why_unwatched: why the steps of a `fit` could not be watched at all; None if all could.
    """

    def __init__(
        self,
        *,
        ceilings: MeasureCeilings | None,
        max_steps: int | None,
        tries: bool = False,
        applies: Applies | None = None,
    ) -> None:
        self.fits: list[FitRecord] = []
        self.longest: SeenFit | SeenLoop | None = None
        self._tries = tries
        self._applies = applies
        self._took_ns: dict[str, int] = {}
        # Steps of the whole epochs of `fit`, by the place of the call.
        self._lengths: dict[CodeLine, set[int]] = {}
        self.why_unwatched: str | None = None
        self._measure_ceilings = ceilings
        self._max_steps = max_steps
        self._steps = 0
        # A script can train in several threads.
        self._thread_state = _ThreadState()
        self._running: set[threading.Thread] = set()
        self._changed = threading.Condition()
        self._ended = False
        self._noting = threading.Lock()
        self._callers: list[_Caller] = []
        # References to the data of the last call of each `fit` whose data can be read again.
        self._data: dict[str, Callable[[], Any]] = {}
        self._held: Any = None
        self._fit_s = self._ceilings_s = 0.0
        self._patched: tuple[type, Mapping[str, Callable[..., Any]]] | None = None
        self._untime_hooks: Callable[[], None] | None = None

    @property
    def readable_data(self) -> Mapping[str, Any]:
        """The data of each `fit` that can be read again for stage tables, by the name of the `fit`.

        None for data that no longer exist, and for all but the three whose `fit` took longest. Two `fit` may have the
        same data.
        """
        data_by_name: dict[str, Any] = dict.fromkeys(self._data)
        chosen: list[Any] = []
        for name in sorted(self._data, key=self._took_ns.__getitem__, reverse=True):
            data = self._data[name]()
            if data is None:
                continue
            if not any(data is other for other in chosen):
                if len(chosen) == _READ_AGAIN:
                    continue
                chosen.append(data)
            data_by_name[name] = data
        return data_by_name

    def attach(self) -> None:
        """Replaces `fit`, `evaluate` and `predict` in the class that has them, and times callbacks."""
        owner = next(parent for parent in keras.Model.__mro__ if "fit" in vars(parent))
        originals = {name: vars(owner)[name] for name in ("fit", "evaluate", "predict")}
        for name, original in originals.items():
            setattr(owner, name, self._watched(name, original))
        self._patched = (owner, originals)
        self._untime_hooks = time_hooks()

    def _watched(self, function: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """Returns what takes the place of Keras' `fit`, `evaluate` or `predict`."""
        signature = inspect.signature(original)

        def call(model: Any, *arguments: Any, **options: Any) -> Any:
            watch = self._watch_of(model) if function == "evaluate" else None
            if watch is not None:
                watch.begin_validation()
                try:
                    return original(model, *arguments, **options)
                finally:
                    watch.end_validation()
            state = self._thread_state
            if self._ended or state.paused or (state.depth and function != "fit"):
                return original(model, *arguments, **options)
            if function == "predict" and keras.backend.backend() == "jax":
                return original(model, *arguments, **options)  # it computes behind Keras: watching would wait
            try:
                bound = signature.bind(model, *arguments, **options)
            except TypeError:
                return original(model, *arguments, **options)  # raises Keras' own error
            place = line_of(sys._getframe(1))
            if function == "fit":
                return self._fit(original, bound, place, users_call(sys._getframe(1)))
            return self._run_alone(function, original, bound, place)

        # The name that is shown of what a line of the script calls.
        call.__code__ = call.__code__.replace(co_name=function)
        return functools.wraps(original)(call)

    def detach(self) -> None:
        """Restores Keras' own `fit`, `evaluate`, `predict` and hooks."""
        if self._patched is not None:
            owner, originals = self._patched
            for name, original in originals.items():
                setattr(owner, name, original)
            self._patched = None
        if self._untime_hooks is not None:
            self._untime_hooks()
            self._untime_hooks = None

    def backend(self) -> dict[str, Any]:
        """Describes Keras and its backend."""
        return backends.backend()

    def wait(self) -> None:
        """Waits for all threads that may train. Of an executor's threads, waits only for those inside `fit`."""
        wait_for_threads()
        with self._changed:
            self._changed.wait_for(lambda: all(thread.daemon or not thread.is_alive() for thread in self._running))

    def pause(self) -> None:
        """Stops watching: the script has ended, and from now on only this package calls `fit`."""
        self._ended = True

    @contextmanager
    def _counted_as_running(self) -> Iterator[None]:
        """Notes that this thread is inside a `fit` of the script, until the block ends."""
        thread = threading.current_thread()
        self._thread_state.depth += 1
        with self._changed:
            self._running.add(thread)
        try:
            yield
        finally:
            self._thread_state.depth -= 1
            with self._changed:
                if not self._thread_state.depth:
                    self._running.discard(thread)
                self._changed.notify_all()

    def _fit(
        self, original: Callable[..., Any], bound: inspect.BoundArguments, place: CodeLine, call: Place | None
    ) -> Any:
        model = bound.arguments["self"]
        given = {name: value for name, value in bound.arguments.items() if name != "self"}
        if self._applies is not None:
            bound.arguments |= self._applies.to_fit(place, call, given)
        data = bound.arguments.get("x")
        canary_ns, began_ns = clock.canary_ns(), clock.now_ns()
        callback = WatchCallback(
            keep_batches=0 if self._measure_ceilings is None else _KEPT_BATCHES,
            workers=max(1, adapter(data).workers_in_fit(data)),
            on_steps=self._count,
        )
        whole = interrupted = False
        looking = LinesWithin(adapter(data).source(data))
        looking.begin()
        within = LastData(data)
        called_ns = clock.now_ns()
        with self._counted_as_running(), self._watching(callback), _added(callback, bound.arguments):
            try:
                returned = original(*bound.args, **bound.kwargs)
                whole = True
            except (Exception, KeyboardInterrupt):
                interrupted = True
                raise
            finally:
                returned_ns = clock.now_ns()
                looking.end()
                within.note(data)
                self._fit_s += (returned_ns - began_ns) / 1e9
                if callback.watch is not None:
                    callback.watch.close()
                    try:
                        if callback.watch.epochs:
                            account = callback.watch.account(called_ns, returned_ns)
                            fit = self._note(
                                place,
                                model,
                                data,
                                callback.watch,
                                account,
                                canary_ns,
                                looking.seen,
                                whole=whole,
                                interrupted=interrupted,
                            )
                            if self._tries and not interrupted and self._thread_state.depth == 1:
                                self._hold(
                                    fit, model, given, callback.watch, call, self._lengths[place], within.changed
                                )
                        else:
                            self.why_unwatched = callback.watch.why_unknown
                    finally:  # if the script keeps an error, the error's frames keep the callback and its batches alive
                        callback.watch.kept.clear()
        return returned

    def _run_alone(
        self, function: str, original: Callable[..., Any], bound: inspect.BoundArguments, place: CodeLine
    ) -> Any:
        """Calls `evaluate` or `predict` outside of any `fit`, and adds it to the records of its place."""
        model, data = bound.arguments["self"], bound.arguments.get("x")
        callback = WatchCallback()
        callback.watch = watch = Watch(model, tests="test_function" if function == "evaluate" else "predict_function")
        record: EpochRecord | None = None
        with self._counted_as_running(), _added(callback, bound.arguments):
            watch.begin_validation()
            try:
                return original(*bound.args, **bound.kwargs)
            finally:
                record = watch.end_validation()
                if record is not None and record.steps >= _LEAST_STEPS_ALONE:
                    self._note_alone(function, place, model, data, watch, record)

    def _note_alone(
        self, function: str, place: CodeLine, model: Any, data: Any, watch: Watch, record: EpochRecord
    ) -> None:
        """Adds a call of `evaluate` or `predict` to the record of its place."""
        canary_ns = clock.canary_ns()
        unit, why_unknown = watch.tested
        with self._noting:
            caller = self._caller_of(function, place, model, data)
            evaluation = FitRecord(
                short=self._short(function, caller),
                place=place,
                model=model.name,
                epochs=(record,),
                device=_device(),
                ceilings=Ceilings(samples=(), reason="only the model of a fit is run by itself"),
                canary_ns=canary_ns,
                facts=Facts(data=adapter(data).label(data), kind=adapter(data).kind(data)),
                why_unknown=why_unknown,
                trains=False,
                unit=unit or SAMPLE,
            )
            self._add(evaluation, caller, function, place, model, data)

    def _caller_of(self, function: str, place: CodeLine, model: Any, data: Any) -> _Caller | None:
        """Returns the place that has called this function with this model and kind of data before; None if none has."""
        return next((caller for caller in self._callers if caller.is_of(function, place, model, data)), None)

    def _short(self, function: str, caller: _Caller | None) -> str:
        """Returns the short name of a record, such as "fit 1", which a place keeps."""
        if caller is not None:
            return self.fits[caller.at].short
        return f"{function} {1 + sum(other.function == function for other in self._callers)}"

    def _add(
        self, fit: FitRecord, caller: _Caller | None, function: str, place: CodeLine, model: Any, data: Any
    ) -> FitRecord:
        """Adds a call to the record of its place, and returns that record."""
        if caller is None:
            self._callers.append(_Caller(function, place, model, data, at=len(self.fits)))
            self.fits.append(fit)
            return fit
        caller.last.note(data)
        joined = self.fits[caller.at] = join_calls(self.fits[caller.at], fit)
        return joined

    @contextmanager
    def _watching(self, callback: WatchCallback) -> Iterator[None]:
        """Notes that this thread is inside a `fit` with this callback, until the block ends."""
        outer, self._thread_state.callback = self._thread_state.callback, callback
        try:
            yield
        finally:
            self._thread_state.callback = outer

    def _watch_of(self, model: Any) -> Watch | None:
        """Returns the watch of the `fit` that this thread is inside of, if it trains this model."""
        callback = self._thread_state.callback
        if self._ended or self._thread_state.paused or callback is None or callback.model is not model:
            return None
        return None if callback.watch is None or callback.watch.in_callbacks else callback.watch

    def _count(self, steps: int) -> None:
        self._steps += steps
        if self._max_steps is not None and self._steps >= self._max_steps:
            raise SystemExit(0)

    def _note(
        self,
        place: CodeLine,
        model: Any,
        data: Any,
        watch: Watch,
        account: Account,
        canary_ns: int,
        lines: tuple[UsersLine, ...],
        *,
        whole: bool,
        interrupted: bool,
    ) -> FitRecord:
        """Adds a call of `fit` to the record of its place, and returns that record."""
        with self._noting:
            caller = self._caller_of("fit", place, model, data)
            ceilings = self._ceilings_of(model, watch, interrupted, caller)
            fit = FitRecord(
                short=self._short("fit", caller),
                place=place,
                model=model.name,
                epochs=tuple(watch.records),
                device=_device(),
                ceilings=ceilings,
                canary_ns=canary_ns,
                facts=_facts_of(model, data),
                why_unknown=watch.why_unknown,
                whole=whole,
                account=replace(account, step_ns=ceilings.step_ns),
                unit=watch.unit or SAMPLE,
                lines=lines,
            )
            fit = self._add(fit, caller, "fit", place, model, data)
            self._took_ns[fit.name] = self._took_ns.get(fit.name, 0) + _took_ns(watch)
            self._lengths.setdefault(place, set()).update(record.steps for record in watch.records if record.whole)
            if adapter(data).reads_again:
                self._data[fit.name] = weakref.ref(data)
                if self._took_ns[fit.name] == max(self._took_ns[name] for name in self._data):
                    self._held = data
            return fit

    def _hold(
        self,
        fit: FitRecord,
        model: Any,
        given: dict[str, Any],
        watch: Watch,
        call: Place | None,
        lengths: Set[int],
        changed: str | None,
    ) -> None:
        """Keeps what a `fit` was given, and its model, if it took longest of those that have ended by themselves."""
        with self._noting:
            took_ns = self._took_ns[fit.name]
            epochs = self._epochs_of(fit, given, watch)
            anew = any(caller.last.anew for caller in self._callers if self.fits[caller.at].name == fit.name)
            if self.longest is not None and took_ns < self.longest.took_ns:
                return
            if keras.backend.backend() == "torch" and adapter(given.get("x")).tries:
                self.longest = SeenLoop(  # Keras' own step cannot be run apart on PyTorch, as that of a loop cannot
                    name=fit.name,
                    place=fit.place,
                    took_ns=took_ns,
                    epochs=epochs,
                    data=given["x"],
                    record=fit,
                    threads=sys.modules["torch"].get_num_threads(),
                    anew=anew,
                    changed=changed,
                )
            else:
                self.longest = SeenFit(
                    name=fit.name,
                    place=fit.place,
                    took_ns=took_ns,
                    epochs=epochs,
                    model=model,
                    train_function=model.train_function,
                    arguments={"epochs": 1} | {name: given[name] for name in _FED if name in given},
                    batch_spec=watch.batch_spec,
                    call=call,
                    epoch_batches=_epoch_batches(watch),
                    anew=anew,
                    changed=changed,
                    lengths=lengths,
                )

    def _epochs_of(self, fit: FitRecord, given: Mapping[str, Any], watch: Watch) -> int | None:
        """Returns for how many epochs a `fit` trains; None where `--max-steps` left it in one of several calls."""
        epochs = watch.epochs if fit.account is None else fit.account.epochs
        if self._max_steps is None or self._steps < self._max_steps:
            return epochs
        asked = int(given.get("epochs", 1) - given.get("initial_epoch", 0))
        return max(asked, watch.epochs) if epochs == watch.epochs else None

    def _ceilings_of(self, model: Any, watch: Watch, interrupted: bool, caller: _Caller | None) -> Ceilings:
        if self._measure_ceilings is None:
            return Ceilings(
                samples=(), reason="--no-ceilings" if self._applies is None else "not measured with --apply"
            )
        if interrupted:
            return Ceilings(samples=(), reason="fit was interrupted")
        if self._thread_state.depth > 1:
            return Ceilings(samples=(), reason="fit was called inside another fit")
        if caller is not None and self.fits[caller.at].ceilings.samples:
            return self.fits[caller.at].ceilings
        if self._ceilings_s > _CEILINGS_S + _CEILINGS_RATIO * self._fit_s:
            return Ceilings(samples=(), reason=f"those of earlier fits took {self._ceilings_s:.0f} s")
        began_ns = clock.now_ns()
        self._thread_state.paused = True
        try:
            return self._measure_ceilings(model, watch, first_round=watch.records[-1].epoch + 1)
        finally:
            self._thread_state.paused = False
            self._ceilings_s += (clock.now_ns() - began_ns) / 1e9


@contextmanager
def _added(callback: WatchCallback, arguments: dict[str, Any]) -> Iterator[None]:
    """Puts a callback first among those in the arguments of `fit` or `evaluate`, until the block ends."""
    given = arguments.get("callbacks")
    if not isinstance(given, keras.callbacks.CallbackList):
        arguments["callbacks"] = [callback, *keras.tree.flatten(given or [])]
        yield
        return
    callback.set_model(arguments["self"])
    callback.set_params(given.params)
    given.callbacks.insert(0, callback)
    try:
        yield
    finally:
        given.callbacks.remove(callback)


class _ThreadState(threading.local):
    """State of each thread.

    Attributes:
      depth: how many `fit` calls the thread is inside of.
      paused: whether its `fit` calls are not to be watched.
      callback: of the innermost `fit`.
    """

    depth = 0
    paused = False
    callback: WatchCallback | None = None


class _Caller:
    """A place in a script that has called `fit`, `evaluate` or `predict`, whose calls share a record.

    Calls of another function, or with another model, a model that was compiled anew, or another kind of data do not
    belong to it. The model and its optimizer are not kept alive.

    Attributes:
      function: that it has called.
      at: index of the record in `Profiler.fits`.
      last: the data of the last call.
    """

    def __init__(self, function: str, place: CodeLine, model: Any, data: Any, at: int) -> None:
        self.function = function
        self.at = at
        self._call = (function, place, adapter(data).label(data))
        self.last = LastData(data)
        self._model: Callable[[], Any] = weakref.ref(model)
        optimizer = _optimizer_of(model)
        self._optimizer: Callable[[], Any] = (lambda: None) if optimizer is None else weakref.ref(optimizer)

    def is_of(self, function: str, place: CodeLine, model: Any, data: Any) -> bool:
        same = self._model() is model and self._optimizer() is _optimizer_of(model)
        return same and self._call == (function, place, adapter(data).label(data))


def _optimizer_of(model: Any) -> Any:
    """Returns the optimizer of a model; None where the model was never compiled: such a model can predict."""
    return getattr(model, "optimizer", None)


def _epoch_batches(watch: Watch) -> int | None:
    """Returns how many batches the last whole epoch had, one a step; None where none was whole."""
    return next((record.steps for record in reversed(watch.records) if record.whole and record.steps), None)


def _took_ns(watch: Watch) -> int:
    return sum(record.outer_ns for record in watch.records)


def _device() -> Device:
    try:
        return backends.device_here()
    except ValueError:
        return Device(kind="cpu", name="unknown")


def _facts_of(model: Any, data: Any) -> Facts:
    """Returns what is known of a model that was trained, and of its data."""
    facts = Facts(
        data=adapter(data).label(data),
        kind=adapter(data).kind(data),
        jit_compile=bool(model.jit_compile),
        steps_per_execution=model.steps_per_execution,
        parameters=_parameters_of(model),
        optimizer=None if model.optimizer is None else type(model.optimizer).__name__,
        loss=model.loss if isinstance(model.loss, str) else None,
    )
    return replace(facts, **adapter(data).facts_of_workers(data))


def _parameters_of(model: Any) -> int | None:
    """Returns how many parameters a model has; None where it is not built or cannot count them."""
    try:
        parameters: int = model.count_params()
    except (AttributeError, ValueError):
        return None
    return parameters
