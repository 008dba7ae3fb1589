"""Trains one run in a fresh process: the main thread trains, and another thread answers how far the training is."""

from __future__ import annotations

import threading
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from unstall.benchmarks.accuracy.samples import Order, ScriptCount, State, TestedPass, Trained
from unstall.benchmarks.lab.backend import open_backend, tf_device
from unstall.benchmarks.lab.serve import one_line
from unstall.models import image_size, open_model
from unstall.pipeline import ImageSource
from unstall.profiles import Device

# `look` answers after this long at the latest, even if nothing has changed.
_TELL_S = 1.0
# Photos that the network is given at a time by the published script's lines; their number changes no answer.
_SCRIPT_BATCH = 32


class RunSession:
    """Trains in the main thread, while another thread answers how far the training is."""

    def __init__(self, device: Device, train: ImageSource, test: ImageSource) -> None:
        self._device = device
        self._train = train
        self._test = test
        self._news = threading.Condition()
        self._state = State()
        self._order: Order | None = None
        self._closed = False

    def backend(self) -> dict[str, Any]:
        """Describes the backend; refuses if the device is missing."""
        return open_backend(self._device)

    def begin(self, order: Order) -> None:
        """Gives the main thread its order, with which the training begins."""
        with self._news:
            self._order = order
            self._news.notify_all()

    def look(self) -> State:
        """Returns how far the training is: when a pass or the training ends, or after a second at the latest."""
        with self._news:
            before = self._state
            if before.trained is None and before.failure is None:
                self._news.wait_for(lambda: self._state != before, timeout=_TELL_S)
            return self._state

    def close(self) -> None:
        """Lets the main thread end."""
        with self._news:
            self._closed = True
            self._news.notify_all()

    def work(self) -> None:
        """Waits for the order, trains, and waits to be closed."""
        with self._news:
            self._news.wait_for(lambda: self._order is not None or self._closed)
            order = self._order
        if order is not None:
            try:
                self._tell(trained=self._trained(order))
            except Exception as error:  # the parent prints the reason, and goes on with the other runs
                self._tell(failure=one_line(error))
        with self._news:
            self._news.wait_for(lambda: self._closed)

    def _tell(self, **changes: Any) -> None:
        with self._news:
            self._state = replace(self._state, **changes)
            if len(changes) != 1 or "images" not in changes:
                self._news.notify_all()  # `look` is not woken at every step

    def _trained(self, order: Order) -> Trained:
        import keras

        from unstall.benchmarks.lab.training import Evaluation, Pass, train

        backend = self.backend()
        keras.utils.set_random_seed(order.config.seed)  # both pipelines' networks begin with the same weights
        network = open_model(order.model, classes=len(self._train.class_names))
        config = replace(order.config, image_size=image_size(network, order.model))
        evaluation = Evaluation(network, self._test, config)
        passes: list[TestedPass] = []
        right = np.zeros(0, bool)

        def on_pass(ended: Pass) -> None:
            nonlocal right
            right = evaluation.correct()
            passes.append(TestedPass(**asdict(ended), correct=int(right.sum())))
            self._tell(images=ended.number * ended.images, passes=len(passes))

        try:
            notes = train(
                network,
                self._train,
                config,
                passes=order.passes,
                on_images=lambda images: self._tell(images=images),
                on_pass=on_pass,
                device=tf_device(self._device),
            )
        finally:
            evaluation.close()
        return Trained(
            passes=tuple(passes),
            right="".join("01"[is_right] for is_right in right.tolist()),
            script=published_script(network, self._test) if order.script else None,
            notes=notes,
            backend=backend,
        )


def published_script(network: Any, test: ImageSource) -> ScriptCount | None:
    """Classifies the test photos as the last lines of the tutorial's script do, and as a corrected script does.

    The published script loads a photo with Keras' `load_img`, does not rescale the pixels to [0, 1], with which the
    network was trained, and chooses the second class only if the output equals 1. The corrected script rescales, and
    chooses the second class if the output is above 0.5. Both scripts get the same pixels.

    Returns:
      None unless the photos are files of two classes.
    """
    import keras

    if not test.paths or network.output_shape[-1] != 1:
        return None
    size = network.input_shape[1:3]
    published, corrected = [], []
    for first in range(0, test.images, _SCRIPT_BATCH):
        paths = test.paths[first : first + _SCRIPT_BATCH]
        pixels = np.stack([keras.utils.img_to_array(keras.utils.load_img(path, target_size=size)) for path in paths])
        published.append(np.asarray(network.predict_on_batch(pixels))[:, 0] == 1)
        corrected.append(np.asarray(network.predict_on_batch(pixels / np.float32(255)))[:, 0] > 0.5)
    truth = test.labels == 1
    return ScriptCount(
        images=test.images,
        published_wrong=int((np.concatenate(published) != truth).sum()),
        corrected_wrong=int((np.concatenate(corrected) != truth).sum()),
    )
