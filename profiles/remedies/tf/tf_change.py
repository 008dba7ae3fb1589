"""What the files of tf.data's remedies have in common."""

from __future__ import annotations

from typing import ClassVar

from unstall.profiles.remedies.change import Change
from unstall.profiles.remedies.tf.pipeline_view import PipelineView
from unstall.profiles.remedies.tf.plan import TfPlan


class TfChange(Change[PipelineView, TfPlan]):
    """A change of a tf.data pipeline.

    Attributes:
      needs_costs: whether the stages are timed for it also where only its remedies are looked for.
      gains_least: whether it is tried after all others, whatever the data lose most.
    """

    needs_costs: ClassVar[bool] = False
    gains_least: ClassVar[bool] = False
