"""What the command is asked: refused in one line with the fix, and cases that are measured once each."""

from __future__ import annotations

from pathlib import Path

import pytest

from unstall.benchmarks.devices import __main__ as devices
from unstall.benchmarks.devices.experiments import EXPERIMENTS
from unstall.benchmarks.devices.parser import parser
from unstall.benchmarks.devices.plan import Plan, read_plan
from unstall.benchmarks.lab.options import UserError


def a_plan(*words: str) -> Plan:
    return read_plan(parser().parse_args(words), Path("runs/now"))


def test_unasked_the_shortest_experiment_is_run_with_an_epoch_to_warm_up() -> None:
    plan = a_plan()
    assert list(plan.asked.experiments) == ["mnist"]
    assert (plan.asked.epochs, plan.asked.rounds, plan.emulated, plan.asked.prices) == (2, 3, None, {})
    assert plan.asked.cases == EXPERIMENTS["mnist"].cases and plan.out == Path("runs/now")


def test_all_experiments_share_the_cases_that_they_have_in_common() -> None:
    plan = a_plan("--experiment", "all")
    assert list(plan.asked.experiments) == list(EXPERIMENTS)
    assert len(plan.asked.cases) == len(set(plan.asked.cases)) == 23


def test_the_precision_is_that_of_every_case() -> None:
    plan = a_plan("--experiment", "mnist,deeper", "--precision", "mixed_bfloat16")
    assert {case.precision for case in plan.asked.cases} == {"mixed_bfloat16"}


def test_prices_are_of_devices_by_name_or_kind() -> None:
    plan = a_plan("--emulate", "400", "--price", "cpu=0.10, emulated:400=0.9,gpu=2")
    assert plan.asked.prices == {"cpu": 0.10, "emulated:400": 0.9, "gpu": 2.0}
    assert plan.emulated is not None and plan.emulated.images_per_sec == 400


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "--experiment mnits",
            r"--experiment: 'mnits' is not known\. Did you mean 'mnist'\? Known: cifar10-mlp, .*all",
        ),
        ("--experiment ,", "--experiment needs at least one name"),
        ("--epochs 0", r"--epochs must be at least 1\. Received: 0\."),
        ("--rounds -1", r"--rounds must be at least 1\. Received: -1\."),
        ("--longest-epoch 0", r"--longest-epoch must be a number of seconds above 0\. Received: 0\.0\."),
        ("--longest-epoch nan", "--longest-epoch must be a number of seconds above 0"),
        ("--target-accuracy 90", r"--target-accuracy must be above 0 and at most 1\. Received: 90\.0\."),
        ("--precision mixed_float61", r"--precision: .* Did you mean 'mixed_float16'\?"),
        (
            "--precision float32,mixed_float16",
            "--precision takes one.*unstall pipeline --sweep precision=float32,mixed_float16",
        ),
        ("--emulate fast", r"--emulate must be images/sec above 0 .* a100-resnet50.* Received: 'fast'\."),
        ("--emulate -5", "--emulate must be images/sec above 0"),
        ("--price cpu", r"--price needs DEVICE=PRICE of cpu, gpu, such as cpu=0\.10\. Received: 'cpu'\."),
        ("--price tpu=1", "--price needs DEVICE=PRICE of cpu, gpu"),
        ("--price emulated=1", "--price needs DEVICE=PRICE of cpu, gpu"),
        ("--price cpu=1,cpu=2", "--price names cpu twice"),
        ("--price cpu=cheap", r"--price cpu must be a number per hour, at least 0\. Received: 'cheap'\."),
        ("--price cpu=-1", "--price cpu must be a number per hour"),
        ("--price cpu=nan", "--price cpu must be a number per hour"),
        ("--arrays mnist", "--arrays needs NAME=PATH of mnist, cifar10, text, features"),
        ("--arrays minst=x", r"Did you mean 'mnist'\?"),
        ("--arrays mnist=nowhere.npz", r"--arrays mnist: nowhere\.npz does not exist\."),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(words: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as refused:
        a_plan(*words.split())
    assert "\n" not in str(refused.value) and refused.value.exit_code == 2


def test_the_command_prints_one_line_and_ends_with_two(capsys: pytest.CaptureFixture[str]) -> None:
    assert devices.main(["--experiment", "mnits"]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.count("\n") == 1 and "Did you mean 'mnist'" in shown.err


def test_a_check_that_would_print_no_json_refuses_to(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        devices.main(["--check", "--json"])
    assert refused.value.code == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.endswith("error: --check prints plain text: leave out --json.\n")


def test_the_list_names_experiments_cases_and_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert devices.main(["--list"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "very-deep: cats and dogs, 30 more convolutions" in shown
    assert "published: 8 min 5 s, CPU; 10 epochs" in shown
