"""Memory of two processes: what finds room in it, and that nothing that was made there is copied."""

import numpy as np

from pipeline.shared_arrays import SharedArrays


def test_arrays_that_find_room_go_through_shared_memory():
    batch = (7, (np.arange(32), np.arange(8)))
    shared, small = SharedArrays(40 * 8, places=2), SharedArrays(40 * 8 - 64, places=2)
    replies = []
    for turn in range(3):
        shared.turn_to(turn)
        replies.append(shared.dumps(batch))
    small.turn_to(0)
    whole = small.dumps(batch)
    assert len(whole) > len(replies[0]) + 40 * 8 - 64
    for arrays, reply in ((shared, replies[1]), (shared, replies[2]), (small, whole)):
        number, (first, second) = arrays.loads(reply, copy=True)
        assert number == 7
        np.testing.assert_array_equal(first, np.arange(32))
        np.testing.assert_array_equal(second, np.arange(8))
    nothing = SharedArrays(0, places=2)
    nothing.turn_to(0)
    assert nothing.loads(nothing.dumps((7, np.empty((0, 3)))), copy=True)[1].shape == (0, 3)


def test_arrays_that_were_made_in_shared_memory_are_not_copied():
    shared = SharedArrays(1000, places=2)
    for turn in range(3):
        shared.turn_to(turn)
        first, second = shared.empty((10, 3), np.uint8), shared.empty((20,), np.float64)
        third = np.arange(5)
        large = shared.empty((1000,), np.uint8)  # finds no room
        first[:], second[:], large[:] = turn, turn + 0.5, 9
        answer = shared.dumps((first, second, third))
        assert len(answer) < 500
        first[:] += 100
        found = shared.loads(answer, copy=False)
        assert found[0].tolist() == [[100 + turn] * 3] * 10
        assert found[1].tolist() == [turn + 0.5] * 20
        assert found[2].tolist() == [0, 1, 2, 3, 4]
        own = shared.loads(answer, copy=True)
        first[:] = 77
        assert own[0].tolist() == [[100 + turn] * 3] * 10
        assert large.tolist() == [9] * 1000
