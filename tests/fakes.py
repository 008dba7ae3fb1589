"""Stand-ins for the clock and for child processes: they answer at once, with numbers that a test knows."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from tests.builders import (
    BACKENDS,
    MS,
    TUNED_BASE,
    a_fake_sample,
    a_peak,
    a_sample,
    a_trained,
    an_epoch,
    some_facts,
)
from unstall.benchmarks.accuracy.samples import Order, State
from unstall.benchmarks.lab.backend import Refused
from unstall.benchmarks.lab.child import JobRefused
from unstall.benchmarks.lab.rounds import Turn
from unstall.benchmarks.lab.serve import one_line
from unstall.benchmarks.lab.session import Job, JobFacts, ModelFacts
from unstall.benchmarks.tune.exactness import Exactness
from unstall.benchmarks.tune.results import AUTOTUNE
from unstall.pipeline.cost_model import Consumer, StageCost, StageKey, predict
from unstall.profiles import clock
from unstall.profiles.devices import Device
from unstall.profiles.machine.page_cache import StorageRates


class FakeClock:
    """Stands in for `profiles.clock`: time passes only where a test says so, in all threads at once.

    The machine has one core, and nobody but this process uses it.

    Attributes:
      passed_ns: nanoseconds since the clock was made.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.passed_ns, self._cpu_ns, self._lock = 0, 0, threading.Lock()
        patch.setattr(clock, "now_ns", lambda: 1000 * MS + self.passed_ns)
        patch.setattr(clock, "sleep_until_ns", lambda at_ns: self.sleep((at_ns - clock.now_ns()) / 1e9))
        patch.setattr(clock, "canary_ns", lambda: 5 * MS)
        for name in ("cpu_ns", "own_cpu_ns", "thread_cpu_ns"):
            patch.setattr(clock, name, lambda: self._cpu_ns)
        patch.setattr(clock, "gone_children_cpu_ns", lambda: 0)
        patch.setattr(clock, "machine_cpu_ns", lambda: (self._cpu_ns, 1))

    def sleep(self, seconds: float) -> None:
        """Lets time pass, in place of `time.sleep`."""
        self.spend(wait_s=seconds)

    def spend(self, *, cpu_s: float = 0.0, wait_s: float = 0.0) -> None:
        """Lets a core be busy, and then time pass."""
        cpu_ns = round(cpu_s * 1e9)
        with self._lock:
            self.passed_ns += cpu_ns + max(round(wait_s * 1e9), 0)
            self._cpu_ns += cpu_ns


class FakeTrainingChild:
    """Answers like a child that trains; the run of the tuned tf.data pipeline with seed 0 fails for lack of memory."""

    asked: ClassVar[list[Order]] = []

    def __init__(self, session, device, log, *arguments):
        self._looks = iter([State(images=32, passes=1), State(images=64, passes=2, trained=a_trained("1100"))])

    def ask(self, method, *arguments, timeout_s):
        assert timeout_s < 1000
        if method == "begin":
            FakeTrainingChild.asked.append(arguments[0])
            self._order = arguments[0]
            return None
        if self._order.config.loader == "tf_data" and self._order.config.seed == 0:
            return State(failure="out of memory (MemoryError)")
        return next(self._looks)

    def close(self):
        pass

    def kill(self):
        pass


class FakeDeviceChild:
    """Answers like a child; `trouble` maps (device, case, method or window) to what it raises, once."""

    asked: ClassVar[list[tuple[str, ...]]] = []
    trouble: ClassVar[dict[tuple[str, str, str], BaseException]] = {}
    started: ClassVar[list[str]] = []
    ended: ClassVar[list[str]] = []

    def __init__(self, session: str, device: Device, log: Path, *arguments: Any) -> None:
        self.device = device.name
        self.case = ""
        self.started.append(self.device)
        Path(log).write_text("a log")

    def ask(self, method: str, *arguments: Any, timeout_s: float) -> Any:
        assert 0 < timeout_s < 36_000
        if method == "open":
            self.case = arguments[0].name
        what = arguments[0] if method == "window" else method
        self.asked.append((self.device, self.case, what))
        error = self.trouble.pop((self.device, self.case, what), None)
        if error is not None:
            raise error
        return {
            "backend": lambda: BACKENDS["gpu" if self.device == "gpu" else "cpu"],
            "open": lambda: some_facts(warmup=None if arguments[0].steps_per_execution > 1 else a_sample("warmup")),
            "window": lambda: a_sample(arguments[0], round=arguments[1], ms=5 if arguments[0] == "resident" else 10),
            "peak": a_peak,
            "predict": lambda: 5000.0,
            "train": lambda: (an_epoch(accuracy=0.5),) * arguments[0],
        }[method]()

    def close(self) -> None:
        self.ended.append(self.device)

    kill = close


MODEL_FACTS = ModelFacts(
    image_size=(64, 64),
    loss="binary_crossentropy",
    optimizer="Adam",
    jit_compile=True,
    parameters=1,
    step_images_per_sec=3000.0,
)


CHILD_STORAGE = StorageRates(cold_bytes_per_sec=2e8, warm_bytes_per_sec=2e9, bytes_per_file=2e4)


