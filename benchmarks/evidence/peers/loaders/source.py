"""Makes the `ImageSource` of a job's images, from which pipelines of this project are built."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from unstall.benchmarks.evidence.peers.loaders.work import Job
from unstall.pipeline import ImageSource
from unstall.pipeline.sources import FileNames


def source_of(job: Job) -> ImageSource:
    """Returns the source of the job's files, or of the job's array."""
    classes = tuple(f"{label:06d}" for label in range(max(job.labels) + 1))
    labels = np.array(job.labels, np.int64)
    # The pipeline's cache keeps links to the files under this name; this process has a cache of its own.
    name = f"{len(classes)}-{len(labels)}"
    if not job.paths:
        array = np.load(job.array)
        return ImageSource(kind="arrays", name=name, class_names=classes, labels=labels, arrays=array, fingerprint=name)
    root = Path(os.path.commonpath([os.path.dirname(path) for path in job.paths]))
    return ImageSource(
        kind="folder",
        name=name,
        class_names=classes,
        labels=labels,
        root=root,
        files=FileNames.of(os.path.relpath(path, root) for path in job.paths),
        formats=job.formats,
        jpeg_sizes=np.array(job.jpeg_sizes, np.int32).reshape(-1, 2),
        fingerprint=name,
    )
