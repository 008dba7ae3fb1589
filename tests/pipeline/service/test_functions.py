"""Names of Python functions: the same function has the same name in every process, and another function another."""

from __future__ import annotations

import functools
from typing import Any

from pipeline.service.functions import digest_of, function_name


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


def test_a_wrapped_function_is_named_as_what_it_wraps():
    @functools.wraps(double)
    def wrapper(value: int) -> int:
        return double(value)

    assert function_name(wrapper) == function_name(double)


def test_texts_are_kept_apart():
    assert digest_of("ab", "c") != digest_of("a", "bc")
