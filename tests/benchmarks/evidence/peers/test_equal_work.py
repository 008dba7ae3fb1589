"""Every peer of the catalogue does the work that it states; and what does other work is caught, by planted faults."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tests.benchmarks.evidence.peers import renditions
from tests.benchmarks.evidence.peers.builders import a_survey, an_identity, planted_peer, small_photos
from tests.benchmarks.evidence.peers.equal_work import differences, made_otherwise
from tests.benchmarks.evidence.peers.proof import (
    TIMEOUT_S,
    Ground,
    ProvingLauncher,
    ground_of,
    link_with_tests,
    other_work,
)
from tests.benchmarks.evidence.peers.seen import Identifier, Surveyor
from unstall.benchmarks.evidence.peers import processes, rounds
from unstall.benchmarks.evidence.peers.catalogue import Peer, all_peers, worker_choices, workers_text
from unstall.benchmarks.evidence.peers.loaders.work import WORKS
from unstall.benchmarks.evidence.peers.rounds import PeerRun
from unstall.pipeline.sources.folder import from_folder

# What each peer's library is called where it is imported; of the others, all that they need is in every environment.
LIBRARIES = {"torch": "torch", "grain": "grain", "spdl": "spdl.io", "dali": "nvidia.dali", "ffcv": "ffcv"}


@pytest.fixture(scope="module")
def ground(photos, tmp_path_factory) -> Ground:
    return ground_of(from_folder(photos), tmp_path_factory.mktemp("ground"), works=tuple(WORKS), least=640)


@pytest.fixture(scope="module")
def launcher_of(tmp_path_factory) -> Iterator[Callable[[Peer], ProvingLauncher]]:
    """Returns the launcher of all peers that are in one module, whose library takes seconds to import."""
    launchers: dict[str, ProvingLauncher] = {}

    def launcher_of(peer: Peer) -> ProvingLauncher:
        if peer.module not in launchers:
            folder = tmp_path_factory.mktemp("one")
            launchers[peer.module] = ProvingLauncher(folder, link_with_tests(folder / "modules"), {})
        return launchers[peer.module]

    yield launcher_of
    for launcher in launchers.values():
        launcher.end()


def marks_of(peer: Peer) -> list[pytest.MarkDecorator]:
    return [pytest.mark.needs(module) for name, module in LIBRARIES.items() if peer.name.startswith(name)]


# Each peer at each of its works, but parts of the work, which serve nothing that could be compared.
PEERS_AT_WORK = [(peer, work) for peer in all_peers().values() if not peer.part for work in peer.functions]


def choices() -> Iterator[object]:
    """Yields each peer at each work with one worker, and as claims with two and with workers of another kind."""
    for peer, work in PEERS_AT_WORK:
        first, *others = worker_choices(peer, 2, (1, 2))
        for choice in (first, *others):
            marks = [*marks_of(peer), pytest.mark.long if choice == first else pytest.mark.claims]
            yield pytest.param(peer, work, *choice, marks=marks, id=f"{peer.name}, {work}, {workers_text(*choice)}")


@pytest.mark.parametrize(("peer", "work", "workers", "in_processes"), [*choices()])
def test_a_peer_does_the_work_that_it_states(peer, work, workers, in_processes, ground, launcher_of):
    """Of photos decoded, resized and warped as the catalogue states: see `equal_work.py` and `renditions.py`."""
    assert other_work(peer, work, ground, launcher_of(peer), workers=workers, processes=in_processes) == ()


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "stated"),
    [
        ("ours:python-full", "scaled decode, bilinear"),
        ("ours:python-full", "full decode, nearest"),
        ("ours:python-full", "full decode, antialiased"),
        ("ours:python-scaled", "full decode, bilinear"),
        ("ours:python-scaled", "scaled decode, one resampling"),
        ("ours:python-composed", "scaled decode, bilinear"),
    ],
)
def test_a_peer_that_states_another_way_is_caught(name, stated, ground, launcher_of):
    peer = dataclasses.replace(all_peers()[name], renditions={"cold": stated})
    [difference] = other_work(peer, "cold", ground, launcher_of(peer), workers=0, processes=True)
    assert stated in difference and "of 255" in difference


def runs() -> Iterator[object]:
    """Yields each peer at each work; as claims those whose library is in every environment."""
    for peer, work in PEERS_AT_WORK:
        marks = [*marks_of(peer), pytest.mark.long] if marks_of(peer) else pytest.mark.claims
        yield pytest.param(peer, work, marks=marks, id=f"{peer.name}, {work}")


@pytest.mark.parametrize(("peer", "work"), [*runs()])
def test_a_peer_is_measured(peer, work, ground, launcher_of, monkeypatch):
    for setting, value in (("WINDOW_S", 0.05), ("TRIAL_S", 0.02), ("TRIALS", 1)):
        monkeypatch.setattr(rounds, setting, value)
    monkeypatch.setattr(processes, "_REST_MS", 20)
    run = PeerRun(work, [peer], ground.material, launcher_of(peer), cores=2, workers=(1,))
    run.prepare()
    run.measure(0)
    assert run.left_out == {}
    assert [len(measured.samples) for measured in run.measured.values()] == [1]


@pytest.mark.long
def test_wrong_peers_are_caught_and_the_right_one_is_not(planted_material, tmp_path, monkeypatch):
    wrong = {
        "forgets_rescale": "values from",
        "rescales_twice": "mean off by",
        "drops_the_last_batch": "96 images an epoch, not 100",
        "mixes_labels": "labels of other images",
        "swaps_classes": "labels 0: 40, 1: 60, not 0: 60, 1: 40",
        "does_not_shuffle": "not shuffled",
        "does_not_augment": "of the images the same in two epochs",
        "never_flips": "flipped, not 50%",
        "draws_with_replacement": "not each image once an epoch",
        "darkens": "mean off by",
        "halves": "images of 32x32x3",
        "uint8": "uint8, not float32",
        "takes_the_nearest_pixel": "nearest, not bilinear: pixels off by",
        "smooths": "of 255 from bilinear",
    }
    monkeypatch.setattr(renditions, "_IMAGES", 8)  # each takes 40 ms to compare
    launcher = ProvingLauncher(tmp_path, link_with_tests(tmp_path / "modules"), {})
    ground = Ground(material=planted_material, sample=planted_material.source, plain=planted_material.array)
    try:
        process, folder = launcher.start("reference")
        right, work = planted_peer("planted"), "prepared-float"
        process.ask("load", right.module, "planted", [], timeout_s=TIMEOUT_S)
        process.ask("open", planted_material.job(work, folder), timeout_s=TIMEOUT_S)
        ground.references[work] = process.ask("survey", timeout_s=TIMEOUT_S)
        found = {
            name: "; ".join(other_work(planted_peer(name), work, ground, launcher)) for name in ("planted", *wrong)
        }
    finally:
        launcher.end()
    assert found.pop("planted") == ""
    assert list(found) == list(wrong)
    assert {name: text for name, text in found.items() if wrong[name] not in text} == {}


@pytest.mark.parametrize(
    ("survey", "identity", "expected"),
    [
        ({}, {}, ()),
        ({"shape": (3, 64, 64), "mean": (0.51, 0.44, 0.41)}, {}, ()),
        ({"mean": (0.5, 0.45, 0.43)}, {}, ("mean off by 0.030",)),
        ({"std": (0.25, 0.2, 0.25)}, {}, ("std off by 0.050",)),
        ({"range": (-0.1, 1.0)}, {}, ("values from -0.1 to 1",)),
        ({"full_batches": False}, {}, ("batches of other sizes",)),
        ({"class_means": {"0": 0.5, "1": 0.4}}, {}, ("a class's mean off by 0.050",)),
        ({}, {"changed_ratio": 0.5}, ("50% of the images the same in two epochs",)),
        ({}, {"once": False, "distinct": 60}, ("not each image once an epoch (60 of 64 seen)",)),
    ],
)
def test_every_difference_is_said(survey, identity, expected):
    assert differences(a_survey(**survey), an_identity(**identity), a_survey(), "float32") == expected


@pytest.mark.parametrize(
    ("medians", "expected"),
    [
        ({"full": (0.2, 0.4, 9.0), "scaled": (4.0, 5.0, 5.0)}, ()),
        ({"full": (0.45, 0.45, 0.45), "scaled": (0.4, 0.4, 0.4)}, ()),  # a small photo: the two are alike
        (
            {"full": (4.0, 5.0, 5.0), "scaled": (0.2, 0.4, 9.0)},
            ("pixels off by 5.0 of 255 from full, by 0.4 from scaled",),
        ),
        ({"full": (1.9, 1.9, 1.9), "scaled": (0.4, 0.4, 0.4)}, ("scaled, not full: pixels off by 0.4 and 1.9 of 255",)),
    ],
)
def test_how_images_were_made_is_said_where_it_is_not_as_stated(medians, expected):
    assert made_otherwise(medians, "full") == expected


def test_a_survey_counts_what_came_out_and_knows_its_statistics():
    surveyor = Surveyor()
    surveyor.begin()
    black, white = np.zeros((32, 64, 64, 3), np.uint8), np.full((8, 64, 64, 3), 255, np.uint8)
    surveyor.take(white, np.ones((8, 1)))  # the short batch need not be the last
    surveyor.take(black, np.zeros(32))
    survey = surveyor.survey(opened_ns=surveyor.first_ns - 2_000_000_000)
    assert (survey.first_batch_s, survey.images, survey.dtype, survey.full_batches) == (2.0, 40, "uint8", True)
    assert survey.labels == {"0": 32, "1": 8}
    assert survey.mean == pytest.approx([0.2] * 3)
    assert survey.std == pytest.approx([0.4] * 3)
    assert survey.class_means == {"0": 0.0, "1": 1.0}


def test_channels_first_are_seen_as_the_same_images():
    images = small_photos(40).astype(np.float32) / 255
    numbers = np.arange(40)
    identities = []
    for served in (images, np.moveaxis(images, -1, 1)):
        identifier = Identifier(small_photos(40))
        for _ in range(2):
            identifier.take(served, numbers)
        identities.append(identifier.identity())
    identity, channels_first = identities
    assert identity == channels_first
    assert identity.pairing == pytest.approx(1.0)
    assert (identity.flipped_ratio, identity.changed_ratio, identity.once) == (0.0, 0.0, True)
