"""The published experiments: every figure is about a case that is measured, on the kind of device that it names."""

from __future__ import annotations

import pytest

from unstall.benchmarks.devices.experiments import BEST, EXPERIMENTS, Case, arrays, photos
from unstall.models import MODELS
from unstall.pipeline.variants import VARIANTS


def test_every_published_experiment_is_there() -> None:
    assert list(EXPERIMENTS) == [
        *("cifar10-mlp", "mnist", "text", "feed-forward", "cifar10-cnn"),
        *("workers-and-batch", "augmentation", "deeper", "dropout", "128-px", "very-deep"),
    ]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_measures_what_it_claims(name: str) -> None:
    experiment = EXPERIMENTS[name]
    assert len(set(experiment.cases)) == len(experiment.cases) == len({case.name for case in experiment.cases})
    for claim in experiment.claims:
        assert set(claim.cases) <= set(experiment.cases)
        assert (claim.against is not None) is (claim.figure.quantity == "rate_ratio")
        assert claim.against is None or claim.against in experiment.cases
        assert claim.figure in MODELS[claim.cases[0].model].published


def test_every_figure_about_speed_that_a_network_was_published_with_is_claimed_once() -> None:
    claimed = [
        (claim.cases[0].model, claim.figure) for experiment in EXPERIMENTS.values() for claim in experiment.claims
    ]
    published = [
        (name, figure)
        for name, network in MODELS.items()
        for figure in network.published
        if figure.quantity != "accuracy"
    ]
    assert sorted(claimed, key=repr) == sorted(published, key=repr)


@pytest.mark.parametrize(
    ("on", "kinds"),
    [
        ("laptop CPU", ("cpu",)),
        ("VM", ("cpu",)),
        ("16 Xeon cores", ("cpu",)),
        ("Tesla P100", ("accelerator",)),
        ("V100", ("accelerator",)),
        ("CPU and GPU", ("cpu", "accelerator")),
        ("Tesla P100 against laptop CPU", ("cpu", "accelerator")),
    ],
)
def test_a_figure_is_about_the_kind_of_device_that_it_was_published_on(on: str, kinds: tuple[str, ...]) -> None:
    found = {claim.kinds for one in EXPERIMENTS.values() for claim in one.claims if claim.figure.on == on}
    assert found == {kinds}


@pytest.mark.parametrize("name", ["deeper", "dropout", "128-px", "very-deep"])
def test_a_cat_dog_network_is_fed_as_published_and_in_the_best_way_beside_the_one_before(name: str) -> None:
    new, best, old, old_best = EXPERIMENTS[name].cases
    assert new.model == best.model != old.model == old_best.model
    assert [case.feed for case in EXPERIMENTS[name].cases] == ["generator", BEST] * 2


def test_the_feed_forward_network_takes_all_examples_at_once() -> None:
    (case,) = EXPERIMENTS["feed-forward"].cases
    assert (case.batch_size, case.name) == (None, "feed-forward, arrays, full batch")


def test_the_cifar_network_is_measured_at_both_published_batch_sizes() -> None:
    assert [case.batch_size for case in EXPERIMENTS["cifar10-cnn"].cases] == [128, 512]


def test_one_worker_and_four_are_measured_at_both_published_batch_sizes() -> None:
    (claim,) = (one for one in EXPERIMENTS["workers-and-batch"].claims if "workers 1 and 4" in one.figure.when)
    grid = {(case.config.workers, case.config.batch_size) for case in claim.cases if case.config is not None}
    assert grid == {(1, 32), (1, 64), (4, 32), (4, 64)}
    assert {case.batch_size for case in claim.cases} == {32, 64}


def test_names_tell_cases_apart() -> None:
    assert (
        photos("cats-dogs-64", "generator-4-workers").name == "cats-dogs-64, generator-4-workers, batch 32, 4 workers"
    )
    assert photos("cats-dogs-64", BEST, augmented=False).feed == f"{BEST}, not augmented"
    case = Case(model="m", config=None, feed="arrays", batch_size=8, precision="mixed_bfloat16", steps_per_execution=4)
    assert case.name == "m, arrays, batch 8, mixed_bfloat16, 4 steps an execution"


def test_an_experiment_in_another_precision_is_all_in_it() -> None:
    changed = EXPERIMENTS["deeper"].in_precision("mixed_bfloat16")
    cases = [*changed.cases, *(case for claim in changed.claims for case in (*claim.cases, claim.against) if case)]
    assert {case.precision for case in cases} == {"mixed_bfloat16"}
    assert changed.in_precision("float32") == EXPERIMENTS["deeper"]


def test_photos_keep_what_their_variant_says() -> None:
    assert photos("cats-dogs-64", "generator-batch-64").batch_size == 64
    assert photos("cats-dogs-64", "generator").config == VARIANTS["generator"]
    assert arrays("mnist-digits").batch_size == MODELS["mnist-digits"].training.batch_size
