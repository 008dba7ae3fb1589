"""Measures windows: short calls of Keras' public `fit` with a timed function in the place of the train function.

Over 400 lines: all windows share one timer and one call of `fit`, so that all are measured in the same way.
"""

from __future__ import annotations

import gc
import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import keras
import numpy as np

from unstall.profiles import clock
from unstall.profiles.devices import Device
from unstall.profiles.machine.others import Others
from unstall.profiles.measure.backends import backend_of, each
from unstall.profiles.measure.batches import FitData, by_hand, is_fit_data
from unstall.profiles.measure.completion import Completion
from unstall.profiles.measure.epochs import EpochRecord, sample_of
from unstall.profiles.measure.steps import RAMP_STEPS, Steady, Step, TimedEpoch
from unstall.profiles.samples import Sample

Pull = Callable[[], Any]
Run = Callable[[Any, Pull], Any]

# Keras draws two batches of a generator when `fit` is called, to learn their shapes, and hands them over in the epoch.
_STAND_INS = 2


@dataclass(slots=True)
class _Epoch(TimedEpoch):
    """Times of one epoch, by `clock.now_ns`, filled in while the epoch runs.

    The time at which the batches of a step are fetched is when they would have been there had it drawn all of them
    first.

    Attributes:
      synchronised_ns: how long the device was waited for before the first steady step.
      device_ns: of a device that computes behind the host: when it had finished the step before the first steady one,
        and the last steady one. Else empty.
      steady_end: the number after the last steady step, where `device_ns` says when that was done.
    """

    synchronised_ns: int = 0
    device_ns: Sequence[int] = ()
    steady_end: int | None = None


class _Edges(keras.callbacks.Callback):
    """Tells the timer when epochs begin and end."""

    def __init__(self, timer: _Timer) -> None:
        super().__init__()
        self._timer = timer

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch == 0:
            self._timer.cpu_from_ns = clock.cpu_ns()
        self._timer.begin_epoch()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._timer.end_epoch()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """What one call of `fit` is to measure.

    Attributes:
      name, round: of the sample.
      epochs: how many.
      ramp_steps: number of first steps of an epoch that are not steady: the loader may have made their batches at the
        same time, before the first one arrived.
      limit_s: how long an epoch may take.
    """

    name: str
    round: int
    epochs: int
    ramp_steps: int
    limit_s: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """What was read around one call of `fit`.

    Attributes:
      called_ns, returned_ns: the clock before and behind the call.
      cpu_ns: CPU time of this process and its child processes in the epochs.
      canary_ns: time of a fixed computation before the call.
      others_ratio: what other programs took of the cores; None where that is not known.
    """

    called_ns: int
    returned_ns: int
    cpu_ns: int
    canary_ns: int
    others_ratio: float | None


