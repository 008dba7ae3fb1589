"""A case of every part that `truth` measures, and a bias of five points in what the tool shows.

Loaders and models sleep on a fake clock, in turn, so that the figures are exact; one case sleeps on the real clock.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from tests.builders import a_truth_document
from tests.fakes import FakeClock
from tests.planted import planted
from unstall.benchmarks.truth import by_hand, groups, on_gpu
from unstall.benchmarks.truth import planted as planted_loads
from unstall.benchmarks.truth.comparison import Epoch, Figures, compare
from unstall.benchmarks.truth.planted import Metronome, Sleeper, a_batch, a_loader, a_model
from unstall.benchmarks.truth.promises import PLANTED
from unstall.benchmarks.truth.results import Check, derive
from unstall.benchmarks.truth.samples import Group
from unstall.profiles.measure.backends import TensorFlow
from unstall.profiles.measure.windows import Windows
from unstall.profiles.results import result as results
from unstall.profiles.results.attribution import Attribution
from unstall.profiles.samples import Sample
from unstall.profiles.stage_table import StageTable

# As a part of the epoch; of the rate of `counting`: as a part of it.
BIAS = 0.05


def checks_of(group: str, figures: Figures) -> dict[str, Check]:
    (checks,) = derive(a_truth_document(Group(name=group, figures=figures))).groups.values()
    return {f"{check.figure}, {check.case}" if group == "stages" else check.figure: check for check in checks}


def plant_bias(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    """Adds five points of the epoch to a part of each attribution."""

    def biased(attribute: Callable[..., Attribution], *arguments: Any, **options: Any) -> Attribution:
        attribution = attribute(*arguments, **options)
        more_s = BIAS * attribution.epoch_s_per_image
        seconds, shares = attribution.seconds_per_image, attribution.shares
        return replace(
            attribution,
            seconds_per_image=replace(seconds, **{part: seconds[part] + more_s}),
            shares=replace(shares, **{part: shares[part] + BIAS}),
            loading_ratio=attribution.loading_ratio + BIAS,
        )

    for name in ("attribute", "attribute_one_pass"):
        monkeypatch.setattr(results, name, functools.partial(biased, getattr(results, name)))


class Crowd:
    """A loader and a model, of which the model's step takes longer beside the loader; on the fake clock."""

    def __init__(self, fake_clock: FakeClock) -> None:
        self._clock = fake_clock
        self._beside = self._loaded = False

    def __enter__(self) -> None:
        self._beside = True

    def __exit__(self, *_: object) -> None:
        self._beside = False

    def load(self) -> None:
        self._clock.spend(cpu_s=0.015)
        self._loaded = True

    def step(self) -> None:
        self._clock.sleep(0.050 if self._beside or self._loaded else 0.040)
        self._loaded = False


def crowded(fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Figures]:
    """Measures a model to which each step takes 10 ms more where its loader works as well."""
    crowd = Crowd(fake_clock)
    monkeypatch.setattr(groups.by_hand, "Beside", lambda data: crowd)
    data = a_loader(crowd.load, 30)
    return groups.crowded("crowd", a_model(crowd.step), data, rounds=2)


