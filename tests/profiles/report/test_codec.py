"""Dataclasses in a file and out of it again: strict, and each refusal names its place."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

import pytest

from tests.builders import STAGE_TABLE, a_result, a_sample, a_telemetry
from unstall.profiles.report.codec import DecodeError, decode, encode
from unstall.profiles.samples import Sample


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Inner:
    rate: float
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outer:
    inner: Inner
    size: tuple[int, int] | None
    kind: Literal["warm", "cold"]
    value: int | str
    rates: Mapping[str, Inner] = field(default_factory=dict)
    anything: Any = None
    numbers: list[int] = field(default_factory=list)
    whole: bool = True
    colour: Colour = Colour.RED
    facts: Inner = field(default=Inner(0.0), metadata={"key": "training"})

    def __post_init__(self) -> None:
        if self.value == 13:
            raise ValueError("`value` must not be 13.")


OUTER = Outer(
    inner=Inner(0.1, ("a", "b")),
    size=(2, 3),
    kind="warm",
    value="auto",
    rates={"x": Inner(2)},
    anything=[{"deep": None}],
    numbers=[1, 2],
    colour=Colour.BLUE,
    facts=Inner(3),
)


@pytest.mark.parametrize(
    "value",
    [
        OUTER,
        Outer(inner=Inner(1), size=None, kind="cold", value=4),
        a_sample(ms=7.3, wait_ms=1.1, edge_ms=3, round=4, epochs=2, first_batch_ns=(5, 6), claimed_ns=None),
        STAGE_TABLE,
        a_telemetry(gpus=2),
        a_result(device="emulated:a100-resnet50", notes=("a",), config={"image_size": [64, 64]}).subject,
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_encoded_as_strict_json_is_decoded_as_it_was(value: Any) -> None:
    text = json.dumps(encode(value), allow_nan=False)
    decoded = decode(type(value), json.loads(text))
    assert decoded == value
    assert json.dumps(encode(decoded)) == text


VALID = encode(OUTER)


def test_a_field_can_have_another_name_in_the_file() -> None:
    assert VALID["training"] == {"rate": 3, "names": []} and "facts" not in VALID
    with pytest.raises(DecodeError, match=re.escape("plan has no field 'facts'")):
        decode(Outer, VALID | {"facts": {"rate": 3}}, "plan")
    with pytest.raises(DecodeError, match=re.escape("plan.training.rate must be float")):
        decode(Outer, VALID | {"training": {"rate": "fast"}}, "plan")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"inner": {"rate": "fast"}}, "plan.inner.rate must be float. Received: 'fast'"),
        ({"inner": {"rate": True}}, "plan.inner.rate must be float. Received: 'True'"),
        ({"inner": {"names": ["a"]}}, "plan.inner: "),
        ({"inner": {"rate": 1, "names": ["a", 2]}}, "plan.inner.names[1] must be str"),
        ({"inner": []}, "plan.inner must be an object"),
        ({"size": [1]}, "plan.size must be a list of 2"),
        ({"size": {"a": 1}}, "plan.size must be a list"),
        ({"kind": "lukewarm"}, "plan.kind must be 'warm' or 'cold'. Received: 'lukewarm'"),
        ({"value": 0.5}, "plan.value must be str"),
        ({"value": 13}, "plan: `value` must not be 13."),
        ({"rates": {"x": {"rate": None}}}, "plan.rates['x'].rate must be float"),
        ({"numbers": [1, "2"]}, "plan.numbers[1] must be int"),
        ({"whole": 1}, "plan.whole must be bool"),
        ({"colour": "green"}, "plan.colour must be 'red' or 'blue'. Received: 'green'"),
        ({"colour": {}}, "plan.colour must be 'red' or 'blue'"),
        ({"weight": 1}, "plan has no field 'weight'."),
    ],
)
def test_what_the_annotations_do_not_allow_is_refused_by_its_place(change: dict[str, Any], says: str) -> None:
    with pytest.raises(DecodeError) as refused:
        decode(Outer, VALID | change, "plan")
    assert str(refused.value).startswith(says)


def test_a_field_without_a_default_must_be_there() -> None:
    values = {name: value for name, value in encode(a_sample()).items() if name != "wall_ns"}
    with pytest.raises(DecodeError, match="samples: .*'wall_ns'"):
        decode(Sample, values, "samples")
