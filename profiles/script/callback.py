"""A Keras callback that has a `Watch` time the epochs of each `fit`."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import keras

from unstall.profiles.script.watch import Watch


class WatchCallback(keras.callbacks.Callback):
    """Tells a watch when epochs begin and end. Has no batch hooks, which would make Keras wait for each step.

    Unlike Keras' own callbacks, holds no reference to the model: a script may keep the callback longer than the model.

    Args:
      keep_batches, workers, on_steps: of `Watch`.
    """

    def __init__(
        self, *, keep_batches: int = 0, workers: int = 1, on_steps: Callable[[int], None] | None = None
    ) -> None:
        super().__init__()
        self.watch: Watch | None = None
        self._model_ref: Callable[[], Any] = lambda: None
        self._keep_batches = keep_batches
        self._workers = workers
        self._on_steps = on_steps

    def set_model(self, model: Any) -> None:
        self._model_ref = weakref.ref(model)

    @property
    def model(self) -> Any:
        """The model that `fit` trains, as Keras' callbacks see it; None if the model no longer exists."""
        super().set_model(self._model_ref())
        try:
            return super().model
        finally:
            super().set_model(None)

    def on_train_begin(self, logs: Any = None) -> None:
        self.watch = Watch(self.model, keep_batches=self._keep_batches, workers=self._workers, on_steps=self._on_steps)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        assert self.watch is not None
        self.watch.begin_epoch(epoch, (self.params or {}).get("steps"))

    def on_test_begin(self, logs: Any = None) -> None:
        if self.watch is not None:
            self.watch.begin_test()
            self.watch.end_if_due()

    def on_test_end(self, logs: Any = None) -> None:
        if self.watch is not None:
            self.watch.end_test()

    def on_predict_begin(self, logs: Any = None) -> None:
        self.on_test_begin()

    def on_predict_end(self, logs: Any = None) -> None:
        self.on_test_end()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        assert self.watch is not None
        self.watch.close(whole=True)
        self.watch.end_if_due()

    def on_train_end(self, logs: Any = None) -> None:
        assert self.watch is not None
        self.watch.close()
