"""Names of Python functions: the same function has the same name in every process, and another function another."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from unstall.pipeline.service.functions import digest_of, function_name


def made_with(number: int) -> Any:
    def function(value: int) -> int:
        return value + number

    return function


def double(value: int) -> int:
    return 2 * value


class Adder:
    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self, value: int) -> int:
        return value + self.number

    def method(self, value: int) -> int:
        return value


class Named:
    service_digest = "of all that counts"

    def method(self, value: int) -> int:
        return value


def test_a_function_is_named_by_its_module_and_its_source():
    name, _, digest = function_name(double).rpartition(":")
    assert name == f"{__name__}.double"
    assert len(digest) == 16


def test_the_same_source_has_the_same_name():
    assert function_name(made_with(1)) == function_name(made_with(1))


def test_a_value_that_is_closed_over_counts():
    assert function_name(made_with(1)) != function_name(made_with(2))


def test_an_object_counts_with_its_plain_values():
    assert function_name(Adder(1)) == function_name(Adder(1))
    assert function_name(Adder(1)) != function_name(Adder(2))


def test_an_object_may_have_a_digest_of_its_own():
    assert function_name(Named().method).endswith("Named.method:of all that counts")


def test_a_wrapper_of_a_users_is_not_what_it_wraps():
    @functools.wraps(double)
    def wrapper(value: int) -> int:
        return double(value) + 1

    assert function_name(wrapper) != function_name(double)


def test_what_tensorflow_wraps_is_named_as_it_is():
    import tensorflow as tf

    for function in (double, Adder(1), Named().method, Named.method):
        assert function_name(tf.autograph.experimental.do_not_convert(function)) == function_name(function)


class Slots:
    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self, value: int) -> int:
        return value + self.number


def with_default(value: int, *, number: int = 1) -> int:
    return value + number


def with_another_default(value: int, *, number: int = 2) -> int:
    return value + number


def using(table: np.ndarray) -> Any:
    return lambda value: table[value]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (functools.partial(with_default, number=1), functools.partial(with_default, number=2)),
        (functools.partial(double), functools.partial(with_default)),
        (Adder(1).method, Adder(2).method),
        (Slots(1), Slots(2)),
        (with_default, with_another_default),
        (using(np.arange(3)), using(np.arange(4))),
    ],
)
def test_what_a_function_holds_counts(first, second):
    assert function_name(first).rpartition(":")[2] != function_name(second).rpartition(":")[2]
    assert function_name(first) == function_name(first)


def test_code_without_a_source_has_the_same_name_in_every_process():
    text = "def outer(value):\n    def inner(number):\n        return number + 1\n    return inner(value)"
    names = []
    for _ in range(2):
        space: dict[str, Any] = {"__name__": "made"}
        exec(text, space)
        names.append(function_name(space["outer"]))
    assert names[0] == names[1]


def test_texts_are_kept_apart():
    assert digest_of("ab", "c") != digest_of("a", "bc")
