"""Samples kept in memory: only where they stay the same, shared by workers, and written into the script as measured."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

from tests.checks import INSTALLED, run_python
from tests.profiles.remedies.scripts import loader_of
from unstall.profiles.data import Use, adapter
from unstall.profiles.remedies import reading_twice
from unstall.profiles.remedies.edits import edited
from unstall.profiles.remedies.room import Room
from unstall.profiles.remedies.torch import cache_samples

pytestmark = pytest.mark.needs("torch")

ROOM = Room(calls=2, memory_bytes=1e9, disk_bytes=1e9)


class Rows:
    """Rows that are made with some work."""

    def __init__(self) -> None:
        self.made: list[int] = []
        self.own = np.random.default_rng(0)

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        return np.full((2, 3), index, np.float32), index, index / 2


class ByTorch(Rows):
    def __getitem__(self, index: int) -> Any:
        import torch

        return torch.rand(3)


class ByNumPy(Rows):
    def __getitem__(self, index: int) -> Any:
        return np.random.rand(3)


class ByPython(Rows):
    def __getitem__(self, index: int) -> Any:
        return np.zeros(3) + (random.random() < 0.01)  # in few samples, but the generator moves


class ByItsOwn(Rows):
    def __getitem__(self, index: int) -> Any:
        return np.zeros(3) + (self.own.random() < 1e-9)


class Unseen(Rows):
    def __getitem__(self, index: int) -> Any:
        return np.random.default_rng().random(3)


class Counts(Rows):
    calls = 0

    def __getitem__(self, index: int) -> Any:
        self.calls += 1
        return np.zeros(3)


class Epochs(Rows):
    def set_epoch(self, epoch: int) -> None: ...


class Shapes(Rows):
    def __getitem__(self, index: int) -> Any:
        return np.zeros(index + 1)


class Texts(Rows):
    def __getitem__(self, index: int) -> Any:
        return "text"


@pytest.fixture(autouse=True)
def worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_twice, "_LEAST_NS", 0)
    monkeypatch.setattr(cache_samples, "_LEAST_IN_BATCHES_NS", 0)


def opened(dataset: Any, room: Room = ROOM, **settings: Any) -> Any:
    from torch.utils.data import DataLoader

    loader = DataLoader(dataset, **({"batch_size": 8, "shuffle": True} | settings))
    return adapter(loader).rebuilt(loader, Use(), ["waiting"], room=room)


def why_not(dataset: Any, **settings: Any) -> str:
    data = opened(dataset, **settings)
    assert "cache-samples" not in [remedy.name for remedy in data.remedies]
    [reason] = [one.reason for one in data.untried if one.name == "cache-samples"]
    return str(reason)


@pytest.mark.parametrize(
    ("dataset", "why"),
    [
        (ByTorch(), "making a sample draws random numbers"),
        (ByNumPy(), "making a sample draws random numbers"),
        (ByPython(), "making a sample draws random numbers"),
        (ByItsOwn(), "making a sample draws random numbers"),
        (Unseen(), "samples differ when they are made again"),
        (Counts(), "making a sample changes `calls` of the data"),
        (Epochs(), "the data have `set_epoch`"),
        (Shapes(), "its samples differ in shape or type"),
        (Texts(), "they are of type str"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Rows) else "",
)
def test_samples_that_may_change_are_not_kept(dataset: Any, why: str) -> None:
    assert why in why_not(dataset)


@pytest.mark.parametrize(
    ("use", "why"),
    [
        (Use(changed="rows"), "the script changes `rows` of the data between epochs"),
        (Use(anew=True), "the script makes these data anew each time"),
    ],
    ids=["changed", "made anew"],
)
def test_samples_that_the_script_changes_or_makes_again_between_epochs_are_not_kept(use: Use, why: str) -> None:
    from torch.utils.data import DataLoader

    loader = DataLoader(Rows(), batch_size=8)
    data = adapter(loader).rebuilt(loader, use, ["waiting"], room=ROOM)
    [reason] = [one.reason for one in data.untried if one.name == "cache-samples"]
    assert why in reason


def test_random_states_are_as_they_were_when_samples_were_looked_at() -> None:
    import torch

    def states() -> Any:
        return random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()

    before = states()
    opened(ByTorch())
    opened(Rows())
    assert states() == before


def test_a_cache_has_to_fit_in_memory_and_with_workers_in_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "more than 0 MB of memory" in why_not(Rows(), room=Room(calls=2, memory_bytes=100, disk_bytes=0))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=100))
    assert "shared memory (/dev/shm) that workers may take" in why_not(Rows(), num_workers=2)
    alone = opened(Rows())
    assert not alone.fits(("cache-samples", "workers"))
    assert "shared=False" in str(alone.remedies) or not alone.remedies[0].edits


def test_each_sample_is_made_once_by_all_workers_together_and_is_what_it_was(tmp_path: Path) -> None:
    class Noted(Rows):
        def __getitem__(self, index: int) -> Any:
            with (tmp_path / "made").open("a") as file:
                file.write("x")
            return super().__getitem__(index)

    data = opened(Noted(), num_workers=2)
    (tmp_path / "made").unlink()
    kept = data.built(("cache-samples",), float("inf"))
    epochs = [list(kept) for _ in range(3)]
    assert len((tmp_path / "made").read_text()) == 1 + 40  # the first one tells their shape
    for batches in epochs:
        rows, numbers, halves = zip(*batches, strict=True)
        assert sorted(int(number) for part in numbers for number in part) == list(range(40))
        for part, some in zip(rows, numbers, strict=True):
            assert (part == some[:, None, None]).all()
        assert {part.dtype for part in rows} == {part.dtype for part in [next(iter(data.built((), 1)))[0]]}
        assert {str(part.dtype) for part in halves} == {"torch.float64"}


def test_the_batches_are_those_of_the_script_and_a_part_of_an_epoch_has_the_same_samples_again() -> None:
    data = opened(Rows())
    assert data.compared(("cache-samples",)).effect == "identical"
    [remedy] = [remedy for remedy in data.remedies if remedy.name == "cache-samples"]
    assert remedy.warms_up and remedy.memory_bytes == 40 * (24 + 8 + 8)
    part = data.built(("cache-samples",), 2)
    first, second = ([sorted(batch[1].tolist()) for batch in part] for _ in range(2))
    assert first == second and len(first) == 2


class DrawnOnce(Rows):
    """Draws when it is made, and never again."""

    def __init__(self) -> None:
        super().__init__()
        self.values = np.random.rand(40, 3)

    def __getitem__(self, index: int) -> Any:
        return self.values[index].copy(), index


def test_the_order_of_epochs_is_drawn_as_before_and_what_was_drawn_once_may_be_kept() -> None:
    import torch

    data = opened(DrawnOnce())
    assert "cache-samples" in [remedy.name for remedy in data.remedies]

    def orders(names: tuple[str, ...]) -> list[list[int]]:
        torch.manual_seed(4)
        loader = data.built(names, float("inf"))
        return [[int(number) for batch in loader for number in batch[1]] for _ in range(3)]

    kept = orders(("cache-samples",))
    assert kept == orders(()) and kept[0] != kept[1] != kept[2]


SCRIPT = """
import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, index):
        return {"rows": torch.ones(3) * index, "number": index}


