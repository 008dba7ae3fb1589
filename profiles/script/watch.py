"""Watches a running `fit`: times how long each step waits for its batch, without changing what `fit` computes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from unstall.profiles import clock
from unstall.profiles.measure.epochs import KEPT_EPOCHS, EpochRecord
from unstall.profiles.results.account import Account
from unstall.profiles.script.stepper import Stepper
from unstall.profiles.unit import Unit


class Watch:
    """Times the epochs of one `fit` of one model, and its validations where `begin_validation` is called.

    A watch holds no reference to the model or its data, except to the batches in `kept`.

    Args:
      model: about to be trained.
      tests: the attribute that holds the function of its validations, or of `predict`.
      workers, keep_batches, on_steps: as for `Stepper`.

    Attributes:
      in_callbacks: whether Keras is running a hook of callbacks: an `evaluate` there is no validation of `fit`.
      records: of the last epochs.
      epochs: number of all epochs so far.
    """

    def __init__(
        self,
        model: Any,
        *,
        tests: str = "test_function",
        workers: int = 1,
        keep_batches: int = 0,
        on_steps: Callable[[int], None] | None = None,
    ) -> None:
        self.records: deque[EpochRecord] = deque(maxlen=KEPT_EPOCHS)
        self.epochs = 0
        self.in_callbacks = False
        self._training = Stepper(model, "train_function", workers=workers, keep_batches=keep_batches, on_steps=on_steps)
        self._testing = Stepper(model, tests, workers=workers)
        self._validates = False
        self._account = Account()
        # When the first epoch began, and when the last one ended with its callbacks.
        self._first_ns = self._last_ns = self._own_until_ns = clock.now_ns()
        self._opening_hooks_ns = self._closing_hooks_ns = 0

    @property
    def kept(self) -> list[Any]:
        """Batches of training; the caller empties the list when it has used them."""
        return self._training.kept

    @property
    def batch_spec(self) -> Any:
        """Of the tf.data iterator of the batches."""
        return self._training.batch_spec

    @property
    def unit(self) -> Unit | None:
        """What the batches hold; None before the first."""
        return self._training.unit

    @property
    def why_unknown(self) -> str | None:
        """Why the waiting, or everything, is unknown; None if known."""
        return self._training.why_unknown

    @property
    def tested(self) -> tuple[Unit | None, str | None]:
        """(what the batches of validations hold, why their waiting is unknown), as `unit` and `why_unknown`."""
        return self._testing.unit, self._testing.why_unknown

    def account(self, called_ns: int, returned_ns: int) -> Account:
        """Returns where the time of the `fit` went, which was called and has returned at these times."""
        set_up_ns = self._first_ns - called_ns - self._opening_hooks_ns
        torn_down_ns = returned_ns - self._last_ns - self._closing_hooks_ns
        around = Account(
            wall_ns=returned_ns - called_ns - self._account.watch_ns,
            set_up_ns=set_up_ns + torn_down_ns,
            callbacks_ns=self._opening_hooks_ns + self._closing_hooks_ns,
            traces=self._training.traces,
            steps_per_execution=self._training.steps_per_execution,
        )
        return around + self._account + Account(traces=self._testing.traces)

    def begin_epoch(self, epoch: int, steps: int | None) -> None:
        """Begins to watch epoch number `epoch`.

        Args:
          steps: of an epoch; None where Keras does not know it.
        """
        self.close()
        if not self.epochs:
            self._first_ns = clock.now_ns()
        self._training.begin(epoch, steps)
        self._training.replace_function()
        self._own_until_ns = clock.now_ns()

    def begin_validation(self) -> None:
        """Notes that the steps of the epoch have ended, and that `fit` has called `evaluate`."""
        self._training.end_steps(whole=True)
        self._validates = True
        self._testing.begin(self._account.validations, None)

    def begin_test(self) -> None:
        """Begins to time the steps of a validation: the model has its test function now."""
        self._training.end_steps(whole=True)
        if self._validates:
            self._testing.replace_function()
        self._own_until_ns = clock.now_ns()

    def end_test(self) -> None:
        """Notes that the steps of a validation have ended."""
        self._testing.end_steps(whole=True)
        self._own_until_ns = clock.now_ns()

    def end_validation(self) -> EpochRecord | None:
        """Notes that `evaluate` has returned, or has failed. Returns its record; None if it made no step."""
        self._validates = False
        record = self._testing.close(whole=True)
        if record is None:
            return None
        self._account += Account(
            tracing_ns=record.traced_ns,
            validation_waiting_ns=record.all_waits_ns,
            validation_compute_ns=record.steps_ns,
            validation_edges_ns=record.before_ns + record.after_ns + record.other_ns,
            callbacks_ns=record.all_callbacks_ns + record.edge_callbacks_ns,
            watch_ns=record.watch_ns,
            validations=1,
            retracing_ns=record.traced_ns if self._account.validations else 0,
        )
        return record

    def close(self, *, whole: bool = False) -> None:
        """Ends the epoch and restores the model's functions.

        Args:
          whole: whether all steps were made; ignored after a call of `end_steps`.
        """
        if self._validates:
            self.end_validation()
        if not self._training.runs:
            return
        record = self._training.close(whole=whole)
        if record is not None:
            self._account += Account(
                tracing_ns=record.traced_ns,
                waiting_ns=record.all_waits_ns,
                compute_ns=record.steps_ns,
                edges_ns=record.before_ns + record.after_ns,
                callbacks_ns=record.all_callbacks_ns + record.edge_callbacks_ns,
                watch_ns=record.watch_ns,
                epochs=1,
                steps=record.steps,
                retracing_ns=record.traced_ns if self.epochs else 0,
            )
            self.records.append(record)
            self.epochs += 1
        self._last_ns = self._own_until_ns = clock.now_ns()

    def end_if_due(self) -> None:
        """Ends `fit` if it was to end behind a step on JAX, whose result Keras had to get first."""
        self._training.end_if_due()

    def add_hook(self, name: str, before_ns: int, done_ns: int) -> None:
        """Adds the time of one of Keras' hooks, which runs this hook of all callbacks.

        Args:
          name: of the hook, such as "on_epoch_end".
          before_ns, done_ns: when the hook of Keras' list of callbacks was called, and when it returned.
        """
        if name.startswith("on_train_batch_"):
            self._training.add_hook(before_ns, done_ns)
            return
        if name.startswith(("on_test_batch_", "on_predict_batch_")):
            self._testing.add_hook(before_ns, done_ns)
            return
        # The watch's own callback is the first of the list, and what it does is no callback of the user's.
        before_ns = max(before_ns, self._own_until_ns)
        if name.startswith(("on_test_", "on_predict_")):
            self._testing.leave_out(before_ns, done_ns)
        elif name == "on_epoch_begin":
            self._training.leave_out(before_ns, done_ns)
        elif name == "on_epoch_end":
            self._account += Account(callbacks_ns=done_ns - before_ns)
            self._last_ns = done_ns
        elif name == "on_train_begin":
            self._opening_hooks_ns = done_ns - before_ns
        else:
            self._closing_hooks_ns = done_ns - before_ns
