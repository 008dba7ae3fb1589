"""The command that docs/extending.md shows works: its code is taken out of the document and run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests import PROJECT_ROOT

DOCUMENT = (PROJECT_ROOT / "docs" / "extending.md").read_text()


def nap(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{PROJECT_ROOT}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_command_that_it_shows_measures_writes_and_is_shown_again(tmp_path: Path) -> None:
    (code,) = re.findall(r"<!-- nap.py -->\n```python\n(.*?)```\n<!-- /nap.py -->", DOCUMENT, flags=re.DOTALL)
    (tmp_path / "nap.py").write_text(code)
    measured = nap(tmp_path, "nap.py", "--nap", "0.02", "--rounds", "2", "--out", "out")
    assert measured.returncode == 0, measured.stderr
    first = measured.stdout.splitlines()[0]
    assert re.fullmatch(r"2 naps, 0\.\d{3} s", first)
    content = json.loads((tmp_path / "out" / "results.json").read_text())
    assert content["complete"] and min(content["samples"]["naps_ns"]) >= 20_000_000
    assert (tmp_path / "out" / "report.html").is_file()
    show = "from nap import KIND; from unstall.profiles.report import show; show.main(['show', 'out'], {'nap': KIND})"
    assert nap(tmp_path, "-c", show).stdout.splitlines() == [first]
    second = nap(tmp_path, "nap.py", "--out", "out")
    assert second.returncode == 2 and "holds results.json already" in second.stderr
    refused = nap(tmp_path, "nap.py", "--nap", "11")
    assert (refused.returncode, refused.stdout) == (2, "") and "--nap must be" in refused.stderr