def main():
    torch.manual_seed(5)
    loader = DataLoader(Rows(), batch_size=8, shuffle=True, num_workers=WORKERS)
    for epoch in range(3):
        for batch in loader:
            print(batch["rows"].tolist(), batch["number"], batch["rows"].dtype)
    return loader


if __name__ == "__main__":
    main()
"""


CALL = "loader = DataLoader(Rows(), batch_size=8, shuffle=True, num_workers=WORKERS)"


def edit(script: Path, workers: int) -> str:
    """Writes the script, and returns its text with the edit."""
    script.write_text(SCRIPT.replace("WORKERS", str(workers)))
    loader = loader_of(script)
    data = adapter(loader).rebuilt(loader, Use(), ["waiting"], room=ROOM)
    [remedy] = [remedy for remedy in data.remedies if remedy.name == "cache-samples"]
    assert len(remedy.edits[0].text.splitlines()) <= 30
    return str(edited(script.read_text(), remedy.edits))


def listed(samples: list[Any]) -> dict[str, Any]:
    return {"rows": np.stack([rows for rows, _, _ in samples]), "numbers": [number for _, number, _ in samples]}


def test_what_collates_batches_in_its_own_way_gets_the_samples() -> None:
    data = opened(Rows(), collate_fn=listed)
    assert data.compared(("cache-samples",)).effect == "identical"
    [remedy] = [remedy for remedy in data.remedies if remedy.name == "cache-samples"]
    assert "KeptSamples" in remedy.code and not data.fits(("cache-samples", "whole-batches"))
    for batch in data.built(("cache-samples",), float("inf")):
        assert type(batch["numbers"]) is list and (batch["rows"][:, 0, 0] == np.stack(batch["numbers"])).all()


class Odd(Rows):
    """A sample is unlike the others, and PyTorch makes one type of a batch with it."""

    def __getitem__(self, index: int) -> Any:
        return np.full(3, index, np.float64 if index == 7 else np.float32), index


def test_a_batch_with_a_sample_unlike_those_that_were_looked_at_is_collated_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading_twice, "some_indices", lambda length, most: [0, 1])
    data = opened(Odd(), shuffle=False)
    kept = data.built(("cache-samples",), float("inf"))
    for _ in range(2):
        batches = zip(kept, data.loader, strict=True)
        assert all((one[0] == other[0]).all() and one[0].dtype == other[0].dtype for one, other in batches)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_script_with_the_edit_prints_the_same_batches(workers: int, tmp_path: Path) -> None:
    script, new = tmp_path / "train.py", tmp_path / "edited.py"
    new.write_text(edit(script, workers))
    assert "unstall" not in new.read_text()
    before, after = run_python(tmp_path, script.name), run_python(tmp_path, new.name)
    assert after.returncode == 0, after.stderr
    assert after.stdout == before.stdout and len(before.stdout.splitlines()) == 9


def test_a_script_whose_call_unpacks_arguments_prints_the_same_batches_with_the_edit(tmp_path: Path) -> None:
    script, new = tmp_path / "train.py", tmp_path / "edited.py"
    given = '{"batch_size": 8, "num_workers": 2, "prefetch_factor": 3}'
    call = f"loader = DataLoader(Rows(), shuffle=True, **{given})"
    script.write_text(SCRIPT.replace(CALL, call))
    loader = loader_of(script)
    data = adapter(loader).rebuilt(loader, Use(), ["waiting"], room=ROOM)
    edits = [edit for one in data.remedies if one.name in ("cache-samples", "no-workers") for edit in one.edits]
    new.write_text(edited(script.read_text(), edits))
    assert "KeptRows(Rows(), shared=True)" in new.read_text() and '"num_workers": 0' in new.read_text()
    before, after = run_python(tmp_path, script.name), run_python(tmp_path, new.name)
    assert after.returncode == 0, after.stderr
    assert after.stdout == before.stdout and len(before.stdout.splitlines()) == 9


LIBRARY = """
import functools

