"""A service of real processes: each batch once, in an epoch of a model, whatever happens to a worker."""

from __future__ import annotations

import dataclasses
import io
import os
import pathlib
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests import PROJECT_ROOT
from tests.checks import assert_gone, children
from tests.pipeline.service.own_numbers import make_numbers, make_others
from unstall.pipeline import VARIANTS, ConfigError, from_folder, from_service
from unstall.pipeline.building import build
from unstall.pipeline.errors import SourceError, UnavailableError
from unstall.pipeline.loaders.python_batches import PythonBatches
from unstall.pipeline.service import server
from unstall.pipeline.service.client import ServiceClient
from unstall.pipeline.service.costs import stage_costs
from unstall.pipeline.service.handshake import check_same
from unstall.pipeline.service.local import LocalService, WorkerProcess
from unstall.pipeline.service.numbered import BatchMaker, numbered_batches
from unstall.pipeline.service.worker import main as serve_orders
from unstall.pipeline.sources.source import ImageSource

pytestmark = pytest.mark.long

CONFIG = dataclasses.replace(VARIANTS["tf-data-composed"], batch_size=4)


@pytest.fixture(scope="module")
def source(photos) -> ImageSource:
    return from_folder(photos)


@pytest.fixture(scope="module")
def service(source) -> Iterator[LocalService]:
    """A dispatcher and two workers."""
    running = LocalService(source, CONFIG, 2)
    yield running
    running.close()


def images_of(batches: Any) -> Counter[bytes]:
    return Counter(image.tobytes() for images, _ in batches for image in images)


def expected_of(source: ImageSource, epochs: int) -> list[Counter[bytes]]:
    batches = PythonBatches(source, dataclasses.replace(CONFIG, output_dtype="uint8"))
    return [images_of(batches) for _ in range(epochs)]


def test_its_epochs_have_the_images_and_draws_of_an_epoch_without_a_service(service, source):
    client = ServiceClient(service.address, source, CONFIG, patience_s=60)  # on a busy machine, too
    assert [images_of(client.epoch()) for _ in range(3)] == expected_of(source, 3)
    assert [(counts.served, counts.repaired, counts.twice) for counts in client.counts] == [(10, 0, 0)] * 3
    client.close()


def test_both_workers_describe_themselves(service, source):
    client = ServiceClient(service.address, source, CONFIG)
    assert {facts.worker for facts in client.workers} == {f"{os.uname().nodename}:{pid}" for pid in service.pids}
    for facts in client.workers:
        assert (facts.images, facts.batches) == (40, 10)
        assert list(facts.costs_us) == ["read", "decode", "resize, augment, batch", "all"]
        assert facts.costs_us["all"] > 0
    client.close()


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"seed": 3}, "it has seed 0, here 3"),
        ({"batch_size": 5, "decode": "full"}, "it has batch_size 4, here 5; decode scaled, here full"),
    ],
)
def test_another_pipeline_than_that_of_the_workers_is_refused(service, source, changes, what):
    with pytest.raises(UnavailableError, match=f"worker .* serves another pipeline: {what}$"):
        ServiceClient(service.address, source, dataclasses.replace(CONFIG, **changes))


def test_so_is_another_kind_of_pipeline(service, source):
    with pytest.raises(UnavailableError, match="it has batch_size 4, here 32; augment_with opencv, here tf_ops"):
        ServiceClient(service.address, source, VARIANTS["tf-data-autotune"])


def test_and_other_files(service, source):
    with pytest.raises(UnavailableError, match=r"serves another pipeline: it has list of files \w+, here \w+$"):
        ServiceClient(service.address, source.take(20), CONFIG)


def test_a_worker_refuses_what_it_does_not_have_even_without_a_handshake(service, source, monkeypatch):
    monkeypatch.setattr("unstall.pipeline.service.client.check_same", lambda *arguments: None)
    client = ServiceClient(service.address, source, dataclasses.replace(CONFIG, seed=3))
    with pytest.raises(UnavailableError, match="a worker serves another pipeline: it lacks a Python function"):
        list(client.epoch())
    client.close()


