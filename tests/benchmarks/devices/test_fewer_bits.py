"""Prediction in fewer bits: what is counted, what is derived and printed, and a run from end to end."""

from __future__ import annotations

import dataclasses
import io
import json
import sys

import keras
import numpy as np
import pytest

from tests.builders import a_fewer_bits_document, a_measured_way
from tests.checks import tables_of
from unstall.benchmarks.devices import __main__ as devices
from unstall.benchmarks.devices.fewer_bits.plan import parser, read_plan
from unstall.benchmarks.devices.fewer_bits.report import KIND
from unstall.benchmarks.lab.options import UserError
from unstall.models import MODELS
from unstall.profiles.report import LeftOut

pytestmark = pytest.mark.long

GOLDEN = """
cats-dogs-64 predicts on 2 threads; trained for 8 epochs on 100 photos
way                int8 img/s to f32      95 % p50 p99 right   off   MB
TensorFlow float32    -   997   1.00         - 110 200 80.0%     0    -
LiteRT float32       0% 1,993   1.00         - 110 200 80.0% 3e-07 3.26
LiteRT int8         75% 5,980   3.00 3.00-3.00 110 200 70.0% 0.012 0.82
Of 10 test photos (a fifth of each class), against float32: LiteRT int8 2 lost,
1 gained.
int8: share of the multiply-adds with both factors in int8. img/s: batches of
32. to f32: over float32 by the same library, round by round. p50, p99: latency
of one image in us. off: largest difference of an output to TensorFlow's
float32.
int8 weights: inputs are rounded to int8 in each call, which the file does not
state. LiteRT has no bfloat16 on the CPU.
left out TensorFlow bfloat16: ValueError: no
"""


def a_run(**changes):
    return a_fewer_bits_document(
        a_measured_way("TensorFlow float32", 1000.0),
        a_measured_way(
            "LiteRT float32",
            2000.0,
            runtime="LiteRT",
            products={"FLOAT32 x FLOAT32": 100},
            file_bytes=3_260_000,
            off=3e-7,
        ),
        a_measured_way(
            "LiteRT int8",
            6000.0,
            runtime="LiteRT",
            products={"INT8 x INT8": 75, "FLOAT32 x FLOAT32": 25},
            file_bytes=820_000,
            right="1111110010",
            off=0.012,
        ),
        left_out=(LeftOut(who="TensorFlow bfloat16", reason="ValueError: no"),),
        **changes,
    )


def test_the_table_is_this():
    assert tables_of(KIND, a_run()) == GOLDEN.strip("\n")


def test_the_page_has_the_rows_of_the_terminal():
    page = KIND.page(a_run(), KIND.derive(a_run()))
    assert "<td>LiteRT int8</td><td>75%</td><td>5,980</td><td>3.00</td>" in page
    assert "LiteRT int8 2 lost, 1 gained" in page


def test_a_ratio_is_of_the_rounds_that_both_have():
    document = a_run()
    *others, last = document.samples.ways
    last = dataclasses.replace(last, windows=last.windows[1:])
    samples = dataclasses.replace(document.samples, ways=(*others, last))
    result = KIND.derive(dataclasses.replace(document, samples=samples)).ways[-1]
    assert (result.ratio, result.interval) == (pytest.approx(3.0), None)


def test_a_run_that_was_stopped_compares_with_float32_all_the_same():
    document = a_run()
    first, second, last = document.samples.ways
    ways = (dataclasses.replace(first, windows=()), dataclasses.replace(second, windows=()), last)
    samples = dataclasses.replace(document.samples, ways=ways)
    [result] = KIND.derive(dataclasses.replace(document, samples=samples)).ways
    assert (result.way, result.lost, result.gained) == ("LiteRT int8", 2, 1)
    assert (result.ratio, result.interval) == (None, None)
    text = tables_of(KIND, dataclasses.replace(document, samples=samples))
    assert "LiteRT int8  75% 5,980      -" in text


def test_products_that_cannot_be_counted_are_said():
    why = "the multiply-adds of WHILE cannot be counted"
    way = a_measured_way("LiteRT int8", 1000.0, runtime="LiteRT", uncounted=why, file_bytes=7)
    text = tables_of(KIND, a_fewer_bits_document(a_measured_way("TensorFlow float32", 500.0), way))
    assert "LiteRT int8: the multiply-adds of WHILE cannot be counted." in text


def test_a_shortened_option_is_refused(capsys):
    with pytest.raises(SystemExit) as refused:
        devices.main(["--inf"])
    assert refused.value.code == 2
    assert "--inf" in capsys.readouterr().err


