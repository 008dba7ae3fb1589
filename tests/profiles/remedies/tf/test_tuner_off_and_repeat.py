"""Epochs that lose no time where one ends and the next begins: tf.data's tuner off, or one iterator for all."""

from __future__ import annotations

from tests.profiles.remedies.tf.pipelines import PIPELINES, apart, settings, taken_apart


def test_the_tuner_off_leaves_no_choice_to_autotune():
    data, _ = apart("autotuned")
    built = data.built(("tuner-off",), 5)
    assert [
        (kind, calls, buffer) for kind, calls, buffer, tuned, _ in settings(built) if kind in ("map", "prefetch")
    ] == [
        ("map", 2, None),
        ("prefetch", None, 2),
    ]


def test_an_iterator_for_all_epochs_knows_the_steps_of_an_epoch():
    data, _ = taken_apart(PIPELINES["plain"](), needs=["edges"])
    assert data.built(("repeat",), 5).arguments["steps_per_epoch"] == 5
    assert data.whole(("repeat",)).arguments["steps_per_epoch"] == 25
    assert "repeat" not in taken_apart(PIPELINES["plain"](), needs=["edges"], repeats=False)[1]
    assert "repeat" not in taken_apart(PIPELINES["endless"](), needs=["edges"])[1]