class FakeChild:
    """Answers like a child; `trouble` maps (method, variant, window) to what it raises, once."""

    started: ClassVar[int] = 0
    asked: ClassVar[list] = []
    trouble: ClassVar[dict] = {}
    timeouts_s: ClassVar[dict] = {}

    def __init__(self, *_):
        FakeChild.started += 1

    def kill(self):
        self.asked.append(("kill", None, None))

    def ask(self, method, *arguments, timeout_s):
        job = arguments[0] if arguments and isinstance(arguments[0], Job) else None
        window = arguments[1] if method == "window" else None
        self.asked.append((method, job.variant if job else None, window))
        self.timeouts_s[window or method] = timeout_s
        error = self.trouble.pop((method, job.variant if job else None, window), None)
        if error is not None:
            raise error
        if method == "backend":
            return {"keras_backend": "fake"}
        if method == "open_model":
            return MODEL_FACTS
        if method == "prepare":
            return JobFacts(
                config=job.config,
                images=64,
                epochs=1,
                buffered_batches=0,
                notes=(),
                jit_compile=True,
                behind_layers=False,
                ceiling=f"{job.model}, {job.config.batch_size}",
                warmup=a_fake_sample("warmup", 0),
                workers=None,
                storage=CHILD_STORAGE if job.cold and job.config.cache == "none" else None,
                warm_only="it reads its cache" if job.cold and job.config.cache != "none" else None,
            )
        return a_fake_sample(window, arguments[2])


class PlantedChild(FakeChild):
    """Answers like the tuner's child: stages cost what is planted, and training takes what follows from that."""

    costs: ClassVar[dict[StageKey, StageCost]] = {}
    consumer = Consumer(us_per_image=1.0, cpu_us_per_image=0.0)

    @staticmethod
    def _cost(key: StageKey) -> StageCost:
        """Photos take 1 ms to load and 20 us from a cache in memory; OpenCV warps a whole batch for 10 us an image."""
        us_per_image = {"load": 1000.0, "composed": 1000.0, "cached": 20.0 if key[1] == "memory" else 900.0}
        if key == ("augment", "opencv", "batch"):
            return StageCost(us_per_image=10.0)
        return StageCost(us_per_image=us_per_image.get(key[0], 50.0))

    def ask(self, method, *arguments, timeout_s):
        if method == "stage_costs":
            PlantedChild.costs = {key: self._cost(key) for key in arguments[0]}
            return self.costs, self.consumer
        if method == "exactness":
            return Exactness(mean_levels=0.0, largest_levels=0.0, psnr_db=None)
        if method == "window":
            job, window, round_ = arguments
            planted = predict(job.config, self.costs, self.consumer, cores=2, images=40, source_bytes=1)
            noise = 1 + 0.01 * (-1) ** round_
            if job.config.autotune_algorithm == "stage_based":
                noise /= 1.2
            return a_sample(window, round=round_, ms=10e3 / planted.images_per_sec * noise)
        return super().ask(method, *arguments, timeout_s=timeout_s)

    def close(self):
        pass


NOISY = (AUTOTUNE, "noisy")


class FakeGroup:
    """Measures nothing: each round gives every job its planted rate, noisy jobs 6 % more or less by turns.

    A job for which several rates are planted has one after the other, as they are.
    """

    def __init__(self, rates: dict[Job, float | tuple[float, ...]], rounds: int) -> None:
        self._jobs, self.left_out = list(rates), []
        self.measured = {job: SimpleNamespace(samples=[], facts=SimpleNamespace(config=TUNED_BASE)) for job in rates}
        self._rates = rates
        for number in range(rounds):
            for turn in self.turns():
                self.take_turn(turn, number)

    @property
    def jobs(self) -> list[Job]:
        return list(self._jobs)

    def add(self, job: Job) -> None:
        self._jobs.append(job)
        self._rates.setdefault(job, 1100.0)
        self.measured.setdefault(job, SimpleNamespace(samples=[], facts=SimpleNamespace(config=TUNED_BASE)))

    def retire(self, job: Job) -> None:
        self._jobs.remove(job)

    def turns(self, **_) -> list[Turn]:
        return [Turn(group=self, of=job, window="train") for job in self.jobs]

    def take_turn(self, turn: Turn, number: int, begin=None) -> None:
        planted = self._rates[turn.of]
        if isinstance(planted, tuple):
            rate = planted[number % len(planted)]
        else:
            rate = planted * (1 + 0.06 * (-1) ** number * (turn.of.variant in NOISY))
        sample = SimpleNamespace(window=turn.window, s_per_image=1 / rate, whole_s_per_image=lambda images: 1 / rate)
        self.measured[turn.of].samples.append(sample)


class GateChildHere:
    """Does the work of the gate's child in the process of the test."""

    def __init__(self, session, device, log, subject, setting, here, *, home):
        self._subject, self._setting = subject, setting

    def ask(self, method, windows, anchored, inspected, *, timeout_s):
        from unstall.benchmarks.gate.child import measure  # loads TensorFlow

        try:
            here = self._subject.root  # not the checkout of the tests, whose modules are loaded here
            return measure(self._subject, self._setting, here, windows, anchored=anchored, inspected=inspected)
        except Refused as error:
            raise JobRefused(str(error)) from error
        except Exception as error:
            raise JobRefused(one_line(error)) from error

    def kill(self):
        pass
