"""The devices that a model can train on: the CPU, a GPU, or an accelerator that is emulated by sleeping."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

# Images per second that a named accelerator consumes, and the (height, width) of these images.
# Source: MLPerf Storage's step times (A100 0.435 s and H100 0.224 s per 400 images of ResNet-50; B200 0.04755 s per
# 24 images of RetinaNet).
NAMED_RATES: dict[str, tuple[float, tuple[int, int]]] = {
    "a100-resnet50": (920.0, (224, 224)),
    "h100-resnet50": (1786.0, (224, 224)),
    "b200-retinanet": (505.0, (224, 224)),
}

# Environment variables that hide all GPUs from a process: NVIDIA's, AMD's (ROCm reads two of them), JAX's.
NO_GPU: Mapping[str, str] = MappingProxyType(
    {
        "CUDA_VISIBLE_DEVICES": "-1",
        "HIP_VISIBLE_DEVICES": "-1",
        "ROCR_VISIBLE_DEVICES": "-1",
        "JAX_PLATFORMS": "cpu",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device that consumes batches.

    Attributes:
      kind: "cpu", "gpu" or "emulated".
      name: "cpu", "gpu", "emulated:400" or "emulated:a100-resnet50".
      images_per_sec: nominal rate of an emulated device, else None. Its real rate is measured.
      image_size: (height, width) of the images that a named rate is for, else None.
    """

    kind: str
    name: str
    images_per_sec: float | None = None
    image_size: tuple[int, int] | None = None

    @property
    def accelerator(self) -> bool:
        """Whether the host's cores stay free while the device computes."""
        return self.kind != "cpu"

    @property
    def asynchronous(self) -> bool:
        """Whether a step returns before the device has finished it: then the host's wait is not the device's wait."""
        return self.kind == "gpu"


CPU = Device(kind="cpu", name="cpu")


def parse_device(text: str) -> Device:
    """Reads a device from a text.

    Args:
      text: `cpu`, `gpu` or `emulated:RATE`, where RATE is images per second or a key of `NAMED_RATES`.
    Raises:
      ValueError: for any other text.
    """
    if text in ("cpu", "gpu"):
        return Device(kind=text, name=text)
    kind, _, rate = text.partition(":")
    if kind != "emulated" or not rate:
        raise ValueError(f"A device must be auto, cpu, gpu or emulated:RATE. Received: {text!r}.")
    if rate in NAMED_RATES:
        images_per_sec, image_size = NAMED_RATES[rate]
        return Device(kind="emulated", name=text, images_per_sec=images_per_sec, image_size=image_size)
    try:
        images_per_sec = float(rate)
    except ValueError:
        near = difflib.get_close_matches(rate, NAMED_RATES, n=1)
        hint = f" Did you mean 'emulated:{near[0]}'?" if near else ""
        raise ValueError(
            f"emulated:RATE needs images per second, or one of {', '.join(NAMED_RATES)}. Received: {text!r}.{hint}"
        ) from None
    if not 0 < images_per_sec <= 1e7:  # also refuses nan
        raise ValueError(f"emulated:RATE must be above 0 and at most 10,000,000 images/sec. Received: {text!r}.")
    return Device(kind="emulated", name=text, images_per_sec=images_per_sec)
