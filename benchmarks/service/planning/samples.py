"""What is measured on one host: what an image costs on either side of each cut, and what it costs to send it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CutCosts:
    """The costs of a pipeline that is cut in two: workers do what is before the cut, the trainer what is after it.

    Attributes:
      served: the config's `served`: what workers send.
      worker_us: microseconds of a core that an image takes before the cut.
      trainer_us: those that it takes after the cut, without receiving it.
      bytes_per_image: what is sent of an image, with its label.
    """

    served: str
    worker_us: float
    trainer_us: float
    bytes_per_image: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """What sending and receiving costs, whatever the pipeline.

    Attributes:
      send_ms_per_megabyte, send_ms_per_batch: CPU time of a worker for what it sends.
      receive_ms_per_megabyte, receive_ms_per_batch: CPU time of the trainer for what it receives.
      hand_over_ms_per_batch: time in which the model's device waits for a batch that is ready.
      standing_cores, worker_standing_cores: cores that the trainer's client and a worker keep busy while nothing comes.
    """

    send_ms_per_megabyte: float
    send_ms_per_batch: float
    receive_ms_per_megabyte: float
    receive_ms_per_batch: float
    hand_over_ms_per_batch: float
    standing_cores: float
    worker_standing_cores: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    """What the trainer does without a service.

    Attributes:
      device_images_per_sec: what the model consumes, fed with a batch that is ready.
      model_us: microseconds of a core of the host that an image takes in the model; 0 for an accelerator.
      loader_us: microseconds of a core that an image takes in the whole pipeline.
      most_cores: cores that the pipeline keeps busy in one process at most; None where only the cores limit it.
    """

    device_images_per_sec: float
    model_us: float
    loader_us: float
    most_cores: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """All that a prediction is made from, measured on one host.

    Attributes:
      cuts: of each legal cut of the pipeline.
      batch_size: images in a batch.
      file_bytes: mean size of a photo's file.
    """

    trainer: Trainer
    cuts: tuple[CutCosts, ...]
    constants: Constants
    batch_size: int
    file_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """What was measured on this host; None before it was."""

    costs: Costs | None
