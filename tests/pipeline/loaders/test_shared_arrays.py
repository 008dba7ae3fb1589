"""Memory of two processes: what finds room in it, and that nothing that was made there is copied."""

import numpy as np
import pytest

from unstall.pipeline.loaders.shared_arrays import SharedArrays


def test_arrays_that_find_room_go_through_shared_memory():
    batch = (np.arange(32), np.arange(8))
    shared, small = SharedArrays(40 * 8, places=2), SharedArrays(40 * 8 - 64, places=2)
    replies = []
    for turn in range(3):
        shared.turn_to(turn)
        replies.append(shared.dumps(7, True, batch))
    small.turn_to(0)
    whole = small.dumps(7, True, batch)
    assert len(whole) > len(replies[0]) + 40 * 8 - 64
    for arrays, reply in ((shared, replies[1]), (shared, replies[2]), (small, whole)):
        number, succeeded, (first, second) = arrays.loads(reply, copy=True)
        assert (number, succeeded) == (7, True)
        np.testing.assert_array_equal(first, np.arange(32))
        np.testing.assert_array_equal(second, np.arange(8))


def test_arrays_that_were_made_in_shared_memory_are_not_copied():
    shared = SharedArrays(1000, places=2)
    for turn in range(3):
        shared.turn_to(turn)
        first, second = shared.empty((10, 3), np.uint8), shared.empty((20,), np.float64)
        third = np.arange(5)
        large = shared.empty((1000,), np.uint8)  # finds no room
        first[:], second[:], large[:] = turn, turn + 0.5, 9
        answer = shared.dumps(7, True, (first, second, third))
        assert len(answer) < 500
        first[:] += 100
        *_, received = shared.loads(answer, copy=False)
        assert received[0].tolist() == [[100 + turn] * 3] * 10
        assert received[1].tolist() == [turn + 0.5] * 20
        assert received[2].tolist() == [0, 1, 2, 3, 4]
        *_, own = shared.loads(answer, copy=True)
        first[:] = 77
        assert own[0].tolist() == [[100 + turn] * 3] * 10
        assert large.tolist() == [9] * 1000


@pytest.mark.parametrize("place_bytes", [0, 1000])
@pytest.mark.parametrize(
    "value",
    [
        np.arange(6).reshape(2, 3)[:, ::2],
        np.empty((0, 3)),
        (np.empty((0, 3)), np.float32(3)),
        (np.array(3), np.arange(5).astype("datetime64[s]")),
        np.array([(1, 2.5)], [("label", "i4"), ("weight", "f8")]),
        np.array(["one", "three"]),
        (np.array([None, "two"], object),),
        (),
        [np.arange(3)],
        {"images": np.arange(3)},
        "text",
        None,
    ],
    ids=repr,
)
def test_whatever_is_made_arrives_as_what_it_is(value, place_bytes):
    shared = SharedArrays(place_bytes, places=2)
    shared.turn_to(1)
    number, succeeded, received = shared.loads(shared.dumps(7, True, value), copy=True)
    assert (number, succeeded) == (7, True)
    assert type(received) is type(value)
    np.testing.assert_equal(received, value)
    for part, expected in zip(parts(received), parts(value), strict=True):
        assert getattr(part, "dtype", None) == getattr(expected, "dtype", None)


def parts(value):
    return value if isinstance(value, tuple) else (value,)


def test_an_error_is_no_array():
    shared = SharedArrays(1000, places=1)
    shared.turn_to(0)
    number, succeeded, error = shared.loads(shared.dumps(7, False, ValueError("no such file")), copy=False)
    assert (number, succeeded, str(error)) == (7, False, "no such file")
