"""Raw samples. `a_sample` makes those that the other tests of `profiles` share."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from tests.builders import MS, a_sample


def test_seconds_per_image_come_from_steady_steps_only() -> None:
    sample = a_sample(images=50, wall_ns=200 * MS, wait_ns=50 * MS, epoch_images=80, epoch_ns=400 * MS, cpu_ns=160 * MS)
    assert sample.s_per_image == 0.004
    assert sample.wait_s_per_image == 0.001
    assert sample.epoch_s_per_image == 0.005
    assert sample.cpu_s_per_image == 0.002


def test_the_edges_of_an_epoch_are_spread_over_its_images() -> None:
    # 4 ms a steady image; 80 images a measured epoch lose 80 ms at its edges.
    sample = a_sample(images=50, wall_ns=200 * MS, epoch_images=80, epoch_ns=400 * MS)
    assert sample.whole_s_per_image() == pytest.approx(0.005)
    assert sample.whole_s_per_image(160) == pytest.approx(0.0045)
    twice = a_sample(images=50, wall_ns=200 * MS, epoch_images=160, epoch_ns=800 * MS, epochs=2)
    assert twice.whole_s_per_image(160) == pytest.approx(0.0045)


def test_edges_below_nothing_are_not_spread_over_fewer_images() -> None:
    sample = a_sample(images=50, wall_ns=200 * MS, epoch_images=80, epoch_ns=300 * MS)
    assert sample.whole_s_per_image(2) == pytest.approx(300e-3 / 80)
    assert sample.whole_s_per_image(800) == pytest.approx(0.004 - 0.02 / 800)


def test_of_an_epoch_that_was_left_before_its_end_no_edge_is_known() -> None:
    assert a_sample(images=50, wall_ns=200 * MS, epoch_images=80, epoch_ns=400 * MS, whole=False).whole_s_per_image(
        160
    ) == pytest.approx(0.004)


def test_what_steps_and_edges_leave_of_the_outer_clock_is_unclaimed() -> None:
    assert a_sample(outer_ns=200 * MS, claimed_ns=150 * MS).unclaimed_ratio == 0.25
    assert a_sample(outer_ns=200 * MS, claimed_ns=200 * MS).unclaimed_ratio == 0
    assert a_sample(outer_ns=200 * MS, claimed_ns=250 * MS).unclaimed_ratio == -0.25
    assert a_sample(outer_ns=200 * MS, claimed_ns=None).unclaimed_ratio is None


def test_an_unknown_window_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`window` must be one of bare, resident, .*Received: window='test'"):
        a_sample("test")


@pytest.mark.parametrize(("images", "wall_ns"), [(0, 1), (-1, 1), (1, 0), (1, -5)])
def test_a_sample_without_images_or_time_is_refused(images: int, wall_ns: int) -> None:
    with pytest.raises(ValueError, match=f"at least one image.*Received: images={images}, wall_ns={wall_ns}"):
        a_sample(images=images, wall_ns=wall_ns)


def test_one_image_in_one_nanosecond_is_a_sample() -> None:
    assert a_sample(images=1, wall_ns=1).s_per_image == 1e-9


def test_a_sample_does_not_change() -> None:
    with pytest.raises(FrozenInstanceError, match="images"):
        a_sample().images = 1  # type: ignore[misc]
