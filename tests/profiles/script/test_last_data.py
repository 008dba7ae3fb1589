"""Which data a place of a script used last: whether they were made again, or changed in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from unstall.profiles.script.last_data import LastData


class Pairs:
    """A data set whose negatives the script draws again for each epoch, as recommenders do."""

    def __init__(self) -> None:
        self.rows = [1, 2, 3]
        self.file: Any = None
        self.table: dict[str, object] = {"a": object()}
        self.array = np.zeros(1000)
        self.level, self.name = 2, "rows"

    @property
    def dataset(self) -> Any:
        raise AssertionError("no code of the user's runs")


class Loader:
    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset


@pytest.mark.parametrize("inside", [False, True], ids=["the data set", "in a part of it"])
def test_an_attribute_that_the_script_replaces_between_epochs_is_named(inside: bool) -> None:
    pairs = Pairs()
    loader = Loader(Loader(pairs) if inside else pairs)
    last = LastData(loader)
    last.note(loader)
    pairs.file = open  # opened by the first reading
    last.note(loader)
    assert last.changed is None and not last.anew
    pairs.rows = [*pairs.rows]
    last.note(loader)
    assert last.changed is None  # the same values
    pairs.rows = [4, 5, 6]
    last.note(loader)
    last.note(loader)
    assert last.changed == "rows"


CHANGES: dict[str, Callable[[Pairs], object]] = {
    "a list grows": lambda pairs: pairs.rows.append(4),
    "a list is shuffled": lambda pairs: pairs.rows.reverse(),
    "a dict has another value": lambda pairs: pairs.table.update(a=object()),
    "an array is drawn again": lambda pairs: pairs.array.__setitem__(slice(None), 7),
    "a number": lambda pairs: setattr(pairs, "level", 3),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_is_changed_in_place_is_seen(change: Callable[[Pairs], object]) -> None:
    loader = Loader(pairs := Pairs())
    last = LastData(loader)
    pairs.name = "".join(["ro", "ws"])  # another object with the same value
    last.note(loader)
    assert last.changed is None
    change(pairs)
    last.note(loader)
    assert last.changed is not None and not last.anew


def test_a_loader_that_is_made_anew_keeps_nothing_anyway() -> None:
    pairs = Pairs()
    last = LastData(Loader(pairs))
    pairs.rows.append(4)
    last.note(Loader(pairs))
    assert last.anew and last.changed is None


def test_other_data_are_made_anew_and_not_changed() -> None:
    last = LastData(Pairs())
    last.note(Pairs())
    assert last.anew and last.changed is None