class _Timer:
    """Times steps inside the train function.

    A device that computes behind the host is not waited for at the edges of the steady steps: a loader that makes no
    batch ahead would stand still meanwhile, for the time of a step at both edges.

    Args:
      window: what is measured.
      last_step: number of the last steady step, or None if unknown. A device that does not compute behind the host is
        synchronised within it.
      backend: of the model.
      every_step: synchronise after every step, for a device that is asynchronous but shares the host's cores.
      behind: whether the device computes behind the host, a step in one computation.
    """

    def __init__(self, window: _Window, last_step: int | None, *, backend: Any, every_step: bool, behind: bool) -> None:
        self.epochs: list[_Epoch] = []
        self.cpu_from_ns = 0
        self._window = window
        self._last_step = last_step
        self._synchronise = backend.synchronise
        self._images = backend.images
        self._every_step = every_step
        self._last_result: Any = None
        self._completion: Completion | None = None
        if behind and last_step is not None and last_step >= window.ramp_steps > 0:
            self._completion = Completion(backend.synchronise, backend.is_ready)

    def begin_epoch(self) -> None:
        self.epochs.append(_Epoch(begin_ns=clock.now_ns()))

    def end_epoch(self) -> None:
        epoch = self.epochs[-1]
        if self._completion is not None and self._last_step is not None:
            steps = len(epoch.steps)
            is_steady = steps > self._window.ramp_steps
            if is_steady and steps <= self._last_step:  # the epoch was shorter than the one before
                self._completion.add(self._last_result[0])
            done_ns = self._completion.take_all()
            if is_steady:
                epoch.device_ns, epoch.steady_end = done_ns, min(steps, self._last_step + 1)
        epoch.end_ns = clock.now_ns()

    def close(self) -> None:
        """Ends the thread that waits for the device, where an error has ended an epoch."""
        if self._completion is not None:
            self._completion.take_all()

    def step(self, pull: Pull, run: Run) -> Any:
        """Draws a batch and runs a step on it, which may draw further ones. All drawing is waiting.

        Args:
          pull: returns the next batch.
          run: runs the step; takes its first batch, and a function that draws another one.
        """
        epoch = self.epochs[-1]
        number = len(epoch.steps)
        resumes = number == self._window.ramp_steps and self._completion is None
        if resumes:
            asked_ns = clock.now_ns()
            self._synchronise(self._last_result)
            epoch.synchronised_ns = clock.now_ns() - asked_ns
        before_ns = clock.now_ns()
        if self._completion is not None:
            self._completion.look(before_ns)
        if before_ns - epoch.begin_ns > self._window.limit_s * 1e9:
            raise ValueError(
                f"An epoch must end within {self._window.limit_s:.0f} s. Received: {number} batches and no end. "
                "Give fewer batches, such as dataset.take(100)."
            )
        waited_ns = images = 0

        def draw() -> Any:
            nonlocal waited_ns, images
            asked_ns = clock.now_ns()
            batch = pull()
            came_ns = clock.now_ns()
            if self._completion is not None:
                self._completion.look(came_ns)
            waited_ns += came_ns - asked_ns
            images += self._images(batch)
            return batch

        result = run(draw(), draw)
        if self._completion is not None:
            if number in (self._window.ramp_steps - 1, self._last_step):
                self._completion.add(result[0])  # the logs: the next step deletes the arrays of the state
        elif self._every_step or number == self._last_step:
            self._synchronise(result)
        epoch.steps.append(
            Step(
                asked_ns=before_ns,
                fetched_ns=before_ns + waited_ns,
                done_ns=clock.now_ns(),
                images=images,
                resumes=resumes,
            )
        )
        self._last_result = result
        return result


