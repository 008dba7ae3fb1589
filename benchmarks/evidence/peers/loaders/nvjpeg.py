"""A part of the cold work on a GPU: torchvision's `decode_jpeg` by NVIDIA's nvJPEG, which decodes at full size only.

Configured after torchvision's documentation: many encoded files in one call, which is faster than file by file.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torchvision.io import ImageReadMode, decode_jpeg

from unstall.benchmarks.evidence.peers.loaders.work import Job, Loader, Sink

# Files of one call.
_FILES = 128


class OnGpu:
    """A loader without batches: decodes every file from memory to a tensor on the GPU, epoch after epoch."""

    def __init__(self, paths: tuple[str, ...]) -> None:
        encoded = [torch.frombuffer(bytearray(Path(path).read_bytes()), dtype=torch.uint8) for path in paths]
        self._calls = [encoded[first : first + _FILES] for first in range(0, len(encoded), _FILES)]

    def feed(self, epochs: int, sink: Sink) -> None:
        sink.begin()
        for _ in range(epochs):
            for encoded in self._calls:
                decode_jpeg(encoded, mode=ImageReadMode.RGB, device="cuda")
        torch.cuda.synchronize()
        sink.count(epochs * sum(map(len, self._calls)))


def decode_gpu(job: Job) -> Loader:
    """Returns a loader that decodes every file on the GPU.

    Raises:
      ValueError: if there is no GPU, or a file is no JPEG.
    """
    if not torch.cuda.is_available():
        raise ValueError("there is no GPU that PyTorch can use here.")
    if others := sorted({kind for kind in job.formats if kind != "JPEG"}):
        raise ValueError(f"nvJPEG decodes JPEG files alone. Received: {', '.join(others)}.")
    return OnGpu(job.paths)
