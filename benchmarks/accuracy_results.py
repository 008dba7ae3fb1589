"""The results file of a ladder: written after each run, and read again to go on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.accuracy_child import Trained
from benchmarks.accuracy_plan import RUNGS, Plan, Run
from benchmarks.accuracy_statistics import judge
from benchmarks.accuracy_summary import difference, rows
from benchmarks.options import UserError
from benchmarks.splits import Splits
from pipeline.config import ConfigError, config_from_dict, config_to_dict
from profiles import provenance
from profiles.devices import Device, parse_device
from profiles.report import SCHEMA_VERSION

RESULTS = "accuracy.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """What an interrupted ladder left: what was asked of it, on which photos, and what it has trained."""

    plan: Plan
    device: Device
    fingerprints: tuple[str, str]
    created: str
    trained: dict[Run, Trained]


def fingerprints(splits: Splits) -> tuple[str, str]:
    """Returns what tells these photos from any others: those to train on, those to test with."""
    return splits.train.fingerprint, splits.test.fingerprint


def to_document(
    plan: Plan,
    splits: Splits,
    device: Device,
    trained: Mapping[Run, Trained],
    failures: Mapping[Run, str],
    *,
    data: str,
    created: str,
    complete: bool,
) -> dict[str, Any]:
    """Returns the content of accuracy.json."""
    photos = splits.train.images
    found = difference(plan, trained)
    backend = next((one.backend for one in trained.values()), {})
    return {
        "schema_version": SCHEMA_VERSION,
        "created": created,
        "complete": complete,
        "provenance": {**provenance.machine(), **backend},
        "settings": {
            "data": provenance.without_folder(data),
            "rungs": list(plan.rungs),
            "seeds": plan.seeds,
            "images_seen": plan.images_seen,
            "passes": plan.passes(photos),
            "tuned_name": plan.tuned_name,
            "tuned": config_to_dict(plan.tuned),
            "device": device.name,
            "tested_with": splits.how,
        },
        "dataset": {"train": splits.train.to_dict(), "test": splits.test.to_dict()},
        "rungs": [one.to_dict() for one in rows(plan, trained, train_photos=photos, test_photos=splits.test.images)],
        "difference": None if found is None else found.to_dict(),
        "verdict": judge(found),
        "runs": [
            {**_run(run), "images_seen": plan.passes(photos) * photos, **trained[run].to_dict()}
            for run in plan.runs
            if run in trained
        ],
        "failures": [{**_run(run), "reason": reason} for run, reason in failures.items()],
    }


def _run(run: Run) -> dict[str, Any]:
    return {"rung": run.rung, "pipeline": run.pipeline, "seed": run.seed}


def read_earlier(folder: Path) -> Earlier:
    """Reads what an interrupted ladder left in its folder.

    Raises:
      UserError: if there is nothing that could be gone on with.
    """
    path = folder / RESULTS
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        settings = document["settings"]
        if document["complete"]:
            raise UserError(f"--resume {folder}: that run has come to its end; nothing is left to train.")
        plan = Plan(
            rungs=tuple(settings["rungs"]),
            seeds=settings["seeds"],
            images_seen=settings["images_seen"],
            tuned=config_from_dict(settings["tuned"]),
            tuned_name=settings["tuned_name"],
        )
        if document["schema_version"] != SCHEMA_VERSION or not set(plan.rungs) <= set(RUNGS):
            raise KeyError("written by another version")
        return Earlier(
            plan=plan,
            device=parse_device(settings["device"]),
            fingerprints=(document["dataset"]["train"]["fingerprint"], document["dataset"]["test"]["fingerprint"]),
            created=document["created"],
            trained={
                Run(rung=one["rung"], pipeline=one["pipeline"], seed=one["seed"]): Trained.from_dict(one)
                for one in document["runs"]
            },
        )
    except OSError as error:
        raise UserError(f"--resume {folder}: {RESULTS} cannot be read there: {error.strerror}.") from error
    except (KeyError, TypeError, ValueError, ConfigError) as error:
        raise UserError(f"--resume {path} is not what benchmarks.accuracy wrote, or is of another version.") from error
