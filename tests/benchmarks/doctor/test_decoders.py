"""What each decoder makes of an image: the same at an eighth of the size, in a child, of thousands of damaged ones."""

import io
import pathlib
import resource
import time

import numpy as np
import pytest
from PIL import Image

from tests import bad_files
from unstall.benchmarks.doctor import __main__ as doctor
from unstall.benchmarks.doctor import measure
from unstall.benchmarks.doctor.child import Session
from unstall.benchmarks.doctor.decoders import DECODERS, judge
from unstall.benchmarks.doctor.examine import examine
from unstall.benchmarks.doctor.measure import Examiner, examine_all
from unstall.benchmarks.doctor.results import ExaminedFile
from unstall.benchmarks.lab.child import Child, ChildDied
from unstall.pipeline.sources.headers import MAX_PIXELS
from unstall.profiles.devices import CPU

HANG_S, GROWTH_BYTES = 5.0, 500_000_000
# Sessions of children that start at once.
SESSIONS = "tests.benchmarks.doctor.sessions"
# Mutants that a child makes and judges between two answers.
BLOCK = 25


def mutant(photo: bytes, other: bytes, number: int) -> bytes:
    """Damages a photo: flips bits, cuts it, or puts a piece of another into it; the same for the same number."""
    draw = np.random.default_rng(number)
    made = bytearray(photo)
    how = draw.integers(3)
    if how == 0:
        for _ in range(int(draw.integers(1, 9))):
            made[int(draw.integers(len(made)))] ^= 1 << int(draw.integers(8))
    elif how == 1:
        del made[int(draw.integers(1, len(made))) :]
        if draw.integers(2):
            made += b"\xff\xd9"  # so that the scan does not see that it is cut
    else:
        start, length = int(draw.integers(len(other))), int(draw.integers(1, 2000))
        at = int(draw.integers(len(made)))
        made[at : at + int(draw.integers(length + 1))] = other[start : start + length]
    return bytes(made)


class Judging(Session):
    """A child that compares both ways to decode, and damages photos by itself."""

    def both(self, encoded: bytes) -> dict[str, tuple[object, object]]:
        return {name: (judge(name, encoded), judge(name, encoded, scaled=False)) for name in DECODERS}

    def fuzz(self, folder: str, seeds: list[str], numbers: list[int]) -> tuple[dict[str, int], list[str], float, int]:
        """Examines mutants as the doctor does, and has those within the limit decoded at full size, too.

        Returns: how many there were of each trouble; where the two ways to decode differ; the longest time that one
        decoder took; and the bytes that this process has taken at most since its start.
        """
        photos = [pathlib.Path(seed).read_bytes() for seed in seeds]
        counts: dict[str, int] = {}
        differing, longest_s = [], 0.0

        def timed(name: str, encoded: bytes, *, scaled: bool = True) -> object:
            nonlocal longest_s
            begin_s = time.perf_counter()
            verdict = judge(name, encoded, scaled=scaled)
            longest_s = max(longest_s, time.perf_counter() - begin_s)
            return verdict

        for number in numbers:
            encoded = mutant(photos[number % len(photos)], photos[(number * 7 + 1) % len(photos)], number)
            path = pathlib.Path(folder) / f"{number}.jpg"
            path.write_bytes(encoded)
            verdicts = {}

            def keep(name: str, content: bytes, verdicts: dict = verdicts) -> object:
                verdicts[name] = timed(name, content)
                return verdicts[name]

            examined = examine(path.parent, path.name, keep)
            path.unlink()
            for name, verdict in verdicts.items():
                full = timed(name, encoded, scaled=False)
                if (verdict.error is None, bool(verdict.warnings)) != (full.error is None, bool(full.warnings)):
                    differing.append(f"{number}, {name}: {verdict}, {full}")
            for trouble in {one.trouble for one in examined.findings} or {"none"}:
                counts[trouble] = counts.get(trouble, 0) + 1
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - self.resting_bytes
        return counts, differing, longest_s, grown

    def open(self) -> None:
        super().open()
        self.resting_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.fixture(scope="module")