def _devices() -> dict[int, bytes]:
    """Returns the network device to which each port of this process is bound."""
    return {
        waiting.getsockname()[1]: waiting.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16).rstrip(b"\0")
        for waiting in server.listening()
    }


def test_its_port_is_bound_to_the_loopback_device(service):
    assert _devices()[service.address.port] == b"lo"


def test_a_server_that_is_open_is_bound_to_none():
    dispatcher = server.start_dispatcher(0, open_to_others=True)
    port = int(dispatcher.target.rpartition(":")[2])
    assert _devices()[port] == b""
    del dispatcher


def test_a_port_that_is_taken_is_an_error():
    dispatcher = server.start_dispatcher(0)
    port = int(dispatcher.target.rpartition(":")[2])
    with pytest.raises(UnavailableError, match=f"port {port} is taken"):
        server.start_dispatcher(port)


def test_a_worker_that_is_killed_costs_no_image(source):
    """The other worker goes on until its input ends, and the client makes what the dead worker had."""
    before = children()
    service = LocalService(source, CONFIG, 2)
    client = ServiceClient(service.address, source, CONFIG, patience_s=1)
    expected = expected_of(source, 3)
    epoch = client.epoch()
    first = [next(epoch)]
    os.kill(service.pids[0], signal.SIGKILL)
    served = [images_of([*first, *epoch]), images_of(client.epoch()), images_of(client.epoch())]
    assert served == expected
    assert all(counts.exactly_once for counts in client.counts)
    client.close()
    _, other = service._workers
    other._pipe(other._process.stdin).close()
    assert other._process.wait(20) == 0
    service.close()
    assert_gone(before)


@pytest.mark.parametrize(
    ("served", "levels"), [("files", 0.501), pytest.param("images", 1.001, marks=pytest.mark.slow)]
)
def test_a_cut_serves_the_same_pixels_even_if_its_worker_is_killed(source, served, levels, monkeypatch):
    """Two epochs by a worker, with a short last batch; and, once it is dead, one that the client makes alone.

    Workers round what they send to whole levels of 255: images before they are augmented, whole batches after it.
    """
    config = dataclasses.replace(VARIANTS["tf-data-autotune"], batch_size=16, workers=2, autotune=False, prefetch=0)
    whole = BatchMaker(source, config)

    def check(epoch: int) -> None:
        batches = [(images.numpy(), labels.numpy()) for images, labels in loader.data]
        assert [len(labels) for _, labels in batches] == [16, 16, 8]
        expected = numbered_batches(tf.data.Dataset.range(3 * epoch, 3 * epoch + 3), whole)
        for (images, labels), (_, its_images, its_labels, _) in zip(batches, expected, strict=True):
            assert images.dtype == np.float32
            np.testing.assert_array_equal(labels, its_labels)
            assert np.abs(images * 255 - its_images.numpy().astype(np.float32)).max() <= levels

    with build(dataclasses.replace(config, service="local:1", served=served), source) as loader:
        client = loader.service.client
        monkeypatch.setattr(client, "_patience_ns", 60 * 10**9)  # on a busy machine, too
        check(0)
        check(1)
        assert [counts.repaired for counts in client.counts] == [0, 0]
        os.kill(loader.service._local.pids[0], signal.SIGKILL)
        monkeypatch.setattr(client, "_patience_ns", 10**9)
        while client.counts[-1].repaired < 3:  # what came before the worker died lies ready for some epochs
            check(len(client.counts))
        assert all(counts.exactly_once for counts in client.counts)