def test_all_parts_of_a_nested_network_are_in_bfloat16():
    from unstall.benchmarks.devices.fewer_bits.child import FewerBitsSession

    def a_block(name):
        layers = [keras.Input((8,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(8)]
        return keras.Sequential(layers, name=name)

    inputs = keras.Input((8,))
    outputs = keras.layers.Dense(1, activation="sigmoid")(a_block("inner")(inputs))
    session = object.__new__(FewerBitsSession)
    session._network = keras.Model(inputs, outputs)
    made = []
    session._tested = lambda library, form, way: made.append(f"{library} {form}")
    session.bfloat16()
    assert made == ["TensorFlow bfloat16"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--rounds", "0"], "--rounds must be at least 1. Received: 0."),
        (["--epochs", "-1"], "--epochs must be at least 0. Received: -1."),
        (["--threads", "0"], "--threads must be at least 1. Received: 0."),
        (["--inference=cats-dogs-46"], "--inference 'cats-dogs-46' is not a model. Did you mean 'cats-dogs-64'?"),
        (["--data", "/no/folder"], "/no/folder does not exist."),
    ],
)
def test_bad_options_are_refused_in_one_line(words, expected, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert devices.main(["--inference", *words] if words[0] != "--inference=cats-dogs-46" else words) == 2
    printed_errors = capsys.readouterr().err
    assert printed_errors.startswith(expected)
    assert len(printed_errors.splitlines()) == 1
    assert not list(tmp_path.glob("runs/*"))


def test_a_plan_keeps_no_path_in_what_the_document_holds(tmp_path):
    (tmp_path / "mine.keras").touch()
    words = ["--data", str(tmp_path), "--inference", str(tmp_path / "mine.keras")]
    plan = read_plan(parser().parse_args(words), tmp_path)
    assert (plan.asked.data, plan.asked.model) == (tmp_path.name, "mine.keras")
    assert (plan.data, plan.model) == (str(tmp_path), str(tmp_path / "mine.keras"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run with what is installed; returns its exit code, its document and what it printed."""
    out = tmp_path_factory.mktemp("fewer-bits")
    words = ["--inference", "--data", "generated:80", "--epochs", "1", "--rounds", "2", "--out", str(out)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", io.StringIO())
        patch.setenv("COLUMNS", "80")
        code = devices.main(words)
        return code, json.loads((out / "results.json").read_text()), sys.stdout.getvalue(), sorted(out.iterdir())


def test_tensorflow_predicts_in_two_types(finished):
    code, document, text, files = finished
    assert code == 0
    results = {result["way"]: result for result in document["results"]}
    assert results["TensorFlow float32"]["off"] == 0
    # bfloat16 has 8 bits of precision: its outputs are others, and near.
    assert 0 < results["TensorFlow bfloat16"]["off"] < 0.1
    assert all(len(way["windows"]) == 2 and len(way["right"]) == 16 for way in document["samples"]["ways"])
    assert "cats-dogs-64 predicts on" in text
    assert [path.name for path in files] == ["report.html", "results.json"]


@pytest.mark.needs("ai_edge_litert")
def test_litert_predicts_the_same_and_states_what_is_in_int8(finished):
    results = {result["way"]: result for result in finished[1]["results"]}
    assert results["LiteRT float32"]["off"] < 1e-5
    assert results["LiteRT float32"]["int8_ratio"] == 0
    assert results["LiteRT int8"]["int8_ratio"] == 1
    assert 1e-5 < results["LiteRT int8"]["off"] < 0.2
    assert results["LiteRT int8"]["file_bytes"] < results["LiteRT float32"]["file_bytes"] / 3


@pytest.mark.needs("ai_edge_litert")
@pytest.mark.parametrize("name", [pytest.param("cats-dogs-64", marks=pytest.mark.slow), "mnist-digits"])
def test_the_multiply_adds_of_a_file_are_those_of_the_network(name):
    from unstall.benchmarks.devices.fewer_bits.litert import FORMATS, converted, multiply_adds
    from unstall.benchmarks.devices.flops import work_per_example

    network = MODELS[name].build(2 if name.startswith("cats") else 10)
    inputs = np.zeros((1, *network.input_shape[1:]), np.float32)
    files = {form: converted(network, form, 1, [inputs]) for form in FORMATS}
    expected = work_per_example(network, inputs).forward_flops / 2
    assert {form: sum(multiply_adds(content).values()) for form, content in files.items()} == {
        "float32": expected,
        "int8 weights": expected,
        "int8": expected,
    }
    assert set(multiply_adds(files["int8"])) == {"INT8 x INT8"}


def test_where_litert_is_missing_its_rows_are_left_out_with_the_remedy(monkeypatch):
    from unstall.benchmarks.devices.fewer_bits.child import FewerBitsSession
    from unstall.benchmarks.lab.backend import Refused

    monkeypatch.setitem(sys.modules, "ai_edge_litert", None)
    for name in [name for name in sys.modules if name.endswith("fewer_bits.litert")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(Refused, match=r"pip install 'unstall\[litert\]'"):
        FewerBitsSession.formats(object.__new__(FewerBitsSession))


def test_a_network_that_cannot_be_trained_is_exit_code_3(tmp_path, capsys):
    module = tmp_path / "mine.py"
    module.write_text("def make(classes):\n    raise RuntimeError('no such layer')\n")
    words = ["--inference", "mine:make", "--data", "generated:40", "--out", str(tmp_path / "out")]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        assert devices.main(words) == 3
    assert "no such layer" in capsys.readouterr().err


def test_user_errors_are_those_of_the_plan(tmp_path):
    with pytest.raises(UserError, match="--batch-size must be at least 1"):
        read_plan(parser().parse_args(["--batch-size", "0"]), tmp_path)
