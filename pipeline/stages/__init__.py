"""The stages of a pipeline: an epoch's order, reading, augmentation and output."""

from pipeline.stages.epochs import maps_of, order_of

__all__ = ["maps_of", "order_of"]
