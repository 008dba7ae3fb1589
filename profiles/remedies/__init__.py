"""Remedies for slow data: what can be changed, data built again with each change, and the gain of each, measured."""

from unstall.profiles.remedies.data import Failed
from unstall.profiles.remedies.edits import TooInvolved, diff, edited, name_from_here, source_of
from unstall.profiles.remedies.gains import (
    EQUAL_RATIO,
    Gain,
    Gains,
    as_written_s_per_image,
    beyond_trial,
    gains_of,
    is_a_gain,
    is_unlike,
    loading_of,
)
from unstall.profiles.remedies.remedy import AS_WRITTEN, NEEDS, Edit, Need, Remedy, Untried
from unstall.profiles.remedies.room import Room, room_here
from unstall.profiles.remedies.trial import Trial
from unstall.profiles.remedies.turns import Turns

__all__ = [
    "AS_WRITTEN",
    "EQUAL_RATIO",
    "NEEDS",
    "Edit",
    "Failed",
    "Gain",
    "Gains",
    "Need",
    "Remedy",
    "Room",
    "TooInvolved",
    "Trial",
    "Turns",
    "Untried",
    "as_written_s_per_image",
    "beyond_trial",
    "diff",
    "edited",
    "gains_of",
    "is_a_gain",
    "is_unlike",
    "loading_of",
    "name_from_here",
    "room_here",
    "source_of",
]