def child(tmp_path_factory):
    child = Child(f"{__name__}:Judging", CPU, tmp_path_factory.mktemp("log") / "child.log")
    child.ask("open", timeout_s=120)
    yield child
    child.close()


DECODED = [kind for kind in bad_files.CONTENTS if kind not in ("30,000 x 30,000", "zero bytes")]


@pytest.mark.parametrize("kind", DECODED)
def test_an_eighth_of_the_size_has_the_verdict_of_the_whole(kind, child):
    for name, (scaled, full) in child.ask("both", bad_files.CONTENTS[kind][1](), timeout_s=30).items():
        assert (scaled.error is None, scaled.warnings) == (full.error is None, full.warnings), name


def tensorflows_own(encoded: bytes, loader: str) -> bool:
    """Whether the op that a loader runs decodes an image."""
    import tensorflow as tf

    from unstall.pipeline.stages import read

    try:
        if loader == "scaled":
            read.decode_scaled(encoded, (64, 64))
        elif loader == "jpeg":
            tf.io.decode_jpeg(encoded, channels=3)
        else:
            tf.io.decode_image(encoded, channels=3, expand_animations=False)
    except tf.errors.InvalidArgumentError:
        return False
    return True


@pytest.mark.parametrize("kind", [kind for kind in DECODED if bad_files.CONTENTS[kind][1]()[:3] == b"\xff\xd8\xff"])
def test_tensorflows_three_ways_to_decode_a_jpeg_agree_with_the_verdict(kind, child):
    """Loaders use `decode_jpeg` where all files are JPEGs and `decode_image` else, and ratios as the size asks for."""
    encoded = bad_files.CONTENTS[kind][1]()
    scaled, _ = child.ask("both", encoded, timeout_s=30)["TensorFlow"]
    found = {loader: tensorflows_own(encoded, loader) for loader in ("scaled", "jpeg", "image")}
    assert found == dict.fromkeys(found, scaled.error is None)


def test_what_is_said_of_whole_images_is_no_warning(child):
    """libpng says of many a PNG that its colour profile is not quite right, and decodes it."""
    from PIL import PngImagePlugin

    chunks = PngImagePlugin.PngInfo()
    chunks.add(b"iCCP", b"x\0\0nonsense")
    png = bad_files.encoded(bad_files.picture(), "PNG", pnginfo=chunks)
    verdicts = child.ask("both", png, timeout_s=30)
    assert {name: both[0].warnings for name, both in verdicts.items()} == dict.fromkeys(DECODERS, ())


def test_a_reason_is_one_line_without_places_in_somebody_elses_code(child):
    for kind in DECODED:
        for scaled, _ in child.ask("both", bad_files.CONTENTS[kind][1](), timeout_s=30).values():
            said = [*scaled.warnings, scaled.error or ""]
            assert all("\n" not in line and "0x7" not in line and "/io/" not in line for line in said), said


# A decoder that takes its process with it, or does not come back


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory):
    """What became of files at which a decoder crashes or hangs, with whole ones around them."""
    folder = tmp_path_factory.mktemp("poisoned")
    ends = {"1.jpg": b"", "2.jpg": b"CRASH", "3.jpg": b"HANG", "4.jpg": b"KILL", "5.jpg": b"OUTSIDE", "6.jpg": b""}
    for name, end in ends.items():
        (folder / name).write_bytes(bad_files.PHOTO + end)
    examiner = Examiner(folder / "child.log", f"{SESSIONS}:poisoned_session", hang_s=2)
    try:
        return {name: examiner.examine(folder, name) for name in ends}
    finally:
        examiner.end()


def troubles(examined: ExaminedFile) -> list[tuple[str, str]]:
    return [(one.trouble, one.detail) for one in examined.findings]


