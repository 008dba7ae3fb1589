"""`unstall materialize`: what it prints, and how it ends."""

import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple

import pytest

from tests import PROJECT_ROOT
from unstall.benchmarks import cli
from unstall.pipeline import PipelineConfig, build, building, from_folder, open_source
from unstall.pipeline.commands import materialize as command
from unstall.pipeline.commands.materialize import describe
from unstall.pipeline.prepared.write import Prepared, materialize
from unstall.pipeline.rates import Rates
from unstall.pipeline.stages import read as reading

DiskUsage = namedtuple("DiskUsage", "total used free")
PREPARED = Prepared(
    folder="prepared/train", form="raw", images=1600, source_bytes=36_700_000, prepared_bytes=19_700_000, seconds=1.5
)


def test_what_is_printed():
    rates = Rates(before=(2000.0, 1600.0, 1800.0), after=(18000.0, 16000.0, 20000.0))
    assert describe(PREPARED, rates) == (
        "raw copy: prepared/train\n"
        "images       1,600\n"
        "size         36.7 MB before, 19.7 MB after (54%)\n"
        "one-off      1.5 s\n"
        "reading      1,800 images/sec before, 18,000 after: 10.00 times as fast (9.00 to 11.11 in 3 rounds)\n"
        "pays after   1.9 epochs, if training waits for reading: 0.80 s an epoch are saved"
    )


def test_a_copy_that_is_no_faster_never_pays():
    rates = Rates(before=(2000.0,), after=(2000.0,))
    assert describe(PREPARED, rates).endswith(
        "pays after   never: reading the copy is no faster than reading the source"
    )


def test_a_copy_that_is_faster_now_and_then_is_not_said_to_pay():
    rates = Rates(before=(2000.0, 2000.0, 2000.0), after=(1900.0, 2400.0, 2500.0))
    assert describe(PREPARED, rates).endswith("pays after   not shown: reading the copy was not faster in every round")


def test_records_are_measured_as_they_are_read_in_training(photos, tmp_path, monkeypatch):
    """A part of a copy is read image by image, by offset; the whole of it from front to back."""
    materialize(from_folder(photos), tmp_path / "copy", "records", PipelineConfig(image_size=(16, 16)))
    monkeypatch.setattr(command, "_MEASURED_IMAGES", 8)
    monkeypatch.setattr(reading, "_by_offset", lambda *_: pytest.fail("read by offset"))
    read = []
    monkeypatch.setattr(building, "build", lambda config, source: read.append(source.images) or build(config, source))
    config = PipelineConfig(image_size=(16, 16), augmentation=None, batch_size=4)
    rates = command.measure(from_folder(photos), open_source(str(tmp_path / "copy")), config)
    assert read == [8, 40]
    assert min(*rates.before, *rates.after) > 0


@pytest.mark.parametrize("form", ["raw", "records", "resized"])
def test_a_copy_is_written_and_measured(form, photos, tmp_path, capsys):
    out = tmp_path / "out"
    assert (
        cli.main(["materialize", "--data", str(photos), "--out", str(out), "--as", form, "--image-size", "16x24"]) == 0
    )
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[0] == f"{form} copy: {out}"
    assert lines[1] == "images       40"
    assert [line.split()[0] for line in lines[2:]] == ["size", "one-off", "reading", "pays"]
    assert printed.err == ""


def test_the_console_script_has_the_verb(photos, tmp_path, capsys):
    assert cli.main(["materialize", "--data", str(photos), "--out", str(tmp_path / "out"), "--as", "records"]) == 0
    assert "records copy" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (["materialise"], 2, "unstall: 'materialise' is not a verb. Did you mean 'materialize'?"),
        (
            ["materialize", "--data", "/no/such", "--out", "out", "--as", "raw"],
            2,
            "/no/such does not exist. Give a folder that holds",
        ),
    ],
)
def test_bad_usage(words, code, expected, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert cli.main(words) == code
    printed = capsys.readouterr()
    assert (printed.out + printed.err).startswith(expected)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--as", "row"], "argument --as: invalid choice: 'row'"),
        ([], "the following arguments are required: --as"),
        (["--as", "raw", "--image-size", "64x"], "must be a number of pixels, or HEIGHTxWIDTH. Received: 64x"),
        (["--as", "raw", "--image-size", "0"], "must be a number of pixels, or HEIGHTxWIDTH. Received: 0"),
    ],
)
def test_bad_options(options, expected, capsys):
    with pytest.raises(SystemExit) as caught:
        command.main(["--data", "photos", "--out", "out", *options])
    assert caught.value.code == 2
    assert expected in capsys.readouterr().err


def test_an_image_size_is_a_side_or_two():
    assert command._size("64") == (64, 64)
    assert command._size("48x96") == (48, 96)


def test_no_room_is_said_and_the_code_is_3(photos, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: DiskUsage(1, 1, 1000))
    assert command.main(["--data", str(photos), "--out", str(tmp_path / "out"), "--as", "raw"]) == 3
    assert "not enough room on disk: 0 MB needed, 0 MB free" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow  # a process of its own, which imports TensorFlow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_itself_can_be_stopped(number, photos, tmp_path):
    child = subprocess.Popen(
        [
            sys.executable,
            *f"-m pipeline materialize --data {photos} --out {tmp_path / 'out'} --as raw --image-size 2500".split(),
        ],
        cwd=PROJECT_ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not list(tmp_path.iterdir()):
        assert child.poll() is None
        time.sleep(0.02)
    child.send_signal(number)
    assert child.communicate(timeout=120)[1].endswith("stopped: nothing was left behind\n")
    assert child.returncode == 128 + number
    assert list(tmp_path.iterdir()) == []


def test_help_comes_without_tensorflow():
    code = (
        "import sys; from unstall.benchmarks import cli\n"
        "try:\n    cli.main(['materialize', '--help'])\n"
        "except SystemExit:\n    print(sorted({'tensorflow', 'keras', 'cv2', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")
    assert "--as {resized,records,raw}" in done.stdout
