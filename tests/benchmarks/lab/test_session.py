"""The child's side of cold rows: a planted storage is found, whatever goes wrong is said, and files are left warm."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest

from tests import PROJECT_ROOT
from tests.checks import samples_of
from tests.planted import IMAGES, Sleeper, a_batch, a_model, emulated, planted
from unstall.benchmarks.lab import session
from unstall.benchmarks.lab.backend import Refused
from unstall.benchmarks.lab.session import Job, Session
from unstall.pipeline.building import Loader
from unstall.pipeline.sources.arrays import from_arrays
from unstall.pipeline.sources.folder import from_folder
from unstall.pipeline.variants import VARIANTS
from unstall.profiles.devices import parse_device
from unstall.profiles.machine.page_cache import PageCacheError, StorageRates, cached_ratio
from unstall.profiles.measure.windows import Windows
from unstall.profiles.results.result import summarise
from unstall.profiles.results.subject import Subject

STEPS = 20
CPU = parse_device("cpu")


class OnStorage(keras.utils.PyDataset):
    """Each batch is a file: to prepare it takes 8 ms, and to read it 12 ms more while it is not cached."""

    def __init__(self) -> None:
        super().__init__()
        self.prepare, self.storage = Sleeper(8), Sleeper(12)
        self.cached: set[int] = set(range(STEPS))

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        if index not in self.cached:
            self.storage()
            self.cached.add(index)
        self.prepare()
        return a_batch()


def a_job(data: keras.utils.PyDataset, windows: Windows, paths: list[str]) -> session.Measured:
    record = SimpleNamespace(workers=data.workers)
    loader = Loader(data=data, images=STEPS * IMAGES, batches=STEPS, parallel_batches=data.workers, record=record)
    ceiling = session._Ceiling(windows=windows, bare=None, batches=[a_batch()], steps=STEPS, traced=set())
    return session.Measured(loader, loader.data, paths, windows, ceiling, epochs=1)


def a_session(measured: session.Measured) -> tuple[Session, Job]:
    job = Job(variant="planted", config=VARIANTS["py-dataset"], model="m", cold=True)
    one = Session(measured.windows.device, from_arrays(np.zeros((2, 8, 8, 3), np.uint8), np.array([0, 1])))
    one._jobs[job] = measured
    return one, job


@pytest.mark.long
@planted
def test_a_planted_storage_is_found_as_waiting_for_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    data = OnStorage()
    monkeypatch.setattr(session, "drop", lambda paths: data.cached.clear())
    monkeypatch.setattr(session, "left_warm", lambda paths: contextlib.nullcontext())
    device = emulated(5)
    one, job = a_session(a_job(data, Windows(a_model(), device), []))
    samples = [one.window(job, window, number) for number in range(3) for window in ("resident", "train", "cold")]
    subject = Subject(variant="planted", model="m", device=device, batch_size=IMAGES)
    warm = summarise(subject, samples, typical_canary_ns=10**9).attribution.seconds_per_image
    cold = summarise(replace(subject, page_cache="cold"), samples, typical_canary_ns=10**9).attribution
    ms_per_batch = {part: None if s is None else s * IMAGES * 1e3 for part, s in cold.seconds_per_image.items()}
    assert ms_per_batch["fetch_stall"] == pytest.approx(data.storage.take_ms(), rel=0.15)
    assert ms_per_batch["compute"] == pytest.approx(5, rel=0.2)
    assert warm["fetch_stall"] is None
    assert cold.seconds_per_image.prep_stall == pytest.approx(warm["prep_stall"], abs=1.5e-4)


def test_a_cold_window_is_one_epoch_after_the_pages_were_dropped(monkeypatch: pytest.MonkeyPatch, photos: Path) -> None:
    paths = from_folder(photos).paths
    data = OnStorage()
    data.prepare = data.storage = lambda: None
    measured = a_job(data, Windows(a_model(), emulated(1)), paths)
    measured.epochs = 3
    one, job = a_session(measured)
    seen = []
    monkeypatch.setattr(session, "drop", lambda dropped: seen.append(("dropped", dropped)))
    real = measured.windows.train
    monkeypatch.setattr(measured.windows, "train", lambda *a, **k: (seen.append(("trained", k)), real(*a, **k))[1])
    sample = one.window(job, "cold", 4)
    assert (sample.window, sample.round, sample.epochs, sample.epoch_images) == ("cold", 4, 1, STEPS * IMAGES)
    # Without the two batches that Keras has read before.
    assert seen == [
        ("dropped", paths),
        ("trained", {"epochs": 1, "ramp_steps": 3, "round_": 4, "window": "cold"}),
    ]
    assert sample.images == (STEPS - 3) * IMAGES


@pytest.mark.parametrize("variant", ["tf-data-composed", "py-dataset"])
@pytest.mark.parametrize("cores", [pytest.param(2, marks=pytest.mark.slow), 16])
def test_an_epoch_has_twenty_steady_steps_whatever_the_cores(
    monkeypatch: pytest.MonkeyPatch, variant: str, cores: int
) -> None:
    """Workers that begin an epoch at once hand their first batches over at once; those do not count."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(cores)))
    labels = np.arange(1600, dtype=np.int32) % 2
    source = from_arrays(np.zeros((1600, 8, 8, 3), np.uint8), labels, class_names=("cats", "dogs"))
    config = replace(VARIANTS[variant], batch_size=8, workers=cores)
    job = Job(variant=variant, config=config, model="cats-dogs-64")
    opened = Session(parse_device("emulated:20000"), source)
    opened.open_model("cats-dogs-64", 8)
    try:
        facts = opened.prepare(job, 24 * 8)
        sample = opened.window(job, "train", 0)
    finally:
        opened.close()
    assert len(sample.step_ns) // sample.epochs >= 20
    assert facts.images == sample.epoch_images // sample.epochs