from torch.utils.data import DataLoader


def made_from(data):
    return DataLoader(data)


class Loader(DataLoader):
    def __init__(self, data, workers):
        super().__init__(data, num_workers=0)


Loader.__name__ = "DataLoader"


def while_it_asks(function):
    original = DataLoader.__init__

    @functools.wraps(original)
    def noted(self, *arguments, **options):
        original(self, *arguments, **options)

    DataLoader.__init__ = noted
    try:
        return function()
    finally:
        DataLoader.__init__ = original
"""


@pytest.mark.parametrize(
    ("line", "is_written"),
    [
        ("return while_it_asks(lambda: DataLoader(Rows()))", True),
        ("return made_from(Rows())", False),
        ("return DataLoader(Rows(), 8)", False),
    ],
    ids=["the script's own call", "a library's call", "a library's class"],
)
def test_an_edit_goes_into_the_scripts_call_also_where_a_library_stands_before_the_class(
    line: str, is_written: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "site-packages" / "asks.py"
    library.parent.mkdir()
    library.write_text(LIBRARY)
    monkeypatch.syspath_prepend(library.parent)
    head, _, _ = SCRIPT.partition("    torch.manual_seed(5)")
    script = tmp_path / "train.py"
    others = "\nfrom asks import Loader as DataLoader\n" if "8" in line else ""
    script.write_text(
        f"from asks import made_from, while_it_asks\n{head.replace('class Rows', f'{others}class Rows')}    {line}\n"
    )
    loader = loader_of(script)
    data = adapter(loader).rebuilt(loader, Use(), ["waiting"], room=ROOM)
    [remedy] = [remedy for remedy in data.remedies if remedy.name == "cache-samples"]
    assert bool(remedy.edits) is is_written
    assert not is_written or "DataLoader(KeptRows(Rows(), shared=True)" in edited(script.read_text(), remedy.edits)


TWO = "loader, other = [DataLoader(rows, batch_size=8) for rows in (Rows(), Drawn())]"
DRAWN = "class Drawn(Rows):\n    def __getitem__(self, index):\n        return torch.rand(3)\n\n\ndef main"
TWO_LOADERS = SCRIPT.replace(CALL, TWO).replace("def main", DRAWN)
READS_ATTRIBUTES = SCRIPT.replace("    return loader", "    print(len(loader.dataset.__dict__))\n    return loader")
READS_SAMPLES = SCRIPT.replace("    return loader", "    for rows in loader.dataset:\n        break\n    return loader")
PASSES_ON = SCRIPT.replace("def main", "def other(loader):\n    return DataLoader(loader.dataset)\n\n\ndef main")
MORE_THAN_LENGTH = {
    "two data sets": TWO_LOADERS,
    "reads attributes": READS_ATTRIBUTES,
    "reads samples": READS_SAMPLES,
    "passes it on": PASSES_ON,
}


def test_samples_of_all_data_sets_of_one_call_are_kept_where_all_stay_the_same(tmp_path: Path) -> None:
    script, new = tmp_path / "train.py", tmp_path / "edited.py"
    text = TWO_LOADERS.replace("Drawn()", "Rows()").replace("in loader:", "in [*loader, *other]:")
    script.write_text(text.replace("    return loader", "    loader.other = other\n    return loader"))
    loader = loader_of(script)
    data = adapter(loader).rebuilt(loader, Use(), ["waiting"], room=ROOM)
    [remedy] = [remedy for remedy in data.remedies if remedy.name == "cache-samples"]
    assert remedy.memory_bytes == 2 * 20 * (12 + 8)
    new.write_text(edited(script.read_text(), remedy.edits))
    before, after = run_python(tmp_path, script.name), run_python(tmp_path, new.name)
    assert after.returncode == 0 and after.stdout == before.stdout and len(before.stdout.splitlines()) == 18


def test_the_length_of_the_data_set_and_other_things_of_that_name_may_be_read(tmp_path: Path) -> None:
    lines = "    names = type('Names', (), {'dataset': 'mine'})\n    print(len(loader.dataset), names.dataset)\n"
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("WORKERS", "0").replace("    return loader", f"{lines}    return loader"))
    loader = loader_of(script)
    data = adapter(loader).rebuilt(loader, Use(), ["waiting"], room=ROOM)
    [remedy] = [remedy for remedy in data.remedies if remedy.name == "cache-samples"]
    assert remedy.edits


@pytest.mark.parametrize("text", MORE_THAN_LENGTH.values(), ids=MORE_THAN_LENGTH)
def test_no_edit_is_written_where_it_would_hit_more_than_these_samples(text: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(text.replace("WORKERS", "0"))
    loader = loader_of(script)
    data = adapter(loader).rebuilt(loader, Use(), ["waiting"], room=ROOM)
    [remedy] = [remedy for remedy in data.remedies if remedy.name == "cache-samples"]
    assert remedy.edits == () and remedy.place is not None


def test_data_are_looked_at_only_for_the_remedies_that_are_asked_for() -> None:
    class Noted(Rows):
        read = 0

        def __getitem__(self, index: int) -> Any:
            type(self).read += 1
            return super().__getitem__(index)

    from torch.utils.data import DataLoader

    loader = DataLoader(Noted(), batch_size=8)
    data = adapter(loader).rebuilt(loader, Use(), ["waiting"], room=ROOM, only=("more-ready",))
    assert data.remedies == () and Noted.read == 0


def test_epochs_that_a_part_of_the_data_is_told_are_found() -> None:
    from torch.utils.data import ConcatDataset

    assert "the data have `set_epoch`" in why_not(ConcatDataset([Rows(), Epochs()]))


def test_a_generator_without_a_state_is_no_hindrance() -> None:
    class Holds(Rows):
        def __init__(self) -> None:
            super().__init__()
            self.system = random.SystemRandom()
            self.other = np.random.Generator(np.random.Philox(3))

    assert "cache-samples" in [remedy.name for remedy in opened(Holds()).remedies]


@pytest.mark.parametrize("context", ["forkserver", "spawn"])
def test_workers_that_are_not_forked_share_the_samples_too(context: str, tmp_path: Path) -> None:
    script, new = tmp_path / "train.py", tmp_path / "edited.py"
    others = f"num_workers=2, multiprocessing_context={context!r}"
    new.write_text(edit(script, 0).replace("num_workers=0", others))
    script.write_text(script.read_text().replace("num_workers=0", others))
    before, after = run_python(tmp_path, script.name), run_python(tmp_path, new.name)
    assert after.returncode == 0, after.stderr
    assert after.stdout == before.stdout and len(before.stdout.splitlines()) == 9


@pytest.mark.parametrize("ends", ["an error", "SIGINT", "SIGTERM", "SIGKILL"])
def test_nothing_stays_in_shared_memory_however_the_script_ends(ends: str, tmp_path: Path) -> None:
    new = tmp_path / "edited.py"
    # Files of other programs may come and go meanwhile.
    waits = "raise ValueError" if ends == "an error" else "__import__('time').sleep(60)"
    text = edit(tmp_path / "train.py", 2).replace("torch.ones(3)", "torch.ones(100_000)")
    text = text.replace('print(batch["rows"].tolist(), batch["number"], batch["rows"].dtype)', "pass")
    new.write_text(text.replace("    return loader", f"        print('read', flush=True); {waits}"))
    before = set(Path("/dev/shm").iterdir())
    with subprocess.Popen(
        [sys.executable, new.name], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "read\n"
        workers = psutil.Process(process.pid).children(recursive=True)
        if ends != "an error":
            process.send_signal(getattr(signal, ends))
        process.wait(timeout=60)
        psutil.wait_procs(workers, timeout=60)
    assert not [path.name for path in set(Path("/dev/shm").iterdir()) - before if path.name.startswith("torch_")]
    assert not [worker for worker in workers if worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE]


def test_a_container_with_little_shared_memory_is_a_limit(tmp_path: Path) -> None:
    code = """