class Windows:
    """Measures one compiled model on one device, fed with any batches.

    Calls `keras.Model.fit`, not the `fit` of the model's class: a class can override `fit` to do more than train.

    Args:
      model: compiled, `steps_per_execution` 1. The model is trained: weights, optimizer and metrics change.
      device: on an emulated device a sleep takes the place of the model's step.
      class_weight: of `fit`, for what `fit` can read.
    Raises:
      ValueError: if the model is not compiled, or runs several steps per execution.
    """

    def __init__(self, model: Any, device: Device, *, class_weight: Mapping[int, float] | None = None) -> None:
        if not model.compiled:
            raise ValueError("`model` must be compiled. Received a model that is not: call model.compile(...).")
        if model.steps_per_execution != 1:
            raise ValueError(
                f"`model` must be compiled with steps_per_execution=1. Received: {model.steps_per_execution}."
            )
        self.model = model
        self.device = device
        self.class_weight = class_weight
        self._backend = backend_of(model, device)
        # The model's own train function, as the first `fit` makes it.
        self._real: Callable[..., Any] | None = None
        # A model that makes its own train function may draw its batches as it likes, from an iterator of TensorFlow's.
        maker = getattr(model.make_train_function, "__func__", None)
        self._draws = maker is not keras.Model.make_train_function
        # On a CPU, too, JAX computes asynchronously, and on the cores that load batches.
        self._every_step = device.kind == "cpu" and keras.backend.backend() != "tensorflow"
        # Of a step that is, or may be, many computations its logs are not the last one.
        one_computation = bool(model.jit_compile) and not model.run_eagerly and not self._draws
        self._behind = self._backend.behind_host and one_computation
        # (data, batches of an epoch) by `id(data)`; holding the data keeps Python from giving its id to another object.
        self._steps: dict[int, tuple[Any, int]] = {}
        # (data, its first batches, cut short) by `id(data)`.
        self._stand_ins: dict[int, tuple[Any, list[Any]]] = {}

    def prepare(self, batches: Iterable[Any]) -> None:
        """Runs one real step on each batch, so that metrics are built and every batch shape is traced.

        On an emulated device, which never runs the model afterwards, one step on the shortest batch is enough.
        """
        if self.device.kind == "emulated":
            batches = [self._shortest(batch) for batch in itertools.islice(batches, 1)]
        for batch in batches:
            keras.Model.fit(self.model, self._backend.endless(batch), steps_per_epoch=1, verbose=0)

    def resident(self, batch: Any, *, steps: int, round_: int, window: str = "resident") -> Sample:
        """Measures the model alone: steps on one batch that lies on the device already."""
        return self._fit_ready([batch], self._backend.on_device, steps=steps, window=window, round_=round_)

    def replay(self, batches: list[Any], *, steps: int, round_: int) -> Sample:
        """Measures the model fed with batches from host memory, as by a loader that costs nothing."""
        return self._fit_ready(batches, self._backend.on_host, steps=steps, window="replay", round_=round_)

    def train(
        self,
        data: Any,
        *,
        epochs: int,
        ramp_steps: int,
        round_: int,
        window: str = "train",
        limit_s: float = math.inf,
    ) -> Sample:
        """Measures training: each step fetches a batch and trains on it.

        Args:
          data: what `fit` can read, also as a `FitData`; or an iterable that can be read again, or a function that
            returns an iterable.
          ramp_steps: number of first steps of an epoch that are not steady.
          limit_s: how long an epoch may take.
        Raises:
          ValueError: if the data gives no batch, or an epoch does not end within `limit_s`.
        """
        wanted = _Window(name=window, round=round_, epochs=epochs, ramp_steps=ramp_steps, limit_s=limit_s)
        return self._fit_data(data, self._runner(), wanted)

    def loader(
        self,
        data: Any,
        *,
        epochs: int,
        ramp_steps: int,
        round_: int,
        limit_s: float = math.inf,
    ) -> Sample:
        """Measures the loader alone: each step fetches a batch and drops it.

        Args:
          data, ramp_steps, limit_s: as for `train`.
        Raises:
          ValueError: if the data gives no batch, or an epoch does not end within `limit_s`.
        """
        wanted = _Window(name="loader", round=round_, epochs=epochs, ramp_steps=ramp_steps, limit_s=limit_s)
        return self._fit_data(data, None, wanted)

    def watch(self, data: Any, note: Callable[[Any], None], *, steps: int, every: int, limit_s: float) -> None:
        """Trains some steps, and hands the iterator that feeds them to `note` from time to time.

        Args:
          note: called with the iterator after each `every` steps, and when the time is up.
          steps: how many steps to make.
          limit_s: time after which no further step is made.
        """
        taken = 0
        until_ns = clock.now_ns() + int(limit_s * 1e9)
        run = self._runner()

        def train_function(*arguments: Any) -> Any:
            nonlocal taken
            *state, iterator = arguments
            result = run(next(iterator), lambda: next(iterator), *state)
            taken += 1
            late = clock.now_ns() > until_ns
            if late or taken % every == 0:
                note(iterator)
            if late:
                raise StopIteration  # ends `fit`, as if there were no more data
            return result

        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*ran out of data")
            self._call_fit(train_function, data, epochs=1, steps_per_epoch=steps, class_weight=self.class_weight)

    def steps_of(self, data: Any) -> int:
        """Returns the steps of an epoch of data that was measured, over a whole epoch, before."""
        return self._steps[id(data)][1]

    def _runner(self) -> Callable[..., Any]:
        """Returns a function that runs one step: of a batch, a function that draws another one, and the state."""
        if self.device.kind == "emulated":
            return self._sleep
        return self._backend.own_step(self._train) if self._draws else self._train_on

    def _sleep(self, batch: Any, draw: Pull, *state: Any) -> Any:
        assert self.device.images_per_sec is not None
        step_ns = int(self._backend.images(batch) / self.device.images_per_sec * 1e9)
        clock.sleep_until_ns(clock.now_ns() + step_ns)
        return self._backend.no_logs(*state)

    def _train_on(self, batch: Any, draw: Pull, *state: Any) -> Any:
        return self._train(*state, iter((batch,)))

    def _train(self, *arguments: Any) -> Any:
        assert self._real is not None
        return self._real(*arguments)

    def _fit_ready(
        self, batches: list[Any], place: Callable[[Any], Any], *, steps: int, window: str, round_: int
    ) -> Sample:
        """Measures the model on batches that are ready.

        Args:
          batches: as a loader gives them.
          place: puts a batch where it is to lie.
        """
        wanted = _Window(name=window, round=round_, epochs=1, ramp_steps=min(RAMP_STEPS, steps - 1))
        timer = self._timer(wanted, steps - 1)
        endless = itertools.cycle([place(batch) for batch in batches])
        ready = self._backend.as_fit_passes(endless) if window == "replay" else endless
        run = self._runner()

        def train_function(*arguments: Any) -> Any:
            return timer.step(lambda: next(ready), lambda batch, draw: run(batch, draw, *arguments[:-1]))

        # `fit` needs some data as its argument; the train function never reads them.
        unread = self._backend.endless(batches[0])
        return self._fit(timer, train_function, wanted, x=unread, steps_per_epoch=steps, epochs=1)

    def _fit_data(self, data: Any, run: Callable[..., Any] | None, window: _Window) -> Sample:
        fits = is_fit_data(data)
        if not fits and window.epochs != 1:
            raise ValueError(f"`epochs` must be 1 for data that `fit` iterates once. Received: epochs={window.epochs}.")
        steps = self._steps.get(id(data), (data, 0))[1]
        last_step = steps - 1 - self._backend.drawn_ahead
        timer = self._timer(window, last_step if steps else None, computes=run is not None)
        stand_ins = iter(range(0 if fits else _STAND_INS))

        def train_function(*arguments: Any) -> Any:
            *state, iterator = arguments

            def pull() -> Any:
                for _ in stand_ins:
                    next(iterator)
                return next(iterator)

            def run_batch(batch: Any, draw: Pull) -> Any:
                return self._backend.no_logs(*state) if run is None else run(batch, draw, *state)

            return timer.step(pull, run_batch)

        arguments: dict[str, Any] = {
            "x": data if fits else self._from_epoch(data, timer),
            "shuffle": False,  # `fit` would shuffle the batches of a PyDataset by Python's global random state
        }
        if isinstance(data, FitData):
            arguments |= data.arguments
        sample = self._fit(
            timer, train_function, window, epochs=window.epochs, class_weight=self.class_weight, **arguments
        )
        self._steps[id(data)] = (data, len(timer.epochs[-1].steps))
        return sample

    def _from_epoch(self, data: Any, timer: _Timer) -> Iterator[Any]:
        """Returns a generator that asks the data for its first batch when the epoch begins.

        Until then the generator gives stand-ins: the first batches, cut short. So what Keras sets up once, in
        the call of `fit`, lies outside the epoch, and all that the data takes for an epoch lies inside.
        """
        if id(data) not in self._stand_ins:
            batches = list(itertools.islice(by_hand(data), _STAND_INS))
            self._stand_ins[id(data)] = (data, [self._shortest(batch) for batch in batches])
        _, stand_ins = self._stand_ins[id(data)]
        if not stand_ins:
            raise ValueError("The data must yield at least one batch. Received none.")

        def batches_of_epoch() -> Iterator[Any]:
            for stand_in in itertools.cycle(stand_ins):
                if timer.epochs:
                    break
                yield stand_in
            yield from by_hand(data)

        return batches_of_epoch()

    def _shortest(self, batch: Any) -> Any:
        """Returns a batch cut to one image, or to one image for each replica of the model."""
        return each(lambda part: part[: self._backend.replicas] if len(part.shape) else part, batch)

    def _timer(self, window: _Window, last_step: int | None, *, computes: bool = True) -> _Timer:
        behind = self._behind and computes
        return _Timer(window, last_step, backend=self._backend, every_step=self._every_step, behind=behind)

    def _fit(
        self,
        timer: _Timer,
        train_function: Callable[..., Any],
        window: _Window,
        **fit_arguments: Any,
    ) -> Sample:
        gc.collect()
        canary_ns, others = clock.canary_ns(), Others()
        called_ns = clock.now_ns()
        try:
            self._call_fit(train_function, callbacks=[_Edges(timer)], **fit_arguments)
        finally:
            timer.close()
        returned_ns = clock.now_ns()
        cpu_to_ns = clock.cpu_ns()
        call = _Call(
            called_ns=called_ns,
            returned_ns=returned_ns,
            cpu_ns=cpu_to_ns - timer.cpu_from_ns,
            canary_ns=canary_ns,
            others_ratio=others.ratio(),
        )
        drawn_ahead = 0 if window.name in ("bare", "resident", "replay") else self._backend.drawn_ahead
        return _sample(timer.epochs, window, call, drawn_ahead)

    def _call_fit(
        self, train_function: Callable[..., Any], *data: Any, callbacks: Sequence[Any] = (), **arguments: Any
    ) -> None:
        """Calls `fit` with a function of ours in the place of the model's train function."""

        def install(logs: Any) -> None:
            if self._real is None:
                self._real = self.model.train_function
            self.model.train_function = train_function

        # When the training begins, and not before: a model may make its train function anew in each `fit`.
        installing = keras.callbacks.LambdaCallback(on_train_begin=install)
        try:
            keras.Model.fit(self.model, *data, verbose=0, callbacks=[installing, *callbacks], **arguments)
        finally:
            if self._real is not None:
                self.model.train_function = self._real


