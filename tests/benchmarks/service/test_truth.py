"""Planted limits of real services, and what the attribution says of them."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.builders import a_service_document
from tests.planted import planted
from tests.relay import Relay
from unstall.benchmarks.lab.ports import free_port
from unstall.benchmarks.service.child import ServiceSession
from unstall.benchmarks.service.plan import Asked
from unstall.benchmarks.service.results import ServiceResult, derive
from unstall.benchmarks.service.samples import Measurements
from unstall.pipeline import VARIANTS, from_folder
from unstall.pipeline.address import Address, Place
from unstall.pipeline.service import server
from unstall.pipeline.service.local import WorkerProcess
from unstall.pipeline.service.worker import order_for
from unstall.pipeline.sources.source import ImageSource

pytestmark = pytest.mark.long

CONFIG = dataclasses.replace(VARIANTS["tf-data-composed"], batch_size=8, service="none")
LINK_BYTES_PER_SEC = 4e6


class Service:
    """A dispatcher in this process, and workers, each of which a relay may lead to. They start meanwhile."""

    def __init__(self, source: ImageSource, relays: list[Relay | None]) -> None:
        self._dispatcher = server.start_dispatcher(0)
        self.address = Address(host="127.0.0.1", port=int(self._dispatcher.target.rpartition(":")[2]))
        self.workers = []
        for relay in relays:
            port = free_port()
            if relay:
                relay.lead_to(port)
            seen_as = f"127.0.0.1:{relay.port}" if relay else None
            place = Place(dispatcher=self.address.text, port=port, seen_as=seen_as)
            self.workers.append(WorkerProcess(order_for(source, CONFIG, place)))

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
        self._dispatcher = None


@pytest.fixture(scope="module")
def source(photos) -> ImageSource:
    return from_folder(photos)


@pytest.fixture(scope="module")
def services(source, beside) -> Iterator[dict[str, Service]]:
    """A service of one worker behind a slow link, and one of two."""
    with contextlib.ExitStack() as opened:
        relay = Relay(bytes_per_sec=LINK_BYTES_PER_SEC)
        opened.callback(relay.close)
        running = {}
        with beside():
            for name, relays in (("a link", [relay]), ("two", [None, None])):
                running[name] = Service(source, relays)
                opened.callback(running[name].close)
            for service in running.values():
                for worker in service.workers:
                    worker.wait_ready()
        yield running


def measured(service: Service, source: ImageSource, **changes: Any) -> ServiceResult:
    """Measures windows of a service that runs, as the command does, and derives its result."""
    values: dict[str, Any] = {
        "config": CONFIG,
        "services": (service.address.text,),
        "device": None,
        "images_per_sec": None,
        "link_bytes_per_sec": None,
        "rounds": 2,
        "data": "photos",
    }
    asked = Asked(**(values | changes))
    session = ServiceSession(asked, source)
    subject = session.start(service.address.text)
    windows = tuple(session.window(service.address.text, number) for number in range(asked.rounds))
    session.close()
    subject = dataclasses.replace(subject, windows=windows)
    document = a_service_document(
        plan=asked, samples=Measurements(host="elsewhere", cores=os.cpu_count() or 1, subjects=(subject,))
    )
    return derive(document).subjects[0]


@planted
def test_a_link_that_is_full_is_the_limit(source, services):
    result = measured(services["a link"], source, link_bytes_per_sec=LINK_BYTES_PER_SEC)
    assert result.cause == "network"
    assert result.link_ratio == pytest.approx(1.0, abs=0.15)
    image_bytes = 64 * 64 * 3 + 4
    assert result.images_per_sec == pytest.approx(LINK_BYTES_PER_SEC / image_bytes, rel=0.15)
    assert result.served == result.batches and not result.repaired


@planted
def test_a_device_that_takes_less_than_the_service_makes_is_fed(source, services):
    result = measured(services["two"], source, device="emulated:40", images_per_sec=40.0)
    assert result.cause == "fed"
    assert result.images_per_sec == pytest.approx(40, rel=0.1)


@planted
def test_a_worker_that_stands_still_most_of_the_time_is_named(source, services):
    """One of two workers runs a tenth of the time, so that it makes a tenth of what it could."""
    service = services["two"]
    ended = threading.Event()

    def hold_back() -> None:
        while not ended.is_set():
            service.workers[0].signal(signal.SIGSTOP)
            ended.wait(0.09)
            service.workers[0].signal(signal.SIGCONT)
            ended.wait(0.01)

    holder = threading.Thread(target=hold_back)
    holder.start()
    try:
        result = measured(service, source)
    finally:
        ended.set()
        holder.join()
    slow = [worker.worker for worker in result.workers if worker.slow]
    assert slow == [f"{os.uname().nodename}:{service.workers[0].pid}"]
