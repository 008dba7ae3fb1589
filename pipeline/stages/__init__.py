"""The stages of a pipeline: order, reading, augmentation, output."""

from pipeline.stages.epochs import maps_of, order_of

__all__ = ["maps_of", "order_of"]