def crossing_a_bus(fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Figures]:
    """Measures a model to which each batch takes 5 ms, from a loader that takes 5 ms as well."""
    bus, step, load = Sleeper(0.005), Sleeper(0.010), Sleeper(0.010)

    def carry(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            bus()
            yield batch

    monkeypatch.setattr(TensorFlow, "as_fit_passes", lambda self, batches: carry(batches))
    batch = a_batch()
    host = carry(itertools.repeat(batch))
    return on_gpu.carried("bus", a_model(step), "cpu", a_loader(load, 20), batch, host)


Planted = Callable[[FakeClock, pytest.MonkeyPatch], Iterator[Figures]]
# By group: a case of it on the fake clock, and the part of the epoch that the case is about.
EXACT: dict[str, tuple[Planted, str]] = {
    "grid-cpu": (lambda *_: groups.grid_cell("grid-cpu", 10.0, 10.0), "prep_stall"),
    "grid-emulated": (lambda *_: groups.grid_cell("grid-emulated", 10.0, 10.0), "prep_stall"),
    "loop-tf-data": (lambda *_: groups.loop_cell("loop-tf-data", 10.0, 10.0), "prep_stall"),
    "edges": (lambda *_: groups.edges(150.0, 250.0), "epoch_overhead"),
    "augmentation": (lambda *_: groups.augmentation(), "device_augment"),
    "interference": (crowded, "interference"),
    "transfer": (crossing_a_bus, "transfer"),
    "grid-gpu": (
        lambda *_: on_gpu.behind_host("grid-gpu", "sleeps", 10.0, a_model(Sleeper(0.010)), "cpu"),
        "prep_stall",
    ),
}
# The bias is planted where a part is found, not where its cases differ: for these parts in "grid-cpu".
OF_THE_SAME_PART = ("grid-emulated", "grid-gpu")


@planted
def test_a_model_that_multiplies_takes_about_the_time_that_it_is_to_take() -> None:
    step_s = by_hand.step_s(on_gpu.a_busy_model(0.02, side=128), itertools.repeat(on_gpu.on_device(a_batch())), 9)
    assert 0.005 < step_s < 0.08


@pytest.mark.long
@pytest.mark.parametrize("group", EXACT)
def test_each_part_is_found_and_a_bias_of_five_points_as_well(
    group: str, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure, part = EXACT[group]
    checks = checks_of(group, next(measure(fake_clock, monkeypatch)))
    assert set(checks) == set(PLANTED[group].bounds)
    for check in checks.values():
        # By hand the last step is not crowded: the loader has nothing left to load. Here it is: 10 of 1,950 ms.
        assert check.off == pytest.approx(0, abs=0.6 if check.in_points else 0.001), check
    assert checks["loading, %"].truth > 20
    if group in OF_THE_SAME_PART:
        return
    plant_bias(monkeypatch, part)
    biased = checks_of(group, next(measure(fake_clock, monkeypatch)))
    assert [name for name, check in biased.items() if check.holds and name != "loader's CPU, ms/image"] == []


def test_the_rate_of_a_metronome_is_found_and_a_bias_of_five_per_cent_as_well(
    fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert checks_of("counting", groups.counting(20))["images/sec"].off == pytest.approx(0)

    class Slower(Windows):
        def train(self, *arguments: Any, **options: Any) -> Sample:
            sample = super().train(*arguments, **options)
            return replace(sample, wall_ns=int((1 + BIAS) * sample.wall_ns))

    monkeypatch.setattr(groups, "Windows", Slower)
    assert not checks_of("counting", groups.counting(20))["images/sec"].holds


def test_stages_are_found_and_a_bias_of_five_points_as_well(
    fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "Burner", lambda s: functools.partial(fake_clock.spend, cpu_s=s))
    checks = checks_of("stages", groups.stages("sequential", None))
    assert len(checks) == 4
    for check in checks.values():
        assert check.off == pytest.approx(0, abs=0.1 if check.in_points else 0.001), check
    table_of = groups.tfdata_table

    def biased(dataset: tf.data.Dataset, **options: Any) -> StageTable:
        """Takes as much time from one stage as it gives to the other."""
        table = table_of(dataset, **options)
        moved_us = BIAS * sum(stage.busy_us_per_image for stage in table.stages)
        more = {"burning": {"cpu_us_per_image": moved_us}, "waiting": {"wait_us_per_image": -moved_us}}
        stages = (
            replace(stage, **{name: getattr(stage, name) + us for name, us in more.get(stage.name, {}).items()})
            for stage in table.stages
        )
        return replace(table, stages=tuple(stages))

    monkeypatch.setattr(groups, "tfdata_table", biased)
    assert not checks_of("stages", groups.stages("sequential", None))["stage, %, burning, sequential"].holds


@pytest.mark.parametrize(
    ("compute_s", "tries", "truth"),
    [
        ([0.50, 0.52], 1, 49),
        ([0.50, 0.60, 0.62], 2, 39),  # in the first try the machine has changed
        ([0.50, 0.60, 0.50], 2, 45),  # it goes on changing
    ],
)
def test_a_case_is_measured_anew_where_the_times_by_hand_differ(
    compute_s: list[float], tries: int, truth: float
) -> None:
    by_hand_s, results = iter(compute_s), []

    def time_epoch() -> Epoch:
        return Epoch(s=1.0, images=100, parts_s={"compute": next(by_hand_s)})

    def measure_result() -> Any:
        results.append(SimpleNamespace(attribution=SimpleNamespace(loading_ratio=0.5), epoch_images_per_sec=100.0))
        return results[-1]

    loading, rate = next(compare("grid-cpu", "case", time_epoch, measure_result))
    assert len(results) == tries
    assert (loading.truth[0], loading.measured[0], rate.truth[0]) == pytest.approx((truth, 50, 100))


@pytest.mark.claims
@planted
def test_a_case_of_the_grid_is_near_the_truth_on_a_real_clock() -> None:
    share, rate = checks_of("grid-emulated", next(groups.grid_cell("grid-emulated", 50.0, 50.0))).values()
    assert share.truth == pytest.approx(50, abs=5)
    assert rate.truth == pytest.approx(100, rel=0.1)
    assert abs(share.off) < 2.4  # with a bias of 5 points more
    assert abs(rate.off) < 0.03


def test_a_metronome_keeps_its_time_whatever_comes_between() -> None:
    metronome, between = Metronome(0.02), Sleeper(0.01)
    metronome()
    before = metronome._next_ns
    for _ in range(5):
        between()
        metronome()
    assert before is not None and metronome._next_ns is not None
    assert metronome._next_ns - before == pytest.approx(5 * 0.02e9)


@pytest.mark.parametrize("module", [by_hand, planted_loads])
def test_training_by_hand_uses_nothing_of_what_is_tested(module: ModuleType) -> None:
    imports = [node for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.ImportFrom)]
    ours = [
        (node.module, [alias.name for alias in node.names])
        for node in imports
        if str(node.module).startswith("unstall")
    ]
    assert ours == [("unstall.profiles", ["clock"])]


def test_every_group_has_cases_and_one_of_them_is_repeated() -> None:
    assert set(groups._GROUPS) == set(groups._TYPICAL) == set(PLANTED)
