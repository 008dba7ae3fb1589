"""The commands of this package, and what they share."""

from unstall.pipeline.commands.options import add_skip_list_option
from unstall.pipeline.commands.terminal import Noise, Stopped, decoders_unheard, signals

__all__ = ["Noise", "Stopped", "add_skip_list_option", "decoders_unheard", "signals"]
