"""What follows from samples of peers: rates, ratios within a group of equal work, leads; and the table."""

from __future__ import annotations

import dataclasses

import pytest

from tests.benchmarks.evidence.documents import printed
from tests.benchmarks.evidence.peers.builders import a_measured_peer, a_peer, a_peers_document
from unstall.benchmarks.evidence.peers.results import Group, PeersDocument, groups_of, leads_of, ratio_to, view_of
from unstall.profiles.report import LeftOut


def said(document: PeersDocument) -> str:
    return printed(document, view_of(document))


def groups_of_the_work(document: PeersDocument) -> list[Group]:
    [work] = document.samples.works
    return groups_of(work, document.plan.peers)


COMPOSED = "scaled decode, one resampling"


def a_run() -> PeersDocument:
    """Returns the document of a run in which each kind of line is printed."""
    return a_peers_document(
        a_measured_peer("slow", (500.0, 1000.0, 1500.0), workers="2 processes"),
        a_measured_peer("ours:one", (1000.0, 2000.0, 3000.0)),
        a_measured_peer("ours:two", (450.0, 900.0, 1300.0), flags=("does not rest between its windows",)),
        a_measured_peer("decode", (1250.0, 2500.0, 3750.0), first_batch_s=None),
        a_measured_peer("other", (), workers="4 threads"),
        a_measured_peer("slow:composed", (600.0, 1200.0, 1800.0)),
        peers=[
            a_peer("slow", note="DataLoader"),
            a_peer("decode", part=True),
            a_peer("slow:composed", renditions={"cold": COMPOSED}, remedied=True),
        ],
        left_out=(
            LeftOut(who="spdl (cold)", reason="not installed"),
            LeftOut(who="ffcv (prepared, prepared-float)", reason="not built"),
        ),
    )


GOLDEN = """\
cold: JPEG files to float32 in [0, 1]: read, decode, 64x64, shear and zoom,
flip; 1,600 images
peer                          workers     img/s to ours      95 % 1st s
full decode, bilinear
decode                        auto        2,271    1.25 1.25-1.25     -
ours:one                      auto        1,817    1.00         -  0.25
slow                          2 processes   909    0.50 0.50-0.50  0.25
ours:two                      auto          807    0.44 0.42-0.47  0.25
other                         4 threads       -       -         -  0.25
scaled decode, one resampling
slow:composed                 auto        1,090       -         -  0.25
cold: ours:one has 1.67 (1.67-1.67) times the rate of the fastest with our
remedies, slow:composed, at other work: scaled decode, one resampling.
cold: ours:one has 2.00 (2.00-2.00) times the rate of the fastest as its
documentation has it, slow, at the same work.
slow: DataLoader
ours:two: does not rest between its windows
p 1.2
to ours: images/sec over those of our fastest loader under the same heading,
round by round. LIBRARY:REMEDY: with every remedy that we know. 1st s: from
making the loader to its first batch.
left out spdl (cold): not installed
left out ffcv (prepared, prepared-float): not built
"""


def test_the_table_is_this():
    assert said(a_run()) == GOLDEN.rstrip("\n")


def test_a_run_without_another_library_says_so():
    ours = a_measured_peer("ours:one", (1000.0,))
    part = a_measured_peer("decode", (1000.0,), first_batch_s=None)
    sentence = "No peer is here: no other library was measured."
    assert sentence in said(a_peers_document(ours, part, peers=[a_peer("decode", part=True)])).splitlines()
    assert sentence not in said(a_peers_document(ours, a_measured_peer("other", (1000.0,))))


def test_a_ratio_is_of_the_rounds_that_both_have():
    ours = a_measured_peer("ours:one", (100.0, 400.0, 200.0, 100.0))
    late = a_measured_peer("late", (100.0, 200.0, 100.0, 50.0))
    late = dataclasses.replace(late, samples=late.samples[1:])
    ratio, interval = ratio_to(late, ours)
    assert (ratio, *interval) == pytest.approx((0.5, 0.5, 0.5))
    late = dataclasses.replace(late, samples=late.samples[1:])
    assert ratio_to(late, ours) == (pytest.approx(0.5), None)
    ours = dataclasses.replace(ours, samples=ours.samples[:1])
    assert ratio_to(late, ours) == (None, None)


def test_a_rate_is_held_against_the_fastest_of_ours():
    document = a_peers_document(
        a_measured_peer("other", ()),
        a_measured_peer("ours:two", (1000.0,) * 3),
        a_measured_peer("ours:stopped", ()),
        a_measured_peer("ours:one", (2000.0,) * 3),
    )
    [group] = groups_of_the_work(document)
    assert group.ours == "ours:one"
    rows = [(result.peer.name, result.images_per_sec, result.ratio) for result in group.peers]
    assert rows == [
        ("ours:one", pytest.approx(2000), pytest.approx(1)),
        ("ours:two", pytest.approx(1000), pytest.approx(0.5)),
        ("other", None, None),
        ("ours:stopped", None, None),
    ]
    assert [row["peer"] for row in view_of(document).rows] == ["ours:one", "ours:two"]


def test_only_peers_that_make_images_in_the_same_way_are_compared():
    document = a_peers_document(
        a_measured_peer("ours:full", (1000.0,) * 3),
        a_measured_peer("library", (800.0,) * 3),
        a_measured_peer("ours:composed", (4000.0,) * 3),
        a_measured_peer("library:composed", (2000.0,) * 3),
        peers=[
            a_peer("ours:composed", renditions={"cold": COMPOSED}),
            a_peer("library:composed", renditions={"cold": COMPOSED}, remedied=True),
        ],
    )
    found = groups_of_the_work(document)
    groups = {group.rendition: (group.ours, [result.ratio for result in group.peers]) for group in found}
    assert list(groups) == [COMPOSED, "full decode, bilinear"]
    assert groups[COMPOSED] == ("ours:composed", [pytest.approx(1), pytest.approx(0.5)])
    assert groups["full decode, bilinear"] == ("ours:full", [pytest.approx(1), pytest.approx(0.8)])
    leads = [(lead.other, lead.remedied, lead.rendition, lead.ratio) for lead in leads_of(found)]
    assert leads == [
        ("library:composed", True, "", pytest.approx(2)),
        ("library", False, "full decode, bilinear", pytest.approx(5)),
    ]


def test_all_works_are_told_apart():
    document = a_run()
    [work] = document.samples.works
    peers = tuple(
        dataclasses.replace(peer, renditions=peer.renditions | {"prepared": "area"}) for peer in document.plan.peers
    )
    document = dataclasses.replace(
        document,
        plan=dataclasses.replace(document.plan, peers=peers),
        samples=dataclasses.replace(document.samples, works=(work, dataclasses.replace(work, work="prepared"))),
    )
    assert [table.title.partition(":")[0] for table in view_of(document).tables] == ["cold", "prepared"]
    rows = view_of(document).rows
    assert {(row["work"], row["rendition"]) for row in rows if row["peer"] == "slow"} == {
        ("cold", "full decode, bilinear"),
        ("prepared", "area"),
    }
    text = said(document)
    assert text.count("slow: DataLoader") == 1 and text.count("\n\nprepared: a prepared file") == 1
