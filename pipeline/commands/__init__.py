"""The commands of this package, and what they share."""

from unstall.pipeline.commands.terminal import ArgumentParser, Noise, Stopped, decoders_unheard, signals

__all__ = ["ArgumentParser", "Noise", "Stopped", "decoders_unheard", "signals"]