import numpy as np
from torch.utils.data import DataLoader
from unstall.profiles.data import Use, adapter
from unstall.profiles.remedies import reading_twice
from unstall.profiles.remedies.room import Room
from unstall.profiles.remedies.torch import cache_samples
reading_twice._LEAST_NS = cache_samples._LEAST_IN_BATCHES_NS = 0
class Rows:
    def __len__(self):
        return 40
    def __getitem__(self, index):
        return np.full(1_000_000, index, np.uint8)
for workers in (0, 2):
    room = Room(calls=2, memory_bytes=1e9, disk_bytes=1e9)
    data = adapter(loader := DataLoader(Rows(), num_workers=workers)).rebuilt(loader, Use(), ["waiting"], room=room)
    print([one.name for one in data.remedies if "cache" in one.name], [one.reason for one in data.untried])
    print(data.fits(("cache-samples", "workers")))
"""
    (tmp_path / "look.py").write_text(code)
    mounts = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$@"', "sh"]
    if shutil.which("unshare") is None or subprocess.run([*mounts, "true"], capture_output=True).returncode:
        pytest.skip("this user may mount nothing")
    shown = subprocess.run(
        [*mounts, sys.executable, "look.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(INSTALLED)},
    )
    assert shown.returncode == 0, shown.stderr
    alone, its_fit, shared, _ = shown.stdout.splitlines()
    assert (alone, its_fit) == ("['cache-samples'] []", "False")
    assert shared.startswith("[] ['its samples have 40 MB, more than 3") and "(/dev/shm)" in shared
