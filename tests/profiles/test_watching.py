"""`profiles.watch`: loops over data of any kind, in a script, in a notebook, and under `unstall profile`."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.checks import details_of, run_python
from tests.fakes import FakeClock
from unstall.profiles import watch


class Slow:
    """Batches that take 30 ms each on a fake clock."""

    def __init__(self, fake: FakeClock, batches: int = 20) -> None:
        self._fake = fake
        self._batches = batches

    def __len__(self) -> int:
        return self._batches

    def __iter__(self) -> Iterator[np.ndarray]:
        for _ in range(self._batches):
            self._fake.sleep(0.03)
            yield np.zeros((4, 2))


def test_the_waiting_of_a_loop_is_found(fake_clock: FakeClock, tmp_path: Path) -> None:
    watched = watch(Slow(fake_clock), name="slow")
    assert len(watched) == 20
    for _ in range(4):
        for _ in watched:
            fake_clock.sleep(0.01)
    [result] = watched.to_dict()["results"]
    assert result["variant"].startswith("loop 1 (test_watching.py:")
    assert result["attribution"]["prep_stall"] == pytest.approx(0.75, abs=0.01)
    assert result["epoch_images_per_sec"] == pytest.approx(100, rel=0.02)
    assert "is input-bound: 75% of an epoch is loading" in " ".join(details_of(watched).split())
    assert "fed by data of type Slow" in repr(watched)
    html = watched._repr_html_()
    assert html.startswith("<iframe srcdoc=") and "is input-bound" in html and "<script" not in html
    assert watched.save(tmp_path / "out").is_file()
    with pytest.raises(FileExistsError):
        watched.save(tmp_path / "out")


def test_two_loops_have_a_row_each_and_a_pass_that_was_left_counts(fake_clock: FakeClock) -> None:
    watched = watch(Slow(fake_clock))
    for number, _ in enumerate(watched):
        fake_clock.sleep(0.01)
        if number == 11:
            break
    for _ in watched:
        fake_clock.sleep(0.03)
    first, second = watched.to_dict()["results"]
    assert first["attribution"]["prep_stall"] == pytest.approx(0.75, abs=0.03)
    assert second["attribution"]["prep_stall"] == pytest.approx(0.5, abs=0.03)


def test_texts_and_numbers_in_lists_are_samples(fake_clock: FakeClock) -> None:
    batches = [["a text", "another"] for _ in range(12)]
    watched = watch(batches)
    for _ in watched:
        fake_clock.sleep(0.01)
    [result] = watched.to_dict()["results"]
    assert result["epoch_images_per_sec"] == pytest.approx(200, rel=0.05)


def test_batches_without_anything_to_count_are_named(fake_clock: FakeClock) -> None:
    watched = watch([object() for _ in range(12)])
    for _ in watched:
        fake_clock.sleep(0.01)
    assert "no array was found in its batches, whose samples could be counted" in " ".join(details_of(watched).split())


def test_data_are_as_they_were(fake_clock: FakeClock) -> None:
    batches = [np.full((2, 2), number) for number in range(5)]
    assert [int(batch[0, 0]) for batch in watch(batches)] == [0, 1, 2, 3, 4]
    assert watch(batches).index is not None and len(copy.copy(watch(batches))) == 5
    with pytest.raises(TypeError):
        len(watch(batch for batch in batches))

    def fails() -> Iterator[int]:
        yield 1
        raise ValueError("the data's own")

    with pytest.raises(ValueError, match="the data's own"):
        list(watch(fails()))


def test_a_watched_loop_of_a_script_has_a_row_in_its_report(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import numpy as np\nfrom unstall import profiles\n"
        "batches = profiles.watch([np.zeros((4, 2)) for _ in range(30)])\n"
        "for epoch in range(3):\n    for batch in batches:\n        sum(range(20000))\n"
        "print('trained')\n"
    )
    plain = run_python(tmp_path, "train.py")
    shown = run_python(tmp_path, "-m", "unstall", "profile", "--out", "out", "train.py")
    assert shown.stdout == plain.stdout == "trained\n", plain.stderr[-2000:]
    document = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [result["variant"] for result in document["results"]] == ["loop 1 (train.py:5)"]
