"""What C libraries say of damaged files is counted and stays off the terminal; what Python says gets there."""

import os
import signal
import subprocess
import sys
import time

import pytest
from PIL import Image

from tests import PROJECT_ROOT, bad_files
from tests.checks import run_python
from unstall.pipeline import open_source
from unstall.pipeline.commands import materialize
from unstall.pipeline.commands.terminal import Noise, Stopped, decoders_unheard, signals


def test_lines_about_damaged_data_are_counted_and_not_shown(capfd):
    with decoders_unheard() as noise:
        os.write(2, b"I0000 a line about the machine\n")
        os.write(2, b"Corrupt JPEG data: 4 extraneous bytes \x1b[31m\n" * 3)
    assert (noise.warnings, noise.first) == (3, r"Corrupt JPEG data: 4 extraneous bytes \x1b[31m")
    assert capfd.readouterr().err == ""
    assert noise.sentence() == (
        r"decoders warned 3 times of damaged files, first: Corrupt JPEG data: 4 extraneous bytes \x1b[31m. "
        "unstall doctor names them."
    )


def test_silence_has_no_sentence():
    assert Noise().sentence() is None


def test_pythons_own_standard_error_and_a_traceback_are_still_seen():
    code = (
        "import os, sys\nfrom unstall.pipeline.commands.terminal import decoders_unheard\n"
        "with decoders_unheard():\n"
        "    os.write(2, b'from C')\n    print('from Python', file=sys.stderr)\n    raise SystemExit('the end')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "from Python\nthe end\n")


@pytest.mark.parametrize("form", ["records", "raw"])
def test_materialize_says_once_that_files_are_damaged(form, tmp_path, capfd):
    for name in ("cats", "dogs"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for index in range(4):
            content = bad_files.CONTENTS["extraneous bytes"][1]()
            (tmp_path / "pets" / name / f"{index}.jpg").write_bytes(content)
    assert materialize.main(["--data", str(tmp_path / "pets"), "--out", str(tmp_path / "copy"), "--as", form]) == 0
    printed = " ".join(capfd.readouterr().err.split())
    assert printed.count("Corrupt JPEG data") == 1
    assert "of damaged files, first: Corrupt JPEG data: 221 extraneous bytes before marker 0xd9." in printed


def test_a_copy_that_is_complete_and_cannot_be_read_is_told_so(tmp_path, capfd):
    """Records keep the bytes of files as they are, also of one that nobody can decode."""
    for name in ("cats", "dogs"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for index in range(3):
            Image.new("RGB", (30, 20)).save(tmp_path / "pets" / name / f"{index}.jpg")
    (tmp_path / "pets" / "cats" / "0.jpg").write_bytes(bad_files.CONTENTS["bad Huffman table"][1]())
    code = materialize.main(["--data", str(tmp_path / "pets"), "--out", str(tmp_path / "copy"), "--as", "records"])
    printed = " ".join(capfd.readouterr().err.split())
    assert code == 3 and "Traceback" not in printed
    assert f"records copy: {tmp_path}/copy. It is complete. How fast it is read was not measured: " in printed
    assert open_source(str(tmp_path / "copy")).images == 6


class Frees:
    """Sends the process a signal while Python frees it, where an exception has no caller to go to."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)  # the thread that raises it has it at once


def test_a_signal_that_comes_while_an_object_is_freed_ends_the_run_as_well() -> None:
    def frees() -> None:
        freed = Frees()
        del freed
        time.sleep(60)  # the signal ends the wait

    with pytest.raises(Stopped) as stopped, signals():
        frees()
    assert stopped.value.exit_code == 130
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_that_would_come_again_once_the_block_has_ended_does_not_come() -> None:
    code = (
        "import signal, time\n"
        "from unstall.pipeline.commands.terminal import signals\n"
        "class Frees:\n    def __del__(self): signal.raise_signal(signal.SIGTERM)\n"
        "with signals():\n    freed = Frees()\n    del freed\n"
        "time.sleep(0.1)\nprint('the end')"
    )
    done = run_python(PROJECT_ROOT, "-c", code)
    assert (done.returncode, done.stdout) == (0, "the end\n"), done.stderr
