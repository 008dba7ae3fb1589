"""What differs between Keras' backends, as far as it shows without a GPU."""

from __future__ import annotations

import itertools

import keras
import pytest

from tests.planted import measure
from unstall.profiles.devices import CPU, Device
from unstall.profiles.measure import windows
from unstall.profiles.measure.backends import BACKENDS, Jax, check_backend, check_device, device_here
from unstall.profiles.measure.steps import Step

GPU = Device(kind="gpu", name="gpu")


class WithGpu:
    @staticmethod
    def gpus():
        return ["a GPU"]


def test_an_unknown_backend_is_refused(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    with pytest.raises(ValueError, match="KERAS_BACKEND must be one of tensorflow, jax. Received: torch."):
        check_backend()


def test_a_gpu_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="there is no GPU that Keras can use here"):
        check_device(GPU)


def test_measuring_the_cpu_where_keras_uses_a_gpu_is_refused(monkeypatch):
    monkeypatch.setitem(BACKENDS, keras.backend.backend(), WithGpu)
    check_device(GPU)
    assert device_here() == GPU
    with pytest.raises(ValueError, match="Keras would train on the GPU"):
        check_device(CPU)


def test_without_a_gpu_the_cpu_is_what_trains():
    check_device(CPU)
    assert device_here() == CPU


def test_measure_refuses_a_gpu_that_is_not_there():
    with pytest.raises(ValueError, match="there is no GPU"):
        measure([], None, device="gpu")


@pytest.mark.parametrize(("device", "ahead"), [(CPU, 0), (GPU, 1)])
def test_jax_sends_one_batch_ahead_to_an_accelerator_only(monkeypatch, device, ahead):
    sent = []
    backend = Jax(device)
    monkeypatch.setattr(Jax, "on_device", lambda self, batch: sent.append(batch) or f"sent {batch}")
    drawn = []
    batches = (drawn.append(number) or number for number in itertools.count())
    fed = backend.as_fit_passes(batches)
    got = [next(fed) for _ in range(3)]
    assert backend.drawn_ahead == ahead
    assert len(drawn) == 3 + ahead
    assert got == (["sent 0", "sent 1", "sent 2"] if ahead else [0, 1, 2])


def test_each_backend_hands_its_own_predict_function_the_batch_that_lies_there():
    from unstall.profiles.measure.backends import TensorFlow

    on_tensorflow = TensorFlow(CPU).predict(lambda data: data, "inputs", ["what predict had"])
    outputs, state, given = Jax(GPU).predict(
        lambda state, it: ("outputs", state, list(it)), "inputs", "state", "its own"
    )
    assert on_tensorflow == [("inputs",)]
    assert (outputs, state, given) == ("outputs", "state", [("inputs",)])


@pytest.mark.parametrize(("ahead", "images", "wall_ns"), [(0, 80, 800), (1, 70, 700)])
def test_steps_that_draw_nothing_are_not_steady(ahead, images, wall_ns):
    """Ten steps of ten images and 100 ns, the first two not steady; with one batch drawn ahead nor is the last."""
    epoch = windows._Epoch(begin_ns=0, end_ns=1000)
    epoch.steps = [
        Step(asked_ns=100 * number, fetched_ns=100 * number + 40, done_ns=100 * number + 100, images=10)
        for number in range(10)
    ]
    window = windows._Window(name="train", round=0, epochs=1, ramp_steps=2)
    call = windows._Call(called_ns=0, returned_ns=1000, cpu_ns=1, canary_ns=1, others_ratio=None)
    sample = windows._sample([epoch], window, call, ahead)
    assert (sample.images, sample.wall_ns, sample.epoch_images) == (images, wall_ns, 100)
    assert sample.wait_ns == 40 * len(sample.step_ns)