def test_a_model_that_cannot_be_opened_is_refused_without_its_folder() -> None:
    one = Session(parse_device("emulated:20000"), from_arrays(np.zeros((2, 8, 8, 3), np.uint8), np.array([0, 1])))
    with pytest.raises(Refused, match=r"^net\.keras does not exist\.$"):
        one.open_model("net.keras", 8, "/nowhere/net.keras")


def test_pages_that_cannot_be_dropped_are_a_refusal_and_files_are_left_warm(
    monkeypatch: pytest.MonkeyPatch, photos: Path
) -> None:
    paths = from_folder(photos).paths

    def half(dropped: list[str]) -> float:
        for path in dropped[::2]:
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)
        raise PageCacheError("50% of the files stay in the page cache")

    monkeypatch.setattr(session, "drop", half)
    one, job = a_session(a_job(OnStorage(), Windows(a_model(), emulated(1)), paths))
    with pytest.raises(Refused, match="^50% of the files stay in the page cache$"):
        one.window(job, "cold", 0)
    assert cached_ratio(paths) == 1


@pytest.mark.parametrize(
    ("variant", "changes", "reason"),
    [
        ("generator", {}, None),
        ("tf-data", {}, None),
        ("tf-data", {"location": "ram"}, "its files lie on a RAM disk"),
        ("tf-data", {"cache": "memory"}, "it reads the files once and then its cache in memory"),
        ("tf-data", {"cache": "disk"}, "it reads the files once and then its cache on disk"),
        ("tf-data", {"storage": "records"}, "it reads a prepared copy, not the photos"),
    ],
)
def test_only_what_reads_files_in_each_epoch_can_be_cold(
    photos: Path, variant: str, changes: dict[str, str], reason: str | None
) -> None:
    config = replace(VARIANTS[variant], **changes)
    assert session._why_warm_only(config, from_folder(photos)) == reason
    arrays = from_arrays(np.zeros((2, 8, 8, 3), np.uint8), np.array([0, 1]))
    assert session._why_warm_only(config, arrays) == "its images are in memory"


@pytest.mark.parametrize(
    "answer", ["only Linux tells", StorageRates(cold_bytes_per_sec=1.0, warm_bytes_per_sec=2.0, bytes_per_file=3.0)]
)
def test_the_storage_is_measured_once(monkeypatch: pytest.MonkeyPatch, answer: str | StorageRates) -> None:
    asked = []

    def measure(paths: list[str]) -> StorageRates:
        asked.append(paths)
        if isinstance(answer, str):
            raise PageCacheError(answer)
        return answer

    monkeypatch.setattr(session, "measure_storage", measure)
    one = Session(CPU, from_arrays(np.zeros((2, 8, 8, 3), np.uint8), np.array([0, 1])))
    assert [one._storage_of(["a"]), one._storage_of(["b"])] == [answer, answer]
    assert asked == [["a"]]


