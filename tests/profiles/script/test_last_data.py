"""Which data a place of a script used last: whether they were made again, or changed in between."""

from __future__ import annotations

from typing import Any

import pytest

from unstall.profiles.script.last_data import LastData


class Pairs:
    """A data set whose negatives the script draws again for each epoch, as recommenders do."""

    def __init__(self) -> None:
        self.rows = [1, 2, 3]
        self.file: Any = None

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
    last.note(loader)
    assert last.changed == "rows"


def test_a_list_that_grows_is_a_change() -> None:
    pairs = Pairs()
    last = LastData(Loader(pairs))
    pairs.rows.append(4)
    last.note(Loader(pairs))
    assert last.changed is None  # another loader: what it keeps would be made again as well
    same = Loader(pairs)
    last = LastData(same)
    pairs.rows.append(5)
    last.note(same)
    assert last.changed == "rows"


def test_other_data_are_made_anew_and_not_changed() -> None:
    last = LastData(Pairs())
    last.note(Pairs())
    assert last.anew and last.changed is None
