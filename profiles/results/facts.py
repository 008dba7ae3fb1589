"""What is known of what feeds a model and of how the model is trained, apart from what was measured in samples."""

from __future__ import annotations

from dataclasses import dataclass

from unstall.profiles.data.kinds import DataKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Retraced:
    """What the steps of a loop traced of TensorFlow's functions after the first steps.

    Attributes:
      function: the name of the function that was traced last.
      count: how many times functions were traced.
      ratio: tracing time over the time of the loop after its first steps, 0 to 1.
      ms: mean of the traces, in milliseconds.
    """

    function: str
    count: int
    ratio: float
    ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of a subject's data and of its training. None stands for unknown.

    Attributes:
      data: what the batches come from, in plain words: "NumPy arrays".
      kind: of these data.
      loop: whether a loop of a script trains, not `fit`.
      jit_compile: whether XLA compiles the training step.
      steps_per_execution: training steps in a call of the train function.
      parameters: of the model.
      optimizer, loss: names.
      workers_asked: workers of the loader as configured; "auto" where tf.data tunes their number.
      workers_effective: the most workers that were busy at once.
      worker_processes: whether Keras makes the batches in worker processes.
      forks_collect: whether worker processes are forked while TensorFlow runs, and collect garbage of TensorFlow.
      images_per_window_epoch: images of an epoch of the measured windows.
      waited_for_ratio: share of a loop's steps whose result was there before the script asked for the next batch, on a
        device that computes asynchronously; 0 to 1.
      fetching_ratio: share of the time of such steps in which the loader held the host, 0 to 1.
      retraced: None where nothing was traced after the first steps.
      unknown_shape: a shape of the batches that TensorFlow does not know, and from which function on:
        "(None, 64, 64, None) from load (train.py:12) on". None where all are known.
      copies: how many workers each give the whole data set; None where they share it.
    """

    data: str | None = None
    kind: DataKind | None = None
    loop: bool = False
    jit_compile: bool | None = None
    steps_per_execution: int | None = None
    parameters: int | None = None
    optimizer: str | None = None
    loss: str | None = None
    workers_asked: int | str | None = None
    workers_effective: int | None = None
    worker_processes: bool | None = None
    forks_collect: bool | None = None
    images_per_window_epoch: int | None = None
    waited_for_ratio: float | None = None
    fetching_ratio: float | None = None
    retraced: Retraced | None = None
    unknown_shape: str | None = None
    copies: int | None = None