@pytest.mark.claims  # 26 s: a main job
def test_the_main_job_has_a_cold_row_beside_each_warm_one_that_reads_files(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["--cold", "--data", photos, "--variants", "tf-data-autotune,tf-data-cache", "--device", "emulated:400"]
    words += ["--rounds", "2", "--batch-size", "4", "--out", out]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.pipeline", *map(str, words)],
        cwd=PROJECT_ROOT,
        env={**os.environ, "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads((out / "results.json").read_text())
    left_out = {one["who"].partition(" (")[0]: one["reason"] for one in document["left_out"]}
    assert left_out.pop("tf-data-cache, cold") == "it reads the files once and then its cache in memory"
    if left_out and all("stay in the page cache" in reason for reason in left_out.values()):
        pytest.skip(f"the photos' pages cannot be dropped here: {left_out}")
    assert left_out == {}
    rows = [(one["variant"], one["page_cache"]) for one in document["results"]]
    assert rows == [
        ("tf-data-autotune", "warm"),
        ("tf-data-autotune", "cold"),
        ("tf-data-cache", "warm"),
    ]
    assert [(one["variant"], one["page_cache"]) for one in document["verdicts"]] == rows
    for one in document["results"]:
        shares = one["attribution"]
        assert sum(share for share in shares.values() if share is not None) == pytest.approx(1, abs=1e-9)
        windows = {sample["window"] for sample in samples_of(document, one)}
        if one["page_cache"] == "warm":
            assert shares["fetch_stall"] is None
            assert windows >= {"warmup", "resident", "loader", "train"}
            assert one["read_bytes_per_sec"] is None
        else:
            assert shares["fetch_stall"] is not None
            assert windows >= {"resident", "train", "cold"}
            rates = sorted(s["images"] / s["wall_ns"] * 1e9 for s in samples_of(document, one) if s["window"] == "cold")
            assert len(rates) == 2
            assert rates[0] <= one["images_per_sec"] <= rates[1]
            assert one["read_bytes_per_sec"]["cold"] > 0 and one["read_bytes_per_sec"]["warm"] > 0
            sizes = [path.stat().st_size for path in photos.glob("*/*")]
            assert one["bytes_per_image"] == pytest.approx(np.mean(sizes))
    assert "tf-data-autotune, cold " in done.stdout
    assert "the page cache hides" in " ".join(done.stdout.split())
    assert "LEFT OUT tf-data-cache, cold (cats-dogs-64, emulated:400)" in " ".join(done.stdout.split())
    assert "tf-data-autotune, cold" in (out / "report.html").read_text()
    assert list(out.glob("*.log")) == []


@pytest.mark.long
@pytest.mark.parametrize("one_iterator", [False, True])
def test_a_job_is_measured_over_whole_epochs_with_one_iterator_or_with_several(
    one_iterator: bool, photos: Path
) -> None:
    held = Session(parse_device("emulated:2000"), from_folder(photos))
    config = replace(VARIANTS["tf-data-autotune"], batch_size=16, one_iterator=one_iterator)
    job = Job(variant="repeated", config=config, model="cats-dogs-64")
    held.open_model(job.model, 16)
    try:
        facts = held.prepare(job, 40)
        assert facts.images == 40 and facts.warmup.epoch_images == 40
        for window in ("loader", "train"):
            sample = held.window(job, window, 0)
            assert (sample.epochs, sample.epoch_images) == (facts.epochs, 40 * facts.epochs)
    finally:
        held.close()


class ServiceThatCounts:
    """Stands in for a loader's service: notes when its job ends."""

    def __init__(self, events: list[str]) -> None:
        self.client = SimpleNamespace(close=lambda: events.append("ended"))


def test_a_service_makes_no_batches_in_the_windows_of_others():
    events: list[str] = []

    def epoch() -> Any:
        events.append("an epoch that is not measured")
        yield from ()

    loader = SimpleNamespace(service=ServiceThatCounts(events), data=epoch())
    with session._service_runs(loader):
        events.append("the window")
    assert events == ["an epoch that is not measured", "the window", "ended"]


def test_a_gpu_that_is_not_there_is_refused() -> None:
    source = from_arrays(np.zeros((4, 8, 8, 3), np.uint8), np.arange(4) % 2)
    with pytest.raises(Refused, match="there is no GPU that Keras can use here"):
        Session(parse_device("gpu"), source).backend()