def test_a_model_trains_on_it(service, source):
    import keras

    model = keras.Sequential([keras.layers.Input((64, 64, 3)), keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile(loss="mse")
    for one_iterator, address in ((False, service.address.text), (True, "local:1")):
        config = dataclasses.replace(CONFIG, service=address, one_iterator=one_iterator)
        with build(config, source) as loader:
            history = model.fit(**loader.fit_arguments, epochs=2, verbose=0)
            assert len(history.history["loss"]) == 2
            assert all(counts.exactly_once for counts in loader.service.client.counts[:2])


def test_images_that_are_not_files_are_refused():
    from unstall.pipeline import from_arrays

    arrays = from_arrays(np.zeros((8, 8, 8, 3), np.uint8), np.arange(8) % 2)
    with pytest.raises(UnavailableError, match="a service reads folders of files only"):
        build(dataclasses.replace(CONFIG, service="local:1"), arrays)


def test_an_image_that_cannot_be_decoded_is_said_when_a_worker_measures_what_it_costs(source, tmp_path):
    for path, file in zip(source.paths, source.files, strict=True):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        content = pathlib.Path(path).read_bytes()
        (tmp_path / file).write_bytes(content[: len(content) // 3])
    with pytest.raises(SourceError, match="cannot be served: "):
        stage_costs(dataclasses.replace(source, root=tmp_path), dataclasses.replace(CONFIG, resample="separate"))


def test_a_worker_that_cannot_start_says_why(source):
    gone = dataclasses.replace(source, root=source.root / "gone")
    with pytest.raises(UnavailableError, match="a worker process of the service did not start: FileNotFoundError"):
        LocalService(gone, CONFIG, 1)


def test_a_worker_whose_input_ends_before_its_order_ends_too():
    answers = io.StringIO()
    assert (serve_orders(io.StringIO(), answers), answers.getvalue()) == (0, "")


def test_a_worker_is_run_by_the_words_before_its_command():
    worker = WorkerProcess("", prefix=("echo", "before"))
    assert worker._pipe(worker._process.stdout).readline().startswith(f"before {sys.executable} -c ")
    worker.close()


@pytest.fixture(scope="module")
def own_service() -> Iterator[str]:
    """The address of a service whose one worker, started by the command, serves `make_numbers`."""
    dispatcher = server.start_dispatcher(0)
    address = dispatcher.target.removeprefix("grpc://").replace("localhost", "127.0.0.1")
    words = ("worker", "--dispatcher", address, "--pipeline", "tests.pipeline.service.own_numbers:make_numbers")
    worker = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.service", *words],
        cwd=PROJECT_ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert worker.stdout is not None
    assert worker.stdout.readline().startswith("worker ")
    yield address
    worker.send_signal(signal.SIGINT)
    assert worker.wait(20) == 130
    worker.stdout.close()
    del dispatcher


def test_a_users_own_function_is_served(own_service):
    dataset = from_service(make_numbers, own_service)
    for _ in range(2):
        assert sorted(int(number) for number in dataset) == list(range(0, 80, 2))


def test_a_users_own_function_must_be_the_same_there(own_service):
    with pytest.raises(UnavailableError, match=r"serves another pipeline: it has no builtins\.abs"):
        from_service(make_others, own_service)


@pytest.mark.parametrize(
    ("service", "sharding", "message"),
    [("local:2", "dynamic", "`service` must be HOST:PORT"), ("here:1", "static", "`sharding` must be one of dynamic")],
)
def test_wrong_arguments_are_refused(service, sharding, message):
    with pytest.raises(ConfigError, match=message):
        from_service(make_numbers, service, sharding=sharding)


class SilentStream:
    """Gives three elements, and then nothing more."""

    def __init__(self, *arguments: Any) -> None:
        self._left = [(tf.constant(number, tf.int64),) for number in range(3)]

    def next(self, *, wait_ns: int) -> Any:
        return self._left.pop() if self._left else None

    def close(self) -> None:
        self._left.clear()


def test_elements_that_do_not_come_are_warned_of(own_service, monkeypatch):
    dataset = from_service(make_numbers, own_service)
    monkeypatch.setattr("unstall.pipeline.service.own.Stream", SilentStream)
    with pytest.warns(UserWarning, match="after 3 elements nothing came from the workers of .* for 30 s"):
        assert len(list(dataset)) == 3


def test_facts_without_a_function_name_it():
    from unstall.pipeline.service.account import WorkerFacts

    facts = WorkerFacts(worker="a:1", cores=2, images=1, batches=1, functions=("m.f:1",))
    check_same((facts,), ["m.f:1"], "here:1")
    with pytest.raises(UnavailableError, match=r"worker a:1 of here:1 .*: its m\.f is another \(1, here 2\)$"):
        check_same((facts,), ["m.f:2"], "here:1")
