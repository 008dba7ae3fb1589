"""How the peers of a work are measured in rounds: workers, what is checked at run time, peers that fail, parts."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import shutil

import numpy as np
import psutil
import pytest

from tests.benchmarks.evidence.peers.builders import a_served, planted_peer, small_photos
from tests.checks import lives
from unstall.benchmarks.evidence.peers import processes, rounds
from unstall.benchmarks.evidence.peers.catalogue import PARTS, worker_choices, workers_text
from unstall.benchmarks.evidence.peers.child import Checker
from unstall.benchmarks.evidence.peers.material import Material
from unstall.benchmarks.evidence.peers.processes import Launcher
from unstall.benchmarks.evidence.peers.rounds import PeerRun
from unstall.pipeline.sources.arrays import from_arrays
from unstall.pipeline.sources.folder import from_folder

IMAGES = 100

# What is checked at run time


def test_a_checker_notes_the_form_of_what_came_out():
    checker = Checker()
    checker.begin()
    checker.take(np.full((8, 64, 64, 3), 255, np.uint8), np.ones((8, 1)))  # the short batch need not be the last
    checker.take(np.zeros((32, 64, 64, 3), np.uint8), np.zeros(32))
    served = checker.served(opened_ns=checker.first_ns - 2_000_000_000)
    assert served == a_served(first_batch_s=2.0, images=40, dtypes=("uint8",), labels={0: 32, 1: 8})
    checker.take(np.zeros((8, 64, 64, 3), np.uint8), np.zeros(8))
    assert not checker.served(opened_ns=0).full_batches


@pytest.mark.parametrize(
    ("served", "expected"),
    [
        ({}, []),
        ({"shapes": ((3, 64, 64),)}, []),
        ({"shapes": ((32, 32, 3), (64, 64, 3))}, ["images of 32x32x3"]),
        ({"dtypes": ("float32", "uint8")}, ["uint8, not float32"]),
        ({"full_batches": False}, ["batches of other sizes"]),
        ({"images": 60}, ["60 images an epoch, not 64"]),
        ({"labels": {0: 30, 1: 34}}, ["labels 0: 30, 1: 34, not 0: 32, 1: 32"]),
        (
            {"images": 5, "labels": dict.fromkeys(range(5), 1)},
            ["5 images an epoch, not 64", "labels 0: 1, 1: 1, 2: 1, 3: 1, ..., not 0: 32, 1: 32"],
        ),
    ],
)
def test_every_difference_of_form_is_said(served, expected):
    assert a_served(**served).differences({0: 32, 1: 32}, "float32") == expected


@pytest.mark.long
def test_a_peer_that_serves_something_else_is_left_out_and_the_rest_goes_on(run_of):
    wrong = {
        "drops_the_last_batch": "96 images an epoch, not 100",
        "swaps_classes": "labels 0: 40, 1: 60, not 0: 60, 1: 40",
        "halves": "images of 32x32x3",
        "uint8": "uint8, not float32",
    }
    run = run_of("planted", *wrong)
    run.prepare()
    run.measure(0)
    assert list(run.measured) == ["planted"] and len(run.measured["planted"].samples) == 1
    assert list(run.left_out) == list(wrong)
    assert all(reason.startswith("other work: ") and wrong[name] in reason for name, reason in run.left_out.items())


def test_a_window_that_lacks_images_counts_for_nothing(run_of):
    run = run_of("planted")
    run.prepare()
    run._epochs["planted"] = 2
    run._images -= 1
    run.measure(0)
    assert run.measured == {} and run.left_out == {"planted": "200 images in 2 epochs of 99"}


# Workers


@pytest.mark.parametrize(
    ("kinds", "least", "asked", "choices"),
    [
        ((), 1, (3,), [(None, False)]),
        (("threads",), 1, (), [(1, False), (2, False), (4, False)]),
        (("processes",), 0, (), [(0, True), (2, True), (4, True)]),
        (("threads", "processes"), 0, (0, 2), [(0, False), (2, False), (2, True)]),
        (("threads",), 1, (0,), [(1, False)]),
    ],
)
def test_workers_to_try(kinds, least, asked, choices):
    peer = planted_peer("planted", kinds=kinds, least=least)
    assert worker_choices(peer, 2, asked) == choices


def test_workers_in_words():
    words = [
        workers_text(*choice) for choice in ((None, False), (0, True), (1, True), (2, True), (1, False), (4, False))
    ]
    assert words == ["auto", "main thread", "1 process", "2 processes", "1 thread", "4 threads"]


def test_a_number_of_workers_that_fails_is_flagged_and_another_chosen(run_of):
    run = run_of(planted_peer("few_workers_only", kinds=("threads",)))
    run.prepare()
    measured = run.measured["few_workers_only"]
    assert measured.workers == "1 thread" and list(measured.trials) == ["1 thread"]
    assert measured.flags == (
        "2 threads: ValueError: one worker is all there is",
        "4 threads: ValueError: one worker is all there is",
    )


# Peers that fail


@pytest.mark.long
def test_rounds_are_complete_and_every_image_is_counted_once(run_of):
    run = run_of("planted", dataclasses.replace(planted_peer("planted"), name="again"))
    run.prepare()
    for number in range(3):
        run.measure(number)
    run.end()
    assert list(run.measured) == ["planted", "again"]
    for measured in run.measured.values():
        assert [sample.round for sample in measured.samples] == [0, 1, 2]
        assert all(sample.images == IMAGES * sample.epochs for sample in measured.samples)
        assert all(0 < sample.first_batch_ns < sample.wall_ns for sample in measured.samples)


@pytest.mark.slow  # 26 s: a peer is watched at rest
def test_a_peer_that_works_on_between_its_windows_is_flagged(run_of, monkeypatch):
    monkeypatch.setattr(processes, "_REST_MS", 100)
    monkeypatch.setattr(processes, "_REST_TRIES", 2)
    run = run_of("never_rests", "planted")
    run.prepare()
    run.measure(0)
    flags = {name: measured.flags for name, measured in run.measured.items()}
    assert flags == {"never_rests": ("does not rest between its windows",), "planted": ()}


@pytest.mark.long
@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("dies_later", r"the process ended with exit code 7: planted: out of luck"),
        ("hangs_later", r"no answer within \d+ s: it hung and was ended"),  # while other work runs it has longer
    ],
)
def test_a_peer_that_dies_or_hangs_is_left_out_and_the_rest_goes_on(run_of, trouble, monkeypatch, function, reason):
    monkeypatch.setattr(rounds, "HANG_LEAST_S", 3.0)
    run = run_of(function, "planted")
    run.prepare()
    process = psutil.Process(run._processes[function].pid)
    trouble.touch()
    run.measure(0)
    run.measure(1)
    assert list(run.left_out) == [function] and re.fullmatch(reason, run.left_out[function])
    assert {name: len(measured.samples) for name, measured in run.measured.items()} == {"planted": 2}
    assert left_of(process.pid) == []


def test_a_trial_of_many_images_gets_more_time_before_it_counts_as_hung(tmp_path, monkeypatch):
    asked = []

    class FakeProcess:
        def ask(self, method, *arguments, timeout_s):
            asked.append((method, timeout_s))
            return {"images": 1, "wall_ns": 1}

    monkeypatch.setattr(rounds, "rest", lambda process: True)
    source, peer = from_arrays(small_photos(2), np.array([0, 1])), planted_peer("planted")
    material = Material(source=source, array_labels=(0,) * 8000)
    run = PeerRun("prepared-float", [peer], material, Launcher(tmp_path, tmp_path, {}), cores=1)
    run._processes, run._folders = {peer.name: FakeProcess()}, {peer.name: tmp_path}
    run._try(peer, (None, False))
    assert asked == [("open", 300), ("window", 400), ("window", 400)]


def left_of(session: int) -> list[psutil.Process]:
    """The processes of a session that still run."""
    processes_left = []
    for process in psutil.process_iter(["status"]):
        try:
            if lives(process.pid) and os.getsid(process.pid) == session:
                processes_left.append(process)
        except (psutil.NoSuchProcess, ProcessLookupError):
            continue
    return processes_left


def test_a_peer_needs_numpy_and_psutil_and_nothing_else_of_its_interpreter(launcher, run_of, tmp_path, monkeypatch):
    lacking = tmp_path / "lacking"
    lacking.mkdir()
    for name in ("PIL", "rich", "scipy", "jinja2", "cv2", "keras", "tensorflow"):
        (lacking / f"{name}.py").write_text(f"raise ImportError('there is no {name}')\n")
    monkeypatch.setenv("PYTHONPATH", str(lacking))
    run = run_of("planted")
    run.prepare()
    run.measure(0)
    assert run.left_out == {} and len(run.measured["planted"].samples) == 1


def test_what_is_not_installed_says_how_to_install_it(run_of):
    peer = dataclasses.replace(planted_peer("planted"), module="no_such_library", install="pip install it")
    run = run_of(peer)
    run.prepare()
    reason = "not installed (ModuleNotFoundError: No module named 'no_such_library'); pip install it"
    assert run.left_out == {"planted": reason}


# Parts of the work


@pytest.fixture
def cold(photos, tmp_path):
    """Material of photos."""
    shutil.copytree(photos, tmp_path / "photos")
    return Material(source=from_folder(tmp_path / "photos"))


@pytest.mark.long
def test_parts_are_timed_in_rounds_on_all_cores_and_serve_nothing_to_check(cold, launcher):
    parts = [part for part in PARTS.values() if not part.gpu]
    run = PeerRun("cold", parts, cold, launcher, cores=2, workers=(1,))
    run.prepare()
    for number in range(2):
        run.measure(number)
    run.end()
    assert run.left_out == {}
    assert list(run.measured) == ["decode", "read-decode", "read-decode-warp", "read-decode-warp-tf-data"]
    for measured in run.measured.values():
        assert (measured.workers, measured.first_batch_s, measured.flags) == ("2 threads", None, ())
        assert [sample.round for sample in measured.samples] == [0, 1]
        assert all(sample.images == 40 * sample.epochs and sample.wall_ns > 0 for sample in measured.samples)


def test_a_part_that_meets_a_damaged_photo_is_left_out_with_its_name(cold, launcher):
    damaged = pathlib.Path(cold.source.paths[7])
    damaged.write_bytes(b"no photo")
    run = PeerRun("cold", [PARTS["decode"]], cold, launcher, cores=2)
    run.prepare()
    assert run.measured == {}
    named = f"{damaged.parent.name}/{damaged.name}"
    reason = f"ValueError: {named} cannot be decoded by OpenCV. (unstall doctor names the file)"
    assert run.left_out == {"decode": reason}
