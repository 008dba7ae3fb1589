"""The stages of a pipeline: an epoch's order, reading, augmentation and output."""

from unstall.pipeline.stages.epochs import maps_of

__all__ = ["maps_of"]
