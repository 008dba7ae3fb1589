"""No command talks to anybody: every call to the network of a whole run, children included, is traced."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from tests import PROJECT_ROOT

# A call that names whom it talks to, on the internet. Sockets within the machine have no such name, or loopback's.
_SPOKEN = re.compile(r"(?:connect|sendto|sendmsg|sendmmsg)\(.*?sa_family=AF_INET6?, .*")
_LOOPBACK = re.compile(r'inet_addr\("127\.|"::1"|inet_pton\(AF_INET6, "::1"')
# A resolver within the machine passes on what it is asked.
_NAME_ASKED = re.compile(r"sin6?_port=htons\(53\)")

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="no strace here")


def spoken(words: list[str], folder: pathlib.Path) -> list[str]:
    """Runs Python and returns the calls that reached beyond this machine."""
    log = folder / "strace.log"
    # As a user has it: nothing of the tests' own quiets a library.
    environment = {key: value for key, value in os.environ.items() if key != "NO_ALBUMENTATIONS_UPDATE"}
    environment |= {"UNSTALL_CACHE": str(folder / "cache"), "PYTHONPATH": str(PROJECT_ROOT)}
    trace = f"strace -f --seccomp-bpf -qq -e trace=network -e signal=none -o {log}".split()
    words = [*trace, sys.executable, *words]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=500, check=False)
    if "ptrace" in done.stderr and "not permitted" in done.stderr:
        pytest.skip("strace may not trace here")
    assert done.returncode == 0, done.stderr[-2000:]
    calls = [line for line in log.read_text().splitlines() if _SPOKEN.search(line)]
    return [line for line in calls if _NAME_ASKED.search(line) or not _LOOPBACK.search(line)]


def test_the_trace_sees_who_is_called(tmp_path):
    call = (
        "import os, socket, sys\n"
        "if os.fork() == 0:\n"
        "    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "    one.setblocking(False)\n"
        "    one.connect_ex(('192.0.2.1', 9))\n"  # a network that is nobody's: RFC 5737
        "    os._exit(0)\n"
        "os.wait()\n"
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('127.0.0.1', 9))\n"
    )
    [line] = spoken(["-c", call], tmp_path)
    assert "192.0.2.1" in line


@pytest.mark.parametrize(("family", "address"), [("AF_INET", "127.0.0.53"), ("AF_INET6", "::1")])
def test_the_trace_sees_a_resolver_of_this_machine(family, address, tmp_path):
    call = f"import socket; socket.socket(socket.{family}, socket.SOCK_DGRAM).connect_ex(({address!r}, 53))"
    [line] = spoken(["-c", call], tmp_path)
    assert address in line


def test_the_trace_sees_that_a_name_is_asked_for(tmp_path):
    call = "import contextlib, socket\nwith contextlib.suppress(OSError):\n    socket.getaddrinfo('example.org', 80)\n"
    assert any("htons(53)" in line for line in spoken(["-c", call], tmp_path))


@pytest.mark.long
def test_albumentations_asks_for_no_newer_release(tmp_path):
    """Nor where it is imported by a loader in somebody's own program."""
    code = "from unstall.pipeline.augmentation import Augmentation\nfrom unstall.pipeline.stages.warp import WARPS\n"
    assert spoken(["-c", code + "WARPS['albumentations'](Augmentation())"], tmp_path) == []


@pytest.mark.claims
def test_a_script_that_was_written_for_albumentations_asks_for_none(photos, tmp_path):
    from unstall.pipeline import PipelineConfig, from_folder
    from unstall.pipeline.export import export

    (tmp_path / "tuned.py").write_text(export(PipelineConfig(augment_with="albumentations"), from_folder(photos)))
    assert spoken(["-c", "import tuned"], tmp_path) == []


RUNS = {
    "doctor": ["benchmarks.doctor", "--data", "PHOTOS", "--out", "out"],
    "pipeline": ["benchmarks.pipeline", "--variants", "generator,py-dataset-albumentations,tf-data", "--rounds", "1"],
    "augmentation": ["benchmarks.evidence.augmentation", "--operations", "flip", "--rounds", "1", "--image-size", "32"],
    "materialize": ["unstall", "materialize", "--data", "PHOTOS", "--out", "copy", "--as", "raw"],
    "tune": ["benchmarks.tune", "--budget", "5"],
}
# The tuner takes minutes for what it cannot do in less.
_MARKS = {"materialize": (), "tune": pytest.mark.slow}


@pytest.mark.long
@pytest.mark.parametrize("name", [pytest.param(name, marks=_MARKS.get(name, pytest.mark.claims)) for name in RUNS])
def test_a_whole_run_talks_to_nobody(name, photos, tmp_path):
    words = [str(photos) if word == "PHOTOS" else word for word in RUNS[name]]
    if "PHOTOS" not in RUNS[name]:
        words += ["--data", str(photos), "--out", "out"]
    assert spoken(["-m", *words], tmp_path) == []
