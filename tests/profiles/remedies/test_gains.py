"""Gains of remedies by arithmetic: pairing by rounds, the choice, what is measured again, the whole script."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import a_sample, a_trial, samples_at
from unstall.profiles.remedies import AS_WRITTEN, Trial, gains_of, loading_of
from unstall.profiles.report.remedies import faster_line, gain_rows, longer_line, trial_sentences

# Four rounds in which "b" is twice as fast.
TWICE = {AS_WRITTEN: samples_at(*[100.0] * 4), "b": samples_at(*[200.0] * 4)}


def chosen_of(trial):
    chosen = gains_of(trial).chosen
    return None if chosen is None else chosen.name


def test_the_fastest_is_chosen_and_told_by_rounds_that_did_not_choose_it():
    trial = a_trial(TWICE, {AS_WRITTEN: samples_at(100, 100, 100), "b": samples_at(150, 151, 149)})
    chosen = gains_of(trial).chosen
    assert chosen is not None and chosen.best[0] == pytest.approx(1.5, rel=1e-3)
    assert chosen.against[0] == pytest.approx(2)
    assert "(*) 1.50 times as fast (1.48 to 1.53; measured again): b." in trial_sentences(trial)


@pytest.mark.parametrize("rates", [(100, 101, 99), (90, 180, 300)], ids=["as fast", "perhaps"])
def test_a_gain_that_does_not_come_again_is_none(rates):
    trial = a_trial(TWICE, {AS_WRITTEN: samples_at(100, 100, 100), "b": samples_at(*rates)})
    assert chosen_of(trial) is None
    assert chosen_of(a_trial(TWICE, {AS_WRITTEN: samples_at(100), "b": []})) is None


def test_a_trial_that_is_stopped_while_it_measures_again_keeps_what_the_first_rounds_chose():
    assert chosen_of(a_trial(TWICE, {AS_WRITTEN: samples_at(100), "b": []}, ended=False)) == "b"


def test_rounds_are_compared_by_their_numbers():
    late = tuple(replace(sample, round=sample.round + 2) for sample in samples_at(300, 300, 300))
    trial = a_trial({AS_WRITTEN: samples_at(1, 1, 100, 100, 100), "b": late})
    assert gains_of(trial).all[1].against[0] == pytest.approx(3)


def test_of_two_that_gain_the_same_the_one_with_fewer_remedies_is_chosen():
    samples = {AS_WRITTEN: samples_at(*[100] * 5), "b": samples_at(*[200] * 5), "b + c": samples_at(*[202] * 5)}
    assert chosen_of(a_trial(samples)) == "b"
    assert chosen_of(a_trial(samples | {"b + c": samples_at(*[230] * 5)})) == "b + c"


def test_a_trifle_is_no_gain():
    trial = a_trial({AS_WRITTEN: samples_at(*[100] * 4), "b": samples_at(*[102] * 4)})
    assert gains_of(trial).all[1].against[1][0] > 1
    assert chosen_of(trial) is None and gains_of(trial).helped() == ()
    assert (
        "Nothing that was tried is significantly faster than the data as written, by 3 % or more."
        in trial_sentences(trial)
    )
    assert "Tried: b." in trial_sentences(trial)


def test_what_is_faster_by_its_own_interval_alone_is_told_from_what_is_shown():
    """Of eight that were compared in four rounds, one has an interval above 1: that is no proof."""
    others = {f"r{number}": samples_at(100, 99, 101, 100) for number in range(7)}
    as_written, better = samples_at(100, 100, 100, 100), samples_at(150, 140, 115, 120)
    trial = a_trial({AS_WRITTEN: as_written, "b": better, **others}, seconds=33.0)
    assert chosen_of(trial) is None and [gain.name for gain in gains_of(trial).helped()] == ["b"]
    expected = (
        "b is faster by its own interval, which can be chance among 8 that were compared: --budget 70 tells more."
    )
    assert expected in trial_sentences(trial)


@pytest.mark.parametrize(
    ("epoch_images", "scaled", "expected"),
    [
        (10_000.0, False, 1000 / 1.1),  # 1 s of edges on 10,000 images, each of 1 ms
        (10_000.0, True, 500),  # as it was measured: 1 s on 1,000
        (None, False, 1000),
    ],
)
def test_a_rate_is_that_of_a_whole_epoch(epoch_images, scaled, expected):
    sample = a_sample(images=500, wall_ns=500_000_000, epochs=2, epoch_images=2000, epoch_ns=4_000_000_000, whole=True)
    trial = a_trial({AS_WRITTEN: [sample]}, epoch_images=epoch_images, scaled=scaled)
    assert gains_of(trial).all[0].rate == pytest.approx(expected)


def test_the_first_epoch_of_a_cache_counts_once_over_the_whole_script():
    trial = a_trial(TWICE, epochs=5)
    as_written, cached = trial.contenders
    [remedy] = trial.remedies
    trial = replace(
        trial,
        remedies=(replace(remedy, warms_up=True),),
        contenders=(as_written, replace(cached, first=samples_at(80.0)[0])),
    )
    # Five epochs of 1/100 s an image, against one of 1/80 and four of 1/200.
    ratio, interval = gains_of(trial).all[1].in_script
    assert (ratio, interval) == (pytest.approx(0.05 / (1 / 80 + 4 / 200)), pytest.approx((ratio, ratio)))
    line = "(*) 1.54 times as fast (1.54 to 1.54) over the script's 5 epochs; 2.00x in a long training: b."
    assert line in trial_sentences(trial)
    unknown = gains_of(replace(trial, epochs=None)).all[1]
    assert unknown.in_script == unknown.best


def of_a_script(epochs: int | None, **steady: float) -> Trial:
    """Returns a trial of a cache and of a pool of threads; alone, the cache fills as slowly as the data are read."""
    rates = {AS_WRITTEN: 100.0, **{name.replace("_", " + "): rate for name, rate in steady.items()}}
    trial = a_trial({name: samples_at(*[rate] * 4) for name, rate in rates.items()}, epochs=epochs)
    return replace(
        trial,
        remedies=tuple(replace(one, warms_up=one.name == "cache") for one in trial.remedies),
        contenders=tuple(
            replace(one, first=samples_at(rates.get("pool", 100.0) if "pool" in one.remedies else 100.0)[0])
            for one in trial.contenders
        ),
    )


ALL = {"pool": 1_800.0, "cache": 28_000.0, "cache_pool": 28_000.0}


@pytest.mark.parametrize(
    ("epochs", "steady", "chosen", "for_long"),
    [
        (3, ALL, "cache + pool", None),  # 3 / (1/18 + 2/280), the others 18 and 3 / (1 + 2/280)
        (3, {"pool": 1_800.0, "cache": 28_000.0}, "pool", "cache"),
        (1, ALL, "pool", "cache"),
        (1, {"cache": 28_000.0}, None, "cache"),
        (100_000, ALL, "cache", None),  # next to nothing is left of the first epoch
        (None, ALL, "cache", None),
    ],
)
def test_what_makes_the_epochs_of_the_script_fastest_is_chosen(epochs, steady, chosen, for_long):
    gains = gains_of(of_a_script(epochs, **steady))
    assert (gains.chosen and gains.chosen.name, gains.for_long and gains.for_long.name) == (chosen, for_long)


def test_the_gain_that_is_promised_is_that_of_the_script():
    gains = gains_of(of_a_script(3, **ALL))
    assert gains.chosen.in_script[0] == pytest.approx(3 / (1 / 18 + 2 / 280))
    trial = of_a_script(3, pool=1_800.0, cache=28_000.0)
    longer = longer_line(trial, gains_of(trial), "train.py")
    assert longer.text == "in a long training, 280.00x (280.00 to 280.00) with cache:"
    assert longer.code == ("unstall profile --apply=cache train.py",)
    assert longer_line(of_a_script(3, **ALL), gains, "train.py") is None


def test_loading_is_what_batches_in_memory_gain_with_the_edges_of_the_scripts_own_epochs():
    """Steps of 10 ms as written and of 6 ms in memory; an epoch of the script lost 2 ms an image at its edges."""
    trial = replace(a_trial(TWICE), in_memory=tuple(samples_at(*[1 / 0.006] * 4)))
    assert loading_of(trial) == (pytest.approx(0.4), pytest.approx((0.4, 0.4)))
    edges = replace(trial, script_edges_s=0.002, edges_by="tf.data's tuner")
    assert loading_of(edges) == (pytest.approx(0.5), pytest.approx((0.5, 0.5)))
    assert loading_of(replace(trial, in_memory=trial.in_memory[:2])) == (pytest.approx(0.4), None)
    assert loading_of(a_trial(TWICE)) is None


def test_what_a_contender_does_to_the_data_is_the_most_that_its_remedies_do():
    samples = TWICE | {"b + c": samples_at(*[400] * 4)}
    trial = a_trial(samples, effects={"b": "identical", "c": "other order"})
    assert [gain.effect for gain in gains_of(trial).all] == ["identical", "identical", "other order"]
    assert [row[3] for row in gain_rows(trial)] == ["other order", "identical"]


def test_nothing_follows_from_a_trial_without_a_sample_of_the_data_as_written():
    assert gains_of(Trial()).all == ()
    assert gains_of(a_trial({AS_WRITTEN: [], "b": samples_at(100)})).all == ()


def test_what_was_measured_of_a_part_of_an_epoch_says_so():
    trial = a_trial(TWICE, batches=20, epoch_batches=1000.0)
    assert trial_sentences(trial)[0].startswith("From 20 of 1,000 batches; ")
    trial = a_trial(TWICE, batches=12, epoch_batches=12.5)  # the last batch is short
    assert trial_sentences(trial)[0].startswith("From 12 of 13 batches; ")
    assert not trial_sentences(a_trial(TWICE, batches=20, epoch_batches=20.0))[0].startswith("From ")


def test_the_sentences_say_where_and_how_and_what_to_type():
    trial = a_trial(TWICE)
    as_written, b = trial.contenders
    code = "# train.py:31-32\nds = ds.map(load, num_parallel_calls=2)\nds = ds.batch(8)"
    trial = replace(trial, contenders=(as_written, replace(b, code=code)))
    assert trial_sentences(trial, script="train.py") == [
        "(*) 2.00 times as fast (2.00 to 2.00): b.",
        "  b (what b does; batches: identical)",
        "    # train.py:31-32",
        "    ds = ds.map(load, num_parallel_calls=2)",
        "    ds = ds.batch(8)",
        "apply it: unstall profile --apply=b train.py",
    ]


def test_what_no_statements_can_show_is_said_in_words_and_no_part_of_a_line_is_offered_as_code():
    trial = a_trial(TWICE)
    as_written, b = trial.contenders
    remedies = tuple(replace(one, place="train.py:31", code="a.workers = 2\na.queue = 9") for one in trial.remedies)
    trial = replace(trial, remedies=remedies, contenders=(as_written, replace(b, code=None)))
    line = faster_line(trial, gains_of(trial).chosen)
    said = "To change in your code: what b does, by `a.workers = 2`, `a.queue = 9` (train.py:31)."
    assert line.text.endswith(said) and line.code == ()
    assert said in trial_sentences(trial)


@pytest.mark.parametrize(
    ("script_rate", "gain", "low"),
    [
        # Within what rates that count as equal differ by: it may be noise, which the interval goes down to.
        (99.5, 50.0, 39.9),
        (90.0, (1 / 90) / (1 / 5000 + 1 / 90 - 1 / 100), 8.41),
    ],
)
def test_what_the_script_took_more_is_charged_where_it_is_no_noise(script_rate: float, gain: float, low: float) -> None:
    trial = a_trial({AS_WRITTEN: samples_at(100, 101, 99, 100, 100), "b": samples_at(*[5000] * 5)})
    _, found = gains_of(replace(trial, script_s=1 / script_rate)).all
    ratio, interval = found.against
    assert ratio == pytest.approx(gain, rel=1e-3) and interval is not None
    assert interval[0] == pytest.approx(low, rel=1e-2)