def test_a_decoder_that_crashes_is_named_with_its_last_words_and_the_rest_goes_on(poisoned):
    crash = "OpenCV: the process died of signal SIGABRT (terminate called)"
    assert troubles(poisoned["2.jpg"]) == [("crashes", crash)]
    assert troubles(poisoned["1.jpg"]) == troubles(poisoned["6.jpg"]) == []


def test_a_decoder_that_hangs_is_named(poisoned):
    assert troubles(poisoned["3.jpg"]) == [("hangs", "OpenCV: no answer within 2 s: it hung and was ended")]


def test_a_decoder_that_runs_out_of_memory_is_named(poisoned):
    [(trouble, detail)] = troubles(poisoned["4.jpg"])
    assert trouble == "crashes" and "most likely the machine ran out of memory" in detail


def test_what_takes_the_process_outside_of_a_decoder_is_no_decoders_fault_and_the_rest_goes_on(poisoned):
    assert troubles(poisoned["5.jpg"]) == [
        ("crashes", "outside of a decoder: the process died of signal SIGABRT"),
    ]


def test_an_examination_that_fails_is_heard_of(tmp_path, monkeypatch):
    """Whoever waits for the file would wait for ever."""
    (tmp_path / "1.jpg").write_bytes(bad_files.PHOTO)

    def fails(*_):
        raise MemoryError

    monkeypatch.setattr(Examiner, "examine", fails)
    with pytest.raises(MemoryError):
        next(examine_all(tmp_path, ["1.jpg"], 1))


def test_a_child_that_cannot_be_started_is_said(tmp_path, monkeypatch):
    def no_process(*_):
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(measure, "Child", no_process)
    with pytest.raises(ChildDied, match="^no process can be started: Resource temporarily unavailable$"):
        next(examine_all(tmp_path, ["1.jpg"], 1))


