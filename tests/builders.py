"""What tests are fed: samples, results and reports of made-up measurements, and the batches that `fit` hands over.

Over 400 lines: one function for each kind of result, so that no test module imports another.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from unstall.benchmarks.accuracy.plan import Asked as AccuracyAsked
from unstall.benchmarks.accuracy.plan import Run
from unstall.benchmarks.accuracy.report import AccuracyDocument
from unstall.benchmarks.accuracy.samples import EndedRun, ScriptCount, TestedPass, Trained
from unstall.benchmarks.accuracy.samples import Measurements as AccuracyMeasurements
from unstall.benchmarks.devices.experiments import Case, arrays
from unstall.benchmarks.devices.fewer_bits.plan import Asked as BitsAsked
from unstall.benchmarks.devices.fewer_bits.results import FewerBitsDocument
from unstall.benchmarks.devices.fewer_bits.samples import MeasuredWay
from unstall.benchmarks.devices.fewer_bits.samples import Measurements as BitsMeasurements
from unstall.benchmarks.devices.fewer_bits.samples import Window as BitsWindow
from unstall.benchmarks.devices.flops import Work
from unstall.benchmarks.devices.parser import parser
from unstall.benchmarks.devices.peak import Peak
from unstall.benchmarks.devices.plan import read_plan
from unstall.benchmarks.devices.report import DevicesDocument
from unstall.benchmarks.devices.report import Measurements as DevicesMeasurements
from unstall.benchmarks.devices.results import USED, CaseResult, case_result_of
from unstall.benchmarks.devices.samples import CaseFacts, Epoch, MeasuredCase
from unstall.benchmarks.doctor.plan import Asked as DoctorAsked
from unstall.benchmarks.doctor.report import DoctorDocument
from unstall.benchmarks.doctor.results import Examination, ExaminedFile, Finding
from unstall.benchmarks.gate.plan import AskedCheck, AskedComparisons, Question
from unstall.benchmarks.gate.results import CheckDocument as GateCheckDocument
from unstall.benchmarks.gate.results import ComparisonsDocument, baseline_of
from unstall.benchmarks.gate.samples import INSPECTED, ComparisonSamples, Process
from unstall.benchmarks.gate.samples import CheckSamples as GateCheckSamples
from unstall.benchmarks.gate.samples import Measurement as GateMeasurement
from unstall.benchmarks.pipeline.sweep.plan import Asked as SweepAsked
from unstall.benchmarks.pipeline.sweep.samples import MeasuredPlace, SweepDocument
from unstall.benchmarks.pipeline.sweep.samples import Measurements as SweepMeasurements
from unstall.benchmarks.service.plan import Asked as ServiceAsked
from unstall.benchmarks.service.planning.model import Hosts
from unstall.benchmarks.service.planning.plan import Asked as PlanAsked
from unstall.benchmarks.service.planning.results import PlanDocument
from unstall.benchmarks.service.planning.samples import Constants, Costs, CutCosts, Trainer
from unstall.benchmarks.service.planning.samples import Measurements as PlanMeasurements
from unstall.benchmarks.service.results import ServiceDocument
from unstall.benchmarks.service.samples import MeasuredService, WorkerWindow
from unstall.benchmarks.service.samples import Measurements as ServiceMeasurements
from unstall.benchmarks.service.samples import Window as ServiceWindow
from unstall.benchmarks.trainers.plan import Asked as TrainersAsked
from unstall.benchmarks.trainers.results import TrainersDocument
from unstall.benchmarks.trainers.samples import Measurements as TrainersMeasurements
from unstall.benchmarks.trainers.samples import ProcessEpoch
from unstall.benchmarks.tune.exactness import Exactness
from unstall.benchmarks.tune.own.report import AdviceDocument
from unstall.benchmarks.tune.plan import AdviceAsked, Limits
from unstall.benchmarks.tune.plan import Asked as SearchAsked
from unstall.benchmarks.tune.results import AUTOTUNE, HEURISTIC, NAIVE, SearchDocument
from unstall.benchmarks.tune.samples import MeasuredPipeline, MeasuredStage, OrderSamples, SearchSamples
from unstall.benchmarks.tune.samples import Subject as PipelineSubject
from unstall.pipeline.address import NO_SERVICE
from unstall.pipeline.config import PipelineConfig
from unstall.pipeline.cost_model import Consumer, Prediction, StageCost
from unstall.pipeline.service.account import Account, WorkerFacts
from unstall.pipeline.variants import VARIANTS
from unstall.profiles.data import Use, adapter
from unstall.profiles.devices import CPU, Device, parse_device
from unstall.profiles.gate import MOST_PROCESSES, RECORDED, Invariants
from unstall.profiles.machine.page_cache import StorageRates
from unstall.profiles.machine.telemetry import Mark, Trace
from unstall.profiles.measure.epochs import EpochRecord
from unstall.profiles.remedies import AS_WRITTEN, Remedy, Trial, Untried
from unstall.profiles.remedies.data import Data
from unstall.profiles.remedies.remedy import Effect, Need
from unstall.profiles.remedies.room import Room
from unstall.profiles.remedies.trial import Contender
from unstall.profiles.report.document import SCHEMA_VERSION, Document, LeftOut
from unstall.profiles.report.measurements import PIPELINE, MeasurementDocument, Measurements
from unstall.profiles.report.measurements import Measurement as SubjectMeasurement
from unstall.profiles.report.measurements import Plan as MeasurementPlan
from unstall.profiles.report.writing_files import to_json
from unstall.profiles.results.attribution import Attribution
from unstall.profiles.results.parts import PARTS, Parts
from unstall.profiles.results.result import Result, summarise
from unstall.profiles.results.subject import Subject
from unstall.profiles.results.verdict import judge
from unstall.profiles.samples import Sample
from unstall.profiles.stage_table import Stage, StageTable, tail_of
from unstall.profiles.stages.places import Place

PROVENANCE: Mapping[str, Any] = {
    "cpu": "a processor",
    "usable_cores": 2.0,
    "memory_bytes": 2**33,
    "packages": {"keras": "3.15.1", "jax": "unknown"},
    "threads": {"inter_op": 2},
    "command": ["pipeline.py"],
}
DATASET: Mapping[str, Any] = {
    "kind": "folder",
    "name": "photos",
    "images": 100,
    "skipped": 0,
    "skipped_files": [],
    "fingerprint": "abc123",
}


def _document_of(command: str, plan: Any, samples: Any, /, **changes: Any) -> Any:
    """Returns the complete document of a command."""
    values: dict[str, Any] = {
        "command": command,
        "created": "2026-01-02T03:04:05+00:00",
        "complete": True,
        "provenance": PROVENANCE,
        "plan": plan,
        "dataset": DATASET,
        "samples": samples,
    }
    return Document(**(values | changes))


def fed(data: object, epochs: int = 1) -> list[list[tuple[np.ndarray, np.ndarray]]]:
    """Returns the batches that Keras' own `fit` hands to a train function, by epoch, in order."""
    import keras

    batches_by_epoch = []

    class Epochs(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            batches_by_epoch.append([])

    def train_function(iterator):
        images, labels = next(iterator)
        batches_by_epoch[-1].append((images.numpy(), labels.numpy()))
        return {}

    layers = [keras.Input((None, None, 3)), keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile(loss="mse")
    model.train_function = train_function
    # shuffle=False: otherwise `fit` shuffles a PyDataset's batches.
    model.fit(data, epochs=epochs, verbose=0, shuffle=False, callbacks=[Epochs()])
    return batches_by_epoch


def whole(batches: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Returns all images and all labels of an epoch's batches, as two arrays."""
    return np.concatenate([images for images, _ in batches]), np.concatenate([labels for _, labels in batches])


def unit(images: np.ndarray) -> np.ndarray:
    """Returns images in [0, 1], dividing them by 255 if they are bytes."""
    return images / np.float32(255) if images.dtype == np.uint8 else images


def build_fed(config, source, epochs: int = 1) -> list[tuple[np.ndarray, np.ndarray]]:
    from unstall.pipeline import build

    with build(config, source) as loader:
        return [whole(batches) for batches in fed(loader.data, epochs)]


MS = 1_000_000


def a_sample(
    window: str = "train", *, ms: float = 10, wait_ms: float = 0, edge_ms: float = 0, **changes: Any
) -> Sample:
    """Returns a sample of one epoch of ten steady steps of ten images.

    Args:
      window: the window's name.
      ms: milliseconds of a step, including `wait_ms`.
      wait_ms: milliseconds of a step inside of `next(iterator)`.
      edge_ms: milliseconds at the edges of the epoch.
      changes: fields of the sample with other values than follow from these.
    """
    epoch_ns = round((10 * ms + edge_ms) * MS)
    values: dict[str, Any] = {
        "window": window,
        "round": 0,
        "images": 100,
        "wall_ns": round(10 * ms * MS),
        "wait_ns": round(10 * wait_ms * MS),
        "step_ns": (round(ms * MS),) * 10,
        "epochs": 1,
        "epoch_images": 100,
        "epoch_ns": epoch_ns,
        "first_batch_ns": (round(wait_ms * MS),),
        "outer_ns": epoch_ns,
        "claimed_ns": epoch_ns,
        # In training the loader keeps one core busy as well.
        "cpu_ns": 20 * MS + (epoch_ns if window in ("train", "cold") else 0),
        "canary_ns": 5 * MS,
    }
    return Sample(**(values | changes))


def rounds_of(window: str, *step_ms: float, **settings: Any) -> list[Sample]:
    """Returns one sample a round, whose steps take these milliseconds."""
    return [a_sample(window, ms=ms, **{"round": number, **settings}) for number, ms in enumerate(step_ms)]


def an_attribution(loading: float, *, parts: dict[str, float] | None = None) -> Attribution:
    """Returns an attribution of one second, of which the part `loading` is in `parts`, by default in `prep_stall`."""
    shares: Parts[float | None] = Parts(
        **(dict.fromkeys(PARTS, 0.0) | {"compute": 1 - loading, **(parts or {"prep_stall": loading})})
    )
    return Attribution(
        seconds_per_image=shares,
        shares=shares,
        shares_ci95=Parts(**dict.fromkeys(PARTS, (0.0, 1.0))),
        loading_ratio=loading,
        loading_ratio_ci95=(loading, loading),
        host_wait_ratio=loading,
        headspace=1 / (1 - loading),
        loading_range=(loading, loading),
        others_ratio=0.0,
    )


def a_result(
    variant: str = "generator",
    *,
    train: list[Sample] | None = None,
    resident_ms: float = 4,
    loader_ms: float | None = 9,
    device: str = "emulated:2500",
    **subject: Any,
) -> Result:
    """Returns a result of three rounds; without `train`, steps take 10 ms, 6 ms of them waiting, and edges 20 ms."""
    samples = [
        a_sample("warmup", ms=20, wait_ms=10),
        *rounds_of("resident", *(resident_ms,) * 3),
        *(rounds_of("loader", *(loader_ms,) * 3, wait_ms=loader_ms) if loader_ms else ()),
        *(rounds_of("train", 10, 10, 10, wait_ms=6, edge_ms=20) if train is None else train),
    ]
    described = {"model": "cats-dogs-64", "batch_size": 10, **subject}
    return summarise(
        Subject(variant=variant, device=parse_device(device), **described), samples, typical_canary_ns=5 * MS
    )


STORAGE = StorageRates(cold_bytes_per_sec=210e6, warm_bytes_per_sec=2e9, bytes_per_file=20e3)


def a_cold_result(variant: str = "generator", *step_ms: float, **settings: Any) -> Result:
    """Returns a cold row; without `step_ms`, its steps take 16 ms, 12 ms of them waiting, and its warm steps 10 ms."""
    cold = rounds_of("cold", *(step_ms or (16, 16, 16)), wait_ms=12, edge_ms=20)
    train = rounds_of("train", 10, 10, 10, wait_ms=6, edge_ms=20)
    return a_result(variant, train=train + cold, page_cache="cold", storage=STORAGE, **settings)


def an_accuracy_plan(**changes: object) -> AccuracyAsked:
    values = {
        "rungs": ("tutorial", "no-augment"),
        "seeds": 2,
        "images_seen": 64,
        "tuned": VARIANTS["tf-data-composed"],
        "tuned_name": "tf-data-composed",
        "data": "photos",
    }
    return AccuracyAsked(**{**values, **changes})


def a_trained(right: str, *, rates: tuple[float | None, ...] = (50.0, 100.0, 120.0), script: bool = False) -> Trained:
    return Trained(
        passes=tuple(
            TestedPass(number=number, images=32, loss=0.5, images_per_sec=rate, correct=right.count("1"))
            for number, rate in enumerate(rates, start=1)
        ),
        right=right,
        script=ScriptCount(images=len(right), published_wrong=3, corrected_wrong=1) if script else None,
        notes=("a note",),
        backend={"keras_backend": "tensorflow"},
    )


def all_trained(plan: AccuracyAsked, **right: str) -> dict[Run, Trained]:
    return {run: a_trained(right[run.pipeline], script=run.pipeline == "generator") for run in plan.runs}


def an_accuracy_document(plan: AccuracyAsked, trained: Mapping[Run, Trained], **changes: Any) -> AccuracyDocument:
    """Returns the document of a ladder on 32 photos, tested with 8."""
    photos = DATASET
    return _document_of(
        "accuracy",
        plan,
        AccuracyMeasurements(
            device="cpu",
            tested_with="a fifth of each class",
            runs=tuple(EndedRun(run=run, trained=ended) for run, ended in trained.items()),
        ),
        **({"dataset": {"train": photos | {"images": 32}, "test": photos | {"images": 8}}} | changes),
    )


def a_gpu(**changes: Any) -> CaseResult:
    """Returns a GPU's row: it computes 10 times as fast as the CPU of `a_device_row`, and waits for its loader."""
    return a_device_row(GPU, backend="jax", **({"resident_ms": 0.5, "train_ms": 2.0, "wait_ms": 1.5} | changes))


PRICES = {"cpu": 0.36, "gpu": 3.6}


def rows_of_all() -> list[CaseResult]:
    return [a_device_row(prices=PRICES), a_gpu(prices=PRICES, epochs=(an_epoch(0.4),)), a_device_row(EMULATED)]


def a_devices_document(*words: str, **changes: Any) -> DevicesDocument:
    """Returns the document of a CPU, a GPU and an emulated accelerator; `words` are the command's arguments."""
    plan = read_plan(parser().parse_args([*words, "--price", "cpu=0.36,gpu=3.6"]), Path("out"))
    return _document_of(
        "devices",
        plan.asked,
        DevicesMeasurements(
            cases=tuple(
                a_measured_case(case=case, device=device)
                for case in plan.asked.cases
                for device in (CPU, GPU, EMULATED)
            )
        ),
        **(
            {
                "provenance": PROVENANCE | {"backends": BACKENDS},
                "dataset": None,
                "left_out": (LeftOut(who="someone", reason="<b>some reason</b>"),),
                "telemetry": TRACE,
            }
            | changes
        ),
    )


def a_doctor_document(*findings: Finding, **changes: Any) -> DoctorDocument:
    """Returns the document of a folder of cats and dogs with these findings; the path "" means the folder itself."""
    of_files: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.path:
            of_files.setdefault(finding.path, []).append(finding)
    return _document_of(
        "doctor",
        DoctorAsked(folder="pets"),
        Examination(
            classes={"": ("cats", "dogs")},
            examined=1_000,
            seconds=1.25,
            files=tuple(
                ExaminedFile(path=path, format="JPEG", bytes=1, sha256="00", findings=tuple(of_file))
                for path, of_file in of_files.items()
            ),
            findings=tuple(finding for finding in findings if not finding.path),
        ),
        **({"dataset": None} | changes),
    )


MNIST = arrays("mnist-digits")
GPU = Device(kind="gpu", name="gpu")
EMULATED = Device(kind="emulated", name="emulated:5000", images_per_sec=5000.0)
BACKENDS = {
    "cpu": {"keras_backend": "tensorflow", "gpus": []},
    "gpu": {"keras_backend": "jax", "gpus": ["H100"]},
}
# One second of the model alone, then two seconds of training. In the first of these two the GPU's figures are still
# those of the second before, since drivers report them late.
TRACE = Trace(
    seconds=(1.0, 2.0, 3.0),
    cores=(0,),
    cpu_ratio=((0.2, 0.8, 0.8),),
    memory_bytes=(1, 1, 1),
    disk_read_bytes_per_sec=(0, 0, 0),
    gpu_ratio=((0.1, 0.1, 0.3),),
    gpu_memory_bytes=((1, 1, 1),),
    marks=(Mark(seconds=0.0, text="resident"), Mark(seconds=1.0, text="train")),
    gpu_celsius=((50.0, 60.0, 60.0),),
    gpu_watts=((100.0, 100.0, 200.0),),
)


def some_facts(**changes: Any) -> CaseFacts:
    values: dict[str, Any] = {
        "examples": 1000,
        "batch_size": 10,
        "buffered_batches": 0,
        "parameters": 7,
        "optimizer": "adam",
        "loss": "mse",
        "jit_compile": False,
        "step_s": 0.01,
        "data": "mnist",
        "fingerprint": "abc",
        "generated": False,
        "validated": True,
        "notes": (),
        "work": Work(forward_flops=1_000_000, training_flops=3_000_000, reason=None, activation_bytes=1, input_bytes=1),
        "step_bytes": 4_000_000,
        "warmup": a_sample("warmup", ms=10),
    }
    return CaseFacts(**(values | changes))


def an_epoch(
    seconds: float = 2.0, *, traced_s: float = 0.0, accuracy: float | None = None, examples: int = 1000
) -> Epoch:
    return Epoch(examples=examples, seconds=seconds, traced_s=traced_s, accuracy=accuracy)


def a_measured_case(
    *,
    case: Case | None = None,
    device: Device = CPU,
    backend: str = "tensorflow",
    resident_ms: float = 5,
    train_ms: float = 10,
    wait_ms: float = 4,
    rounds: int = 3,
    epochs: tuple[Epoch, ...] = (),
    replay: bool = True,
    **facts: Any,
) -> MeasuredCase:
    """Returns a case whose steps of 10 images take these milliseconds."""
    samples = [
        *rounds_of("resident", *(resident_ms,) * rounds),
        *(rounds_of("replay", *(resident_ms,) * rounds) if replay else ()),
        *rounds_of("loader", *(2.0,) * rounds),
        *rounds_of("train", *(train_ms,) * rounds, wait_ms=wait_ms),
    ]
    return MeasuredCase(
        case=case or MNIST,
        device=device,
        backend=backend,
        facts=some_facts(**facts),
        samples=samples,
        predicted_per_sec=[4000.0, 6000.0, 5000.0],
        epochs=[*epochs],
    )


def a_peak(flops_per_sec: float = 7.9e9, bytes_per_sec: float = 2e9) -> Peak:
    return Peak(precision="float32", side=256, flops_per_sec=flops_per_sec, bytes_per_sec=bytes_per_sec)


def a_device_row(
    device: Device = CPU, *, case: Case = MNIST, backend: str = "tensorflow", **changes: Any
) -> CaseResult:
    """Returns a device's row; `changes` are arguments of `a_measured_case`, `prices` and `target`."""
    prices, target = changes.pop("prices", {}), changes.pop("target", None)
    emulated = device.kind == "emulated"
    row = case_result_of(
        a_measured_case(
            **(
                {
                    "case": case,
                    "device": device,
                    "backend": backend,
                    "epochs": () if emulated else (an_epoch(),),
                    "replay": not emulated,
                }
                | changes
            )
        ),
        [] if emulated else [a_peak(6e9), a_peak()],
        trace=TRACE,
        names={window: window for window in USED},
        prices=prices,
        target=target,
        typical_canary_ns=5e6,
    )
    assert row is not None
    return row


# The variants that start no processes that import TensorFlow; tests/pipeline/service tests the others.
WITHOUT_SERVICE = [name for name, config in VARIANTS.items() if config.service == NO_SERVICE]
ONE_VARIANT = {"tf-data-autotune": VARIANTS["tf-data-autotune"]}


def a_sweep_plan(**changes: Any) -> SweepAsked:
    values: dict[str, Any] = {
        "sweeps": {"batch-size": (8, 32)},
        "variants": ONE_VARIANT,
        "models": ("cats-dogs-64",),
        "rounds": 3,
        "data": "photos",
    }
    return SweepAsked(**(values | changes))


Rates = Mapping[int | str, Sequence[float]]


def a_sweep_document(
    asked: SweepAsked,
    rates: Rates,
    *,
    loader: Rates | None = None,
    model: float = 4000.0,
    devices: Sequence[Device] = (CPU,),
    canary_ns: int = 5 * MS,
    slow_rounds: Sequence[int] = (),
    note: str = "",
    **changes: Any,
) -> SweepDocument:
    """Returns the document of a sweep.

    Args:
      rates: of training, images/sec in each round, by the value of any axis; a value without any was not measured.
      loader: of the loader alone; twice the rates of training unless given.
      model: of the model alone, images/sec.
      slow_rounds: rounds before whose windows the machine was slow.
      note: what a reader must know of each place.
    """
    alone = loader or {value: [2 * rate for rate in rounds] for value, rounds in rates.items()}
    windows: dict[str, tuple[Sample, ...]] = {}
    places = []
    for point in asked.points:
        for device in devices if point.place is not None and rates[point.value] else ():
            assert point.place is not None
            of_model, of_place = f"{point.place.opened}, {device.name}", f"{point.place.name}, {device.name}"
            windows |= {
                of_model: tuple(rounds_of("resident", *(10_000 / model,) * asked.rounds)),
                of_place: tuple(
                    a_sample(
                        window,
                        ms=10_000 / rate,
                        wait_ms=max(0.0, 10_000 / rate - 10_000 / model),
                        round=number,
                        canary_ns=canary_ns * (2 if number in slow_rounds else 1),
                    )
                    for window, by_value in (("train", rates), ("loader", alone))
                    for number, rate in enumerate(by_value[point.value])
                ),
            }
            place = MeasuredPlace(
                place=point.place,
                subject=Subject(
                    variant=point.variant,
                    model=point.model,
                    device=device,
                    batch_size=32,
                    images=100,
                    notes=(note,) if note else (),
                ),
                windows=(of_model, of_place),
            )
            if place not in places:
                places.append(place)
    return _document_of(
        "pipeline --sweep",
        asked,
        SweepMeasurements(places=tuple(places), windows=windows),
        **({"dataset": DATASET | {"classes": {"cats": 50, "dogs": 50}}} | changes),
    )


GATE_INVARIANTS = Invariants(images=768, stages=("range", "map load, 2 calls"), decodes_per_image=1.0)
GATE_QUESTION = Question(a="mine:a", b="mine:b", threshold=0.05)


def a_process(rate: float, number: int, **changes: Any) -> Process:
    """Returns a process whose rate has a noise of some tenths of a per cent, fixed by its number.

    The first two processes also inspect invariants.
    """
    rate *= 1 + 0.001 * (number % 4)
    rates = {"steady": (rate, 1.01 * rate), "epoch": (0.9 * rate, 0.91 * rate)}
    inspected = {"invariants": GATE_INVARIANTS} if number < INSPECTED else {}
    return Process(**({"rates": rates, "backend": "tensorflow", **inspected} | changes))


def gate_measurements(b: float = 1000.0, *, pairs: int = 6, **changes: Any) -> tuple[GateMeasurement, ...]:
    """Returns pairs of A, which serves 1,000 images/sec, and B, in changing order.

    Args:
      b: images/sec of B.
      pairs: how many.
      changes: of the processes of B.
    """
    sides = {
        "A": [a_process(1000.0, number) for number in range(pairs)],
        "B": [a_process(b, number, **changes) for number in range(pairs)],
    }
    orders = ("AB" if pair % 3 else "BA" for pair in range(pairs))
    return tuple(GateMeasurement(side=side, process=sides[side].pop(0)) for order in orders for side in order)


def a_comparisons_document(
    measurements: tuple[GateMeasurement, ...] = gate_measurements(),
    *,
    question: Question = GATE_QUESTION,
    name: str = "mine:b\nagainst mine:a",
    **changes: Any,
) -> ComparisonsDocument:
    return _document_of(
        "gate compare",
        AskedComparisons(questions={name: question}, seed=7, measure="loader", data=None),
        ComparisonSamples(comparisons={name: measurements}),
        **({"provenance": gate_provenance(), "dataset": None} | changes),
    )


def gate_provenance() -> dict[str, Any]:
    return PROVENANCE | {"platform": "Linux x86_64", "python": "3.11.7"}


def a_gate_check_document(rate: float = 1000.0, *, processes: int = 6, **changes: Any) -> GateCheckDocument:
    """Returns the document of the check of a benchmark that was recorded at 1,000 images/sec."""
    anchors = {"decode": (2000.0, 2000.0), "copy": (100.0, 100.0)}
    dataset = {"kind": "folder", "name": "photos", "images": 100, "content": "0123"}
    baseline = baseline_of(
        [a_process(1000.0, number, anchors=anchors) for number in range(RECORDED)],
        subject="tf-data",
        measure="loader",
        provenance=gate_provenance(),
        dataset={"images": 100, "content": "0123"},
    )
    asked = {"name": "mine", "subject": "tf-data", "measure": "loader", "data": "photos", "threshold": 0.1}
    return _document_of(
        "gate check",
        AskedCheck(
            **asked, baseline=baseline, most_processes=MOST_PROCESSES, again="unstall gate record mine --overwrite"
        ),
        GateCheckSamples(processes=tuple(a_process(rate, number, anchors=anchors) for number in range(processes))),
        **({"provenance": gate_provenance(), "dataset": dataset} | changes),
    )


# Pairs of runs of the same code that TraceML compared: each of its answers once.
def a_measured_way(name: str, rate: float, **changes: Any) -> MeasuredWay:
    """Returns a way to predict: rounds at this rate and a tenth more and less, of 10 photos the first 8 right."""
    windows = tuple(
        BitsWindow(round=number, images=round(rate * factor), wall_ns=10**9, latencies_ns=(100_000, 110_000, 200_000))
        for number, factor in enumerate((1.0, 1.1, 0.9))
    )
    values: dict[str, Any] = {
        "runtime": "TensorFlow",
        "products": {},
        "uncounted": "",
        "file_bytes": None,
        "right": "1111111100",
        "off": 0.0,
        "windows": windows,
    }
    return MeasuredWay(way=name, **(values | changes))


def a_fewer_bits_document(*ways: MeasuredWay, **changes: Any) -> FewerBitsDocument:
    asked = BitsAsked(model="cats-dogs-64", passes=8, rounds=3, batch_size=32, threads=2, data="photos")
    return _document_of(
        "devices --inference",
        asked,
        BitsMeasurements(tested_with="a fifth of each class", ways=ways),
        **({"dataset": {"train": DATASET, "test": DATASET}} | changes),
    )


def a_worker_window(worker: str, images: int, *, wall_ns: int = 10**9, **spent: int) -> WorkerWindow:
    """Returns a window of a worker with two cores that has made some images before.

    Args:
      images, spent: what the window adds to the worker's account.
    """
    first = Account(worker=worker, cores=2, up_ns=10**9, cpu_ns=10**9, split_wait_ns=0, images=320)
    added = {"up_ns": wall_ns, "cpu_ns": 800_000_000, "split_wait_ns": 100_000_000, "images": images} | spent
    last = replace(first, **{name: getattr(first, name) + value for name, value in added.items()})
    return WorkerWindow(first=first, last=last, wall_ns=wall_ns)


def worker_facts(worker: str) -> WorkerFacts:
    """Returns what a worker with two cores says of itself, made up."""
    costs_us = {"read": 20.0, "decode": 700.0, "all": 900.0}
    return WorkerFacts(worker=worker, cores=2, images=100, batches=4, functions=("make#1a2b",), costs_us=costs_us)


def a_measured_service(
    service: str, rate: float, *, workers: Sequence[WorkerWindow] = (), **changes: Any
) -> MeasuredService:
    """Returns a subject: windows of a second at this rate and a tenth more and less, in which it waits half the time.

    Args:
      workers: of every window.
      changes: to every window.
    """
    windows = []
    for number, factor in enumerate((1.0, 1.1, 0.9)):
        images = round(rate * factor)
        values: dict[str, Any] = {
            "round": number,
            "images": images,
            "batches": 50,
            "wall_ns": 10**9,
            "wait_ns": 500_000_000,
            "end_wait_ns": 0,
            "client_cpu_ns": 200_000_000,
            "machine_cpu_ns": 10**9,
            "received_bytes": 0 if service == NO_SERVICE else images * 10_000,
            "served": 0 if service == NO_SERVICE else 50,
            "repaired": 0,
            "twice": 0,
            "workers": tuple(workers),
        }
        windows.append(ServiceWindow(**(values | changes)))
    facts = tuple(worker_facts(window.first.worker) for window in workers)
    return MeasuredService(service=service, facts=facts, windows=tuple(windows))


def a_service_document(*subjects: MeasuredService, **changes: Any) -> ServiceDocument:
    """Returns the document of a comparison on a host with two cores, read as fast as batches come."""
    asked = ServiceAsked(
        config=COMPOSED,
        services=tuple(subject.service for subject in subjects),
        device=None,
        images_per_sec=None,
        link_bytes_per_sec=None,
        rounds=3,
        data="photos",
    )
    return _document_of("service local", asked, ServiceMeasurements(host="host", cores=2, subjects=subjects), **changes)


def a_process_epoch(**changes: Any) -> ProcessEpoch:
    """Returns an epoch of 4 steps of 10 images: 20 ms of waiting and 80 ms in each step, 50 ms of them its own."""
    values: dict[str, Any] = {
        "subject": "one-jax",
        "round": 0,
        "process": 0,
        "trained": 40,
        "decoded": 40,
        "wall_ns": 400 * MS,
        "wait_ns": (20 * MS,) * 4,
        "step_ns": (80 * MS,) * 4,
        "alone_ns": 50 * MS,
    }
    return ProcessEpoch(**(values | changes))


def a_measured_trainers(subject: str, processes: int = 1, rounds: int = 3, **changes: Any) -> tuple[ProcessEpoch, ...]:
    """Returns the epochs of a subject whose processes all do the same in each round.

    Args:
      changes: to every epoch.
    """
    return tuple(
        a_process_epoch(subject=subject, round=number, process=process, **changes)
        for number in range(rounds)
        for process in range(processes)
    )


def a_trainers_document(*subjects: tuple[ProcessEpoch, ...], **changes: Any) -> TrainersDocument:
    """Returns the document of a comparison with two trainers, with 10 images a step of each."""
    epochs = tuple(epoch for subject in subjects for epoch in subject)
    asked = TrainersAsked(
        subjects=tuple(dict.fromkeys(epoch.subject for epoch in epochs)),
        config=replace(VARIANTS["tf-data-autotune"], batch_size=10),
        model="cats-dogs-64",
        trainers=2,
        rounds=3,
        data="photos",
    )
    return _document_of("trainers", asked, TrainersMeasurements(epochs=epochs), **changes)


# What sending and receiving costs: 100 us an image of a batch of ten, and 100 us more for 20 KB.
CONSTANTS = Constants(
    send_ms_per_megabyte=5.0,
    send_ms_per_batch=1.0,
    receive_ms_per_megabyte=5.0,
    receive_ms_per_batch=1.0,
    hand_over_ms_per_batch=0.5,
    standing_cores=0.1,
    worker_standing_cores=0.0,
)
# On a core, a worker makes and sends 2,000 images/sec of the first, 333 of the second and 250 of the third.
CUTS = (
    CutCosts(served="files", worker_us=100.0, trainer_us=3700.0, bytes_per_image=60_000.0),
    CutCosts(served="images", worker_us=2800.0, trainer_us=1000.0, bytes_per_image=20_000.0),
    CutCosts(served="batches", worker_us=3800.0, trainer_us=100.0, bytes_per_image=20_000.0),
)


def a_costs(*, cuts: Sequence[CutCosts] = CUTS, batch_size: int = 10, constants: Any = None, **trainer: Any) -> Costs:
    """Returns costs of round numbers: a device of 1,000 images/sec, and a pipeline of 250 on each core.

    Args:
      constants: changes to `CONSTANTS`.
      trainer: changes to the trainer.
    """
    values: dict[str, Any] = {
        "device_images_per_sec": 1000.0,
        "model_us": 0.0,
        "loader_us": 4000.0,
        "most_cores": None,
    }
    return Costs(
        trainer=Trainer(**(values | trainer)),
        cuts=tuple(cuts),
        constants=replace(CONSTANTS, **(constants or {})),
        batch_size=batch_size,
        file_bytes=100_000.0,
    )


def a_service_plan_document(costs: Costs | None = None, **changes: Any) -> PlanDocument:
    """Returns the document of a prediction of workers with one core, for a trainer with one.

    Args:
      changes: to what was asked, or to the document.
    """
    values: dict[str, Any] = {
        "config": replace(VARIANTS["tf-data-autotune"], batch_size=10),
        "model": "cats-dogs-64",
        "device": Device(kind="emulated", name="emulated:1000", images_per_sec=1000.0),
        "hosts": Hosts(worker_cores=1.0, trainer_cores=1.0, worker_price=0.25, trainer_price=1.0),
        "image_size": None,
        "goal_ratio": 0.9,
        "images": None,
        "epochs": 10,
        "data": "photos",
    }
    asked = PlanAsked(**(values | {name: value for name, value in changes.items() if name in values}))
    changes = {name: value for name, value in changes.items() if name not in values}
    return _document_of("service plan", asked, PlanMeasurements(costs=costs), **changes)


def a_fake_sample(window, round_):
    return Sample(
        window=window,
        round=round_,
        images=32,
        wall_ns=10**7,
        wait_ns=10**6,
        step_ns=(10**7,),
        epochs=1,
        epoch_images=64,
        epoch_ns=2 * 10**7,
        first_batch_ns=(10**6,),
        outer_ns=2 * 10**7,
        claimed_ns=2 * 10**7,
        cpu_ns=10**7,
        canary_ns=10**6,
    )


TUNED_BASE = PipelineConfig(autotune=False, workers=2, prefetch=2)
COMPOSED = replace(TUNED_BASE, decode="scaled", resample="composed", augment_with="opencv", augment_at="batch")
PREDICTION = Prediction(
    images_per_sec=1000.0,
    loader_images_per_sec=2000.0,
    loader_us_per_image=900.0,
    limit="cores",
    memory_bytes=10**7,
    disk_bytes=0,
)
CLOSE = Exactness(mean_levels=4.0, largest_levels=100.0, psnr_db=30.0)


LIMITS = Limits(memory_bytes=1e9, disk_bytes=1e9, exactness="close", budget_s=60.0)


def samples_at(*rates: float, window: str = "train") -> tuple[Sample, ...]:
    """Returns one sample a round, of epochs without edges, at these images per second."""
    images = 1_000_000
    return tuple(
        a_sample(
            window,
            round=number,
            images=images,
            wall_ns=round(images * 1e9 / rate),
            epoch_images=images,
            epoch_ns=round(images * 1e9 / rate),
        )
        for number, rate in enumerate(rates)
    )


def a_measured_pipeline(
    name: str, rate: float, config: PipelineConfig = TUNED_BASE, spread: float = 0.01
) -> MeasuredPipeline:
    """Returns a measured pipeline of the tuner, whose rates have noise that depends on the length of its name."""
    own = np.random.default_rng(len(name)).normal(0, spread, 8)
    exactness = None if name in (NAIVE, HEURISTIC, AUTOTUNE) else CLOSE
    return MeasuredPipeline(
        subject=PipelineSubject(name=name, config=config, prediction=PREDICTION, exactness=exactness),
        samples=(*samples_at(*(rate * np.exp(own))), *samples_at(*(2000.0,) * 4, window="loader")),
    )


def exact(measured: MeasuredPipeline) -> MeasuredPipeline:
    """Returns a measured pipeline of the tuner with the pixels of another library: exact, and not identical."""
    exactness = Exactness(mean_levels=0.0, largest_levels=0.002, psnr_db=140.0)
    return replace(measured, subject=replace(measured.subject, exactness=exactness))


BARS = (
    a_measured_pipeline(NAIVE, 500.0),
    a_measured_pipeline(HEURISTIC, 900.0),
    a_measured_pipeline(AUTOTUNE, 1000.0),
)


def a_search_document(
    chosen: MeasuredPipeline, samples: dict[str, Any] | None = None, **changes: Any
) -> SearchDocument:
    """Returns the document of a search that measured one pipeline beside naive, heuristic and AUTOTUNE.

    Args:
      chosen: the pipeline; AUTOTUNE for none beside these three.
      samples: fields of the samples that differ.
      changes: fields of the document that differ.
    """
    any_order, in_order = (
        a_measured_pipeline(name, rate, COMPOSED, 0.0) for name, rate in (("any order", 1600.0), ("kept", 1500.0))
    )
    measured: dict[str, Any] = {
        "stages": (
            MeasuredStage(stage=("composed", "files", "scaled"), cost=StageCost(us_per_image=250.0, most_calls=1.5)),
            MeasuredStage(stage=("batch", "batches", "float32"), cost=StageCost(us_per_image=9.0)),
        ),
        "consumer": Consumer(us_per_image=300.0, cpu_us_per_image=500.0),
        "predicted": 300,
        "rejected": {"predicted slower": 290, "more memory than --memory-limit": 4},
        "subjects": BARS if chosen.subject.name == AUTOTUNE else (*BARS, chosen),
        "order": OrderSamples(any_order=any_order, in_order=in_order),
        "prepare_s_per_image": 1.5 / 2000,
        "seconds": 61.0,
    }
    return _document_of(
        "tune",
        SearchAsked(data="photos", model="cats-dogs-64", device=CPU, base=TUNED_BASE, limits=LIMITS),
        SearchSamples(**(measured | (samples or {}))),
        **({"dataset": DATASET | {"images": 2000}, "left_out": (LeftOut(who="raw", reason="no room"),)} | changes),
    )


def a_trial(
    samples: Mapping[str, Sequence[Sample]],
    again: Mapping[str, Sequence[Sample]] | None = None,
    effects: Mapping[str, Effect] | None = None,
    **changes: Any,
) -> Trial:
    """Returns a trial of remedies.

    Args:
      samples: of the rounds before the choice, by the name of a contender: its remedies, joined by " + ".
      again: of the rounds after the choice, if there were any: of the data as written, and of the chosen contender.
      effects: of remedies, by name; "identical" unless given.
      changes: fields of the trial that differ.
    """
    again, effects = again or {}, effects or {}
    parts = {name: () if name == AS_WRITTEN else tuple(name.split(" + ")) for name in samples}
    names = dict.fromkeys(part for some in parts.values() for part in some)
    values: dict[str, Any] = {
        "remedies": tuple(
            Remedy(name=name, text=f"what {name} does", code=f"code of {name}", effect=effects.get(name, "identical"))
            for name in names
        ),
        "contenders": tuple(
            Contender(
                name=name,
                remedies=parts[name],
                samples=tuple(some),
                again=_later(again.get(name, ())),
                code="\n".join(f"# mine.py:{at}\ncode of {part}" for at, part in enumerate(parts[name], start=1))
                or None,
            )
            for name, some in samples.items()
        ),
        "chosen_first": next((name for name in again if name != AS_WRITTEN), None),
        "stages": ("range", "decode", "batch"),
        "epoch_images": 96.0,
        "seconds": 20.0,
        "ended": True,
    }
    return Trial(**(values | changes))


def a_hostile_trial(text: str) -> Trial:
    """Returns a trial in which a remedy gains, and every text of a user's is this one."""
    remedy = Remedy(name=text, text=text, code=text, effect="close", place=text, memory_bytes=7, warms_up=True)
    trial = a_trial({AS_WRITTEN: samples_at(*[100.0] * 4), "b": samples_at(*[200.0] * 4)})
    as_written, changed = trial.contenders
    changed = replace(changed, name=text, remedies=(text,), difference=0.5, first=samples_at(50.0)[0])
    return replace(
        trial,
        remedies=(remedy,),
        contenders=(as_written, changed),
        untried=(Untried(name=text, reason=text),),
        stages=(text,),
        notes=(text,),
        epochs=5,
    )


def _later(samples: Sequence[Sample]) -> tuple[Sample, ...]:
    """Returns samples as those of later rounds."""
    return tuple(replace(sample, round=sample.round + 100) for sample in samples)


def an_advice_document(trial: Trial, **changes: Any) -> AdviceDocument:
    """Returns the document of advice on a user's own pipeline.

    Args:
      changes: fields of the document that differ.
    """
    return _document_of(
        "tune --pipeline",
        AdviceAsked(pipeline="mine:make", model="a-model", classes=2, device=CPU, batch_size=32, limits=LIMITS),
        trial,
        **({"dataset": None} | changes),
    )


def record_of(**changed):
    values = {
        "epoch": 3,
        "steps": 10,
        "images": 100,
        "steady_steps": 8,
        "steady_images": 80,
        "steady_ns": 800,
        "steady_wait_ns": 200,
        "between_ns": 0,
        "first_batch_ns": 70,
        "before_ns": 50,
        "wall_ns": 1100,
        "after_ns": 150,
        "traced_ns": 100,
        "other_ns": 999,
        "cpu_ns": 1,
        "step_ns": (100,) * 8,
        "asynchronous": False,
        "batch_size": 10,
    }
    return EpochRecord(**{**values, **changed})


def a_document(results: list[Result], **changes: Any) -> dict[str, Any]:
    document = {
        "schema_version": SCHEMA_VERSION,
        "created": "2026-01-02T03:04:05+00:00",
        "complete": True,
        "provenance": PROVENANCE,
        "plan": {"rounds": 5, "data": "photos"},
        "dataset": DATASET,
        "results": [result.to_dict() for result in results],
        "left_out": [],
        "verdicts": [verdict.to_dict() for verdict in judge(results)],
    }
    return json.loads(to_json(document | changes))


def a_telemetry(name: str = "round 1", gpus: int = 0) -> Trace:
    return Trace(
        seconds=(0.5, 1.0, 1.5),
        cores=(0, 1),
        cpu_ratio=((0.1, 0.2, 0.3), (0.5, 0.6, 0.7)),
        memory_bytes=(10**9, 2 * 10**9, 2 * 10**9),
        disk_read_bytes_per_sec=(0, None, 5),
        gpu_ratio=((0.5, 0.6, 0.7),) * gpus,
        gpu_memory_bytes=((1, 2, 3),) * gpus,
        marks=(Mark(seconds=0.1, text=name, phase=True), Mark(seconds=0.2, text=name, phase=False)),
    )


def with_subject(result: Result, **changes: Any) -> Result:
    """Returns the result with changes of its subject."""
    return replace(result, subject=replace(result.subject, **changes))


def a_measurement_document(*results: Result, **changes: Any) -> MeasurementDocument:
    """Returns a document from which these results are derived."""
    return _document_of(
        PIPELINE,
        MeasurementPlan(rounds=3, data="photos", baseline="generator"),
        Measurements(
            subjects=tuple(
                SubjectMeasurement(
                    subject=result.subject, windows=(result.subject.label,), stages=result.stages, lines=result.lines
                )
                for result in results
            ),
            windows={result.subject.label: result.samples for result in results},
        ),
        **({"dataset": DATASET | {"classes": {"cats": 50, "dogs": 50}}} | changes),
    )


STAGE_TABLE = StageTable(
    stages=(
        Stage(
            name="load_image",
            kind="map",
            location="train.py:12",
            cpu_us_per_image=430.2,
            wait_us_per_image=20.0,
            bytes_per_element=49156,
            parallelism=2,
            autotuned=True,
        ),
        Stage(name="shuffle", kind="shuffle", cpu_us_per_image=0.1, wait_us_per_image=0.0, buffer_size=512),
        Stage(
            name="prefetch",
            kind="prefetch",
            cpu_us_per_image=-3.0,
            wait_us_per_image=None,
            buffer_size=4,
            autotuned=True,
            buffer_fill_ratio=0.25,
        ),
    ),
    cores=2,
    loader_cpu_us_per_image=440.0,
    effective_parallelism=1.94,
    workers=4,
    workers_seen=2,
    tail=tail_of([("cats/1.jpg", 500.0), ("dogs/2.jpg", 4000.0)]),
)


_MYNET = """
import keras


def build(classes):
    return keras.Sequential([keras.Input((24, 40, 3)), keras.layers.Flatten(), keras.layers.Dense(classes)])
"""

_SHORT = """
from unstall.benchmarks.lab import session
from unstall.profiles.stages import python_stages, tf_stages

session.epochs_for = lambda warmup: 1
session.steps_for = lambda trial: 15
python_stages.ROUNDS, python_stages.ROUND_S = 1, 0.1
tf_stages.ROUNDS, tf_stages.RUN_S, tf_stages.TAIL_S = 1, 0.02, 0.2
Session = session.Session
"""


def write_quick_modules(folder: Path) -> Path:
    """Writes modules that make a main job quick: `mynet:build`, a tiny model, and `short:Session`.

    The latter measures as a child does, but in less time: a window has one epoch, and stages are measured in one round.
    """
    (folder / "mynet.py").write_text(_MYNET)
    (folder / "short.py").write_text(_SHORT)
    return folder


def given_to_fit(
    arguments: Mapping[str, Any],
    needs: Sequence[Need],
    *,
    place: Place | None = None,
    name: str | None = None,
    epoch_batches: int | None = None,
    room: Room | None = None,
) -> Data:
    """Returns what a `fit` was given, so that it can be built again."""
    data, use = arguments.get("x"), Use(arguments=arguments, place=place, name=name, epoch_batches=epoch_batches)
    return adapter(data).rebuilt(data, use, needs, room=room)
