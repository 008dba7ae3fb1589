"""The costs that predictions rest on: of stages, and of a model alone and beside a loader."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest

from unstall.benchmarks.tune import costs
from unstall.benchmarks.tune.costs import StageCosts, measure_costs
from unstall.models import open_model
from unstall.pipeline import PipelineConfig, from_folder
from unstall.pipeline.cost_model import StageCost
from unstall.pipeline.stages import read
from unstall.profiles.devices import parse_device
from unstall.profiles.measure.windows import Windows

CONFIG = PipelineConfig(image_size=(64, 64), batch_size=8)
KEYS = [
    ("batch", "elements", "float32"),
    ("load", "files", "full"),
    ("composed", "raw"),
    ("batch", "batches", "float32"),
]


@pytest.fixture(autouse=True)
def short_runs(monkeypatch):
    monkeypatch.setattr(costs, "_RUN_S", 0.001)


@pytest.mark.parametrize(("shuffle_buffer", "offsets"), [(8, False), (0, True)])
def test_records_cost_what_reading_them_in_training_takes(shuffle_buffer, offsets, photos, monkeypatch):
    """From front to back through a buffer; by offset where there is none."""
    calls, by_offset = [], read._by_offset
    monkeypatch.setattr(read, "_by_offset", lambda *values: calls.append(values) or by_offset(*values))
    keys = [("batch", "elements", "float32"), ("load", "records", "full")]
    config = PipelineConfig(image_size=(16, 16), batch_size=8, shuffle_buffer=shuffle_buffer)
    with StageCosts(config, from_folder(photos), keys) as stages:
        stages.run()
        assert stages.costs.keys() == set(keys) and bool(calls) is offsets


@pytest.mark.parametrize(
    ("several", "python", "most_calls", "crowded"),
    [
        ((160.0, 16.0), False, None, 1.6),  # 16 threads on 8 cores: all busy, each slower
        ((104.0, 16.0), False, None, 1.0),  # noise
        ((160.0, 16.0), True, None, 1.6),
        ((130.0, 3.0), True, 3.0, 1.0),  # Python's lock lets three run
        ((100.0, 15.0), True, 15.0, 1.0),  # calls wait a little for it
        ((160.0, 15.0), True, 15.0, 1.6),  # and share cores as well
        ((100.0, 15.0), False, None, 1.0),
        ((100.0, 1.0), True, 1.0, 1.0),
    ],
)
def test_parallel_calls_show_locks_and_hardware_threads_that_share_a_core(several, python, most_calls, crowded):
    cpu_us, cores_busy = several
    stage = costs._Stage(
        single=SimpleNamespace(cpu_us=100.0 + 60.0, cores_busy=1.0),
        several=SimpleNamespace(cpu_us=cpu_us + 60.0, cores_busy=cores_busy),
        images=2,
        python=python,
    )
    assert stage.cost(30.0, 16) == StageCost(us_per_image=50.0, most_calls=most_calls, crowded_factor=crowded)


@pytest.mark.long
def test_stages_and_model_are_measured_in_turns(photos, monkeypatch):
    """An emulated device of 500 images/sec: 2 ms an image, and the hand-over of a batch."""
    turns = []
    monkeypatch.setattr(StageCosts, "run", lambda self, run=StageCosts.run: turns.append("stages") or run(self))
    train = Windows.train
    monkeypatch.setattr(Windows, "train", lambda *values, **named: turns.append("model") or train(*values, **named))
    windows = Windows(open_model("cats-dogs-64", classes=2), parse_device("emulated:500"))
    stages, consumer = measure_costs(KEYS, windows, CONFIG, from_folder(photos))
    assert turns == ["stages", "model", "model"] * 3
    assert stages.keys() == set(KEYS) and all(cost.us_per_image > 0 for cost in stages.values())
    assert consumer.us_per_image > 2000.0 and consumer.crowded_us_per_image > 2000.0
    assert consumer.crowd_calls >= 1 and consumer.crowd_us_per_image > 0


def test_what_was_opened_is_closed_where_a_stage_fails(photos, monkeypatch):
    opened, closed = [], []
    build_loader = costs.build

    @contextlib.contextmanager
    def noted(*values):
        opened.append(values)
        try:
            with build_loader(*values) as loader:
                yield loader
        finally:
            closed.append(values)

    def failing(self, key):
        raise ValueError("planted")

    monkeypatch.setattr(costs, "build", noted)
    monkeypatch.setattr(StageCosts, "_composed", failing)
    with pytest.raises(ValueError, match="planted"):
        StageCosts(CONFIG, from_folder(photos), KEYS)
    assert opened and opened == closed[::-1]


def test_a_slow_model_is_measured_in_one_round(photos, monkeypatch):
    monkeypatch.setattr(costs, "_CONSUMER_S", 0.0)
    windows = Windows(open_model("cats-dogs-64", classes=2), parse_device("emulated:500"))
    consumer = costs.ConsumerCost(windows, CONFIG, from_folder(photos))
    for number in range(3):
        consumer.run(number)
    assert len(consumer._alone) == len(consumer._crowded) == 1