def test_decoders_that_cannot_be_started_end_the_command_with_code_3(tmp_path, capsys, monkeypatch):
    for name in ("cats", "dogs"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        (tmp_path / "pets" / name / "1.jpg").write_bytes(bad_files.PHOTO)
    monkeypatch.setattr(Examiner.__init__, "__defaults__", (f"{SESSIONS}:no_session", 5.0))
    assert doctor.main(["--data", str(tmp_path / "pets"), "--out", str(tmp_path / "out")]) == 3
    assert "nothing could be examined. the process ended with exit code 3." in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_an_examination_that_is_left_early_leaves_no_child(tmp_path):
    import psutil

    for number in range(4):
        (tmp_path / f"{number}.jpg").write_bytes(bad_files.PHOTO)
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    running = examine_all(tmp_path, [f"{number}.jpg" for number in range(4)], 1)
    next(running)
    running.close()
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


def test_a_file_that_vanishes_while_it_is_looked_at_is_unreadable(child, tmp_path):
    class Vanishing:
        def ask(self, *_, **__):
            from unstall.benchmarks.lab.child import JobRefused

            raise JobRefused("FileNotFoundError: 1.jpg")

    examiner = Examiner(tmp_path / "child.log")
    examiner._child = Vanishing()
    assert troubles(examiner.examine(tmp_path, "1.jpg")) == [("unreadable", "FileNotFoundError: 1.jpg")]


def test_an_examiner_that_was_ended_starts_no_child(tmp_path):
    examiner = Examiner(tmp_path / "child.log")
    examiner.end()
    with pytest.raises(ChildDied, match="^ended$"):
        examiner.examine(tmp_path, "1.jpg")


def test_an_examiner_that_is_ended_while_its_child_starts_waits_for_nothing(tmp_path, monkeypatch):
    examiner = Examiner(tmp_path / "child.log", f"{SESSIONS}:a_slow_session")

    class Starting(Child):
        def __init__(self, *words):
            super().__init__(*words)
            examiner.end()  # as another thread does that sees no child yet

    monkeypatch.setattr(measure, "Child", Starting)
    with pytest.raises(ChildDied):
        examiner.examine(tmp_path, "1.jpg")


# Fuzzing


@pytest.fixture(scope="module")
def seeds(request, photos):
    """Twenty real photos; generated ones where there are none."""
    try:
        folder = request.getfixturevalue("real_photos") / "train"
    except pytest.skip.Exception:
        folder = photos
    found = sorted(folder.glob("*/*.jpg"))
    return [str(path) for path in found[:: len(found) // 20]][:20]


def fuzz(child: Child, seeds: list[str], folder: pathlib.Path, mutants: int) -> dict[str, int]:
    counts: dict[str, int] = {}
    longest_s, grown = 0.0, 0
    for start in range(0, mutants, BLOCK):
        numbers = list(range(start, min(start + BLOCK, mutants)))
        # A crash or a hang is a ChildDied, which names neither: run the numbers of the block one by one to find it.
        found, differing, block_s, grown = child.ask(
            "fuzz", str(folder), seeds, numbers, timeout_s=HANG_S * len(numbers)
        )
        longest_s = max(longest_s, block_s)
        assert differing == []
        for trouble, count in found.items():
            counts[trouble] = counts.get(trouble, 0) + count
    print(f"{mutants:,} mutants, longest {longest_s:.2f} s, {grown / 1e6:.0f} MB more at most: {counts}")
    assert longest_s < HANG_S and grown < GROWTH_BYTES
    return counts


@pytest.fixture(scope="module")
def other_seeds(tmp_path_factory):
    """One file of each other kind that decoders take: formats, modes, codings."""
    folder = tmp_path_factory.mktemp("seeds")
    kinds = ("PNG named .jpg", "BMP named .jpg", "GIF named .jpg", "WebP named .jpg", "CMYK", "grey", "16 bit", "RGBA")
    kinds += ("palette", "animated GIF", "animated WebP", "progressive", "Adobe, not JFIF", "EXIF 6")
    for kind in kinds:
        (folder / kind.replace(" ", "-")).write_bytes(bad_files.CONTENTS[kind][1]())
    return [str(path) for path in sorted(folder.iterdir())]


def test_three_hundred_damaged_photos_crash_and_hang_no_decoder(child, seeds, other_seeds, tmp_path):
    counts = fuzz(child, seeds, tmp_path, 200)
    others = fuzz(child, other_seeds, tmp_path, 100)
    # The damage is real: a part is refused, a part is warned of, a part goes by unnoticed.
    assert min(counts.get(trouble, 0) for trouble in ("undecodable", "warnings", "none")) > 10
    assert others["undecodable"] > 10


@pytest.mark.slow
def test_twenty_thousand_damaged_photos_crash_and_hang_no_decoder(child, seeds, other_seeds, tmp_path):
    fuzz(child, seeds, tmp_path, 14_000)
    fuzz(child, other_seeds, tmp_path, 6_000)


def test_a_mutant_is_the_same_for_the_same_number_and_is_damaged():
    photo, other = bad_files.PHOTO, bad_files.encoded(bad_files.picture(), "JPEG")
    for number in range(60):
        assert mutant(photo, other, number) == mutant(photo, other, number) != photo


def test_a_damaged_header_that_claims_a_huge_image_gets_to_no_decoder(child, tmp_path):
    at = bad_files.PHOTO.index(b"\xff\xc0") + 5
    huge = bad_files.PHOTO[:at] + b"\x1f\x40\x1f\x40" + bad_files.PHOTO[at + 4 :]  # 8,000 x 8,000
    with Image.open(io.BytesIO(huge)) as image:
        assert image.width * image.height > MAX_PIXELS
    (tmp_path / "huge.jpg").write_bytes(huge)

    def never(name, encoded):
        raise AssertionError("a decoder was asked")

    assert [one.trouble for one in examine(tmp_path, "huge.jpg", never).findings] == ["over the limit"]
