"""Workers that are killed or hang in `fit`: an error that names them, soon, and nobody left behind."""

import dataclasses
import gc
import os
import signal
import threading
import time

import numpy as np
import pytest

from tests.builders import fed, whole
from tests.checks import assert_gone, children
from tests.planted import ERROR_S, crash
from unstall.pipeline import VARIANTS, from_arrays
from unstall.pipeline.loaders import workers
from unstall.pipeline.loaders.py_dataset import ImagePyDataset
from unstall.pipeline.loaders.workers import WorkerError

IMAGES, WORKERS = 24, 3


class Failing(ImagePyDataset):
    """Fails in a worker at one batch of one epoch, in one way."""

    at, how = 0, "SIGKILL"

    def _batch(self, index, empty):
        here = threading.current_thread().name.startswith("unstall worker") or self._forked_of != os.getpid()
        if here and index == self.at and self._epoch == 2:
            crash(self.how)
        return super()._batch(index, empty)


def failing(at: int = 0, how: str = "SIGKILL", *, processes: bool = True, timeout_s: float = 60.0) -> Failing:
    config = dataclasses.replace(
        VARIANTS["py-dataset"], batch_size=2, workers=WORKERS, use_multiprocessing=processes, image_size=(8, 8)
    )
    images = np.random.default_rng(0).integers(0, 256, (IMAGES, 8, 8, 3), np.uint8)
    data = Failing(from_arrays(images, np.arange(IMAGES) % 2), config, batch_timeout_s=timeout_s)
    data.at, data.how, data._forked_of = at, how, os.getpid()
    return data


def ask_from_a_thread(data: Failing) -> None:
    """Has a batch made by workers, as Keras' pool does."""
    thread = threading.Thread(target=data.__getitem__, args=(0,))
    thread.start()
    thread.join()


def error_of_fit(data: Failing) -> str:
    """What `fit` says of the second of three epochs, in time."""
    before, began = children(), time.monotonic()
    with pytest.raises(Exception) as caught:
        fed(data, 3)
    assert time.monotonic() - began < ERROR_S
    assert_gone(before)
    return str(caught.value)


@pytest.mark.parametrize(
    "at",
    [
        *(pytest.param(at, marks=pytest.mark.slow, id=name) for at, name in ((0, "first"), (IMAGES // 4, "middle"))),
        pytest.param(IMAGES // 2 - 1, id="last"),
    ],
)
def test_a_worker_that_is_killed_ends_fit_with_its_name_and_the_signal(at):
    message = error_of_fit(failing(at))
    assert "WorkerError: worker " in message
    assert f" of {WORKERS} (process " in message
    assert (
        f") was killed by signal SIGKILL when it was to make batch {at}; most likely the machine ran out of memory. "
        "Use fewer workers, or smaller batches."
    ) in message


@pytest.mark.long
@pytest.mark.parametrize("processes", [False, True], ids=["thread", "process"])
def test_a_worker_that_hangs_ends_fit_with_its_calls(processes, monkeypatch):
    monkeypatch.setattr(workers, "_LEAVE_S", 0.2)
    message = error_of_fit(failing(3, "hang", processes=processes, timeout_s=3.0))
    assert f" of {WORKERS} ({'process ' if processes else 'a thread)'}" in message
    assert "gave no batch 3 within 3 s: it hangs. Its calls:" in message
    assert "sleep_for_ever" in message


def test_after_a_failure_the_next_fit_has_new_workers():
    data = failing(5)
    error_of_fit(data)
    data.at = -1
    images, labels = whole(fed(data)[0])
    assert len(images) == IMAGES
    assert np.bincount(labels).tolist() == [IMAGES // 2] * 2


def test_a_training_that_is_broken_off_leaves_no_worker():
    before = children()
    data = failing(at=-1)
    steps = iter(range(3))

    def stopped(iterator):
        next(iterator)
        if next(steps) == 2:
            raise KeyboardInterrupt
        return {}

    import keras

    model = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile(loss="mse")
    model.train_function = stopped
    with pytest.raises(KeyboardInterrupt):
        model.fit(data, verbose=0)
    assert len(children() - before) == WORKERS
    data.close()
    assert_gone(before)


def test_who_asks_behind_the_end_starts_no_worker():
    """Keras' pool still asks for what it has queued when a `fit` is broken off."""
    before = children()
    data = failing(at=-1)
    ask_from_a_thread(data)
    data.close()
    messages = []

    def late():
        with pytest.raises(WorkerError) as caught:
            data[1]
        messages.append(str(caught.value))

    thread = threading.Thread(target=late)
    thread.start()
    thread.join()
    assert messages == ["The workers were closed."]
    assert_gone(before)
    images, _ = whole(fed(data)[0])
    assert len(images) == IMAGES


def test_an_epoch_is_planned_before_a_worker_of_it_is_forked(monkeypatch):
    """A process that is forked earlier would make the batches of the epoch before, or of half a plan."""
    data = failing(at=-1)
    planning, asked = threading.Event(), threading.Event()
    plan = Failing._plan_next_epoch

    def slow(self):
        planning.set()
        asked.wait(5)
        time.sleep(0.1)  # in which the late caller below would fork
        plan(self)

    monkeypatch.setattr(Failing, "_plan_next_epoch", slow)
    thread = threading.Thread(target=data.on_epoch_end)
    thread.start()
    planning.wait(5)
    batches = []

    def late():
        asked.set()
        batches.append(data[0])

    caller = threading.Thread(target=late)
    caller.start()
    caller.join()
    thread.join()
    expected, _ = data.make_in_caller(0)
    assert np.array_equal(batches[0][0], expected)
    data.close()


def test_workers_of_data_that_nobody_has_any_more_leave():
    before = children()
    data = failing(at=-1)
    ask_from_a_thread(data)
    assert len(children() - before) == WORKERS
    del data
    gc.collect()
    assert_gone(before)


@pytest.mark.slow  # waits out the time in which ours must have failed
def test_stock_keras_waits_for_ever_for_a_worker_that_was_killed():
    class Stock(Failing):
        """Our batches, made by Keras' own pool of processes."""

        use_multiprocessing = True

        def __getitem__(self, index):
            return self.make_in_caller(index)

    data = failing(3)
    data.__class__ = Stock
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        fed(data, 3)
        os._exit(0)
    try:
        deadline = time.monotonic() + 2 * ERROR_S
        while time.monotonic() < deadline:
            assert os.waitpid(child, os.WNOHANG) == (0, 0)
            time.sleep(0.5)
    finally:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
