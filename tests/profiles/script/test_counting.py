"""What tf.data counts for an iterator, as the part of one epoch."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import tensorflow as tf

from unstall.profiles.measure.sums import NOTHING_DRAWN, IteratorCount
from unstall.profiles.script.counting import iterator_count


def test_what_earlier_epochs_have_drawn_is_not_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    iterator = SimpleNamespace(element_spec=tf.TensorSpec((8, 4)))
    node = SimpleNamespace(num_elements=30, bytes_produced=0)
    monkeypatch.setattr(tf.data.experimental, "get_model_proto", lambda _: SimpleNamespace(nodes=[node], output=0))
    assert iterator_count(iterator, 10, 10, NOTHING_DRAWN) == IteratorCount(steps=30, images=240)
    before = IteratorCount(steps=20, images=160)
    assert iterator_count(iterator, 10, 10, before) == IteratorCount(steps=10, images=80)
    unknown = IteratorCount(steps=20, images=None)
    assert iterator_count(iterator, 10, 10, unknown) == IteratorCount(steps=10, images=None)


def test_steps_that_tf_data_does_not_count_are_those_of_the_epoch() -> None:
    iterator = SimpleNamespace(element_spec=tf.TensorSpec((8, 4)))
    before = IteratorCount(steps=20, images=160)
    assert iterator_count(iterator, 12, 10, before) == IteratorCount(steps=10, images=80)
