"""Worker processes of Keras that wait for ever on TensorFlow's garbage: kept from it, named, and ended by one line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import PROJECT_ROOT
from tests.checks import SHORT_PROFILES, run_python
from unstall import forks

pytestmark = pytest.mark.long

SCRIPT = PROJECT_ROOT / "docs" / "examples" / "two_fits.py"
TRAININGS = [f"trained {attempt}" for attempt in range(1, 7)]
# The arguments of the script, and whether it may wait for ever.
KINDS = pytest.mark.parametrize(("arguments", "hangs"), [((), True), (("mended",), False)], ids=["as it is", "mended"])


def test_the_example_has_the_line() -> None:
    assert forks.LINE in SCRIPT.read_text()


@KINDS
def test_a_script_whose_workers_may_hang_is_profiled_to_its_end_and_warned(
    arguments: tuple[str, ...], hangs: bool, tmp_path: Path
) -> None:
    of_three = SCRIPT.read_text().replace("range(6)", "range(3)")
    assert of_three != SCRIPT.read_text()
    (tmp_path / "fits.py").write_text(of_three)
    done = run_python(tmp_path, "-c", SHORT_PROFILES, "--no-ceilings", "--out", "out", "fits.py", *arguments)
    assert done.returncode == 0, done.stderr[-3000:]
    assert [line for line in done.stdout.splitlines() if line.startswith("trained")] == TRAININGS[:3]
    verdicts = json.loads((tmp_path / "out" / "results.json").read_text())["verdicts"]
    texts = [finding["text"] for verdict in verdicts for finding in verdict["findings"]]
    assert any("each of its 4 worker processes is forked" in text for text in texts) is hangs
    assert ("Without unstall training may hang" in done.stderr) is hangs


@pytest.mark.claims
@KINDS
def test_a_script_alone_hangs_without_the_line_and_ends_with_it(
    arguments: tuple[str, ...], hangs: bool, tmp_path: Path
) -> None:
    command = [sys.executable, str(SCRIPT), *arguments]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            printed, _ = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            printed, _ = process.communicate()
    assert printed.startswith("trained 1\n")
    assert (printed.splitlines() != TRAININGS) is hangs
