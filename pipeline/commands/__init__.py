"""The commands of this package, and what they share."""

from unstall.pipeline.commands.terminal import Noise, Stopped, decoders_unheard, signals

__all__ = ["Noise", "Stopped", "decoders_unheard", "signals"]