def idle_windows(device: Device) -> Windows:
    """Returns windows of a model that takes no step on the data. Its initial zeros change no random state."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="zeros")])
    model.compile(optimizer="sgd", loss="mse", jit_compile=False)
    windows = Windows(model, device)
    windows.prepare([(np.zeros((1, 1), np.float32), np.zeros((1,), np.float32))])
    return windows


def _sample(epochs: list[_Epoch], window: _Window, call: _Call, drawn_ahead: int) -> Sample:
    """Sums up the epochs of one `fit`.

    Args:
      drawn_ahead: how many batches ahead of its step Keras draws a batch. As many last steps of an epoch draw none, and
        are not steady.
    Raises:
      ValueError: if an epoch had no batch.
    """
    if not epochs or not all(epoch.steps for epoch in epochs):
        raise ValueError("The data must give at least one batch in every epoch. Received: none.")
    records = [_record(epoch, number, window, drawn_ahead) for number, epoch in enumerate(epochs)]
    # Parts of the outer clock: before the first epoch, the two edges of each epoch, its steps, after the last epoch.
    set_up_ns = epochs[0].begin_ns - call.called_ns
    edges_ns = sum(record.before_ns + record.after_ns for record in records)
    steps_ns = sum(epoch.synchronised_ns + sum(step.ns for step in epoch.steps) for epoch in epochs)
    torn_down_ns = call.returned_ns - epochs[-1].end_ns
    return sample_of(
        records,
        window=window.name,
        round_=window.round,
        epoch_ns=call.returned_ns - epochs[0].begin_ns,
        outer_ns=call.returned_ns - call.called_ns,
        claimed_ns=set_up_ns + edges_ns + steps_ns + torn_down_ns,
        cpu_ns=call.cpu_ns,
        canary_ns=call.canary_ns,
        others_ratio=call.others_ratio,
    )


def _record(epoch: _Epoch, number: int, window: _Window, drawn_ahead: int) -> EpochRecord:
    end = epoch.steady_end or max(1, len(epoch.steps) - drawn_ahead)
    record = epoch.record(Steady(first=window.ramp_steps, end=end), number)
    if epoch.device_ns:
        record = replace(record, steady_ns=epoch.device_ns[1] - epoch.device_ns[0])
    return record
