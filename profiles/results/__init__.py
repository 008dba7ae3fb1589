"""Derives results and verdicts from samples. All functions are pure, from attribution and checks to the verdict."""

from unstall.profiles.results.attribution import INPUT_FROM
from unstall.profiles.results.checks import CANARY_RATIO
from unstall.profiles.results.facts import Facts
from unstall.profiles.results.flags import Flag, FlagKind
from unstall.profiles.results.result import Result, summarise
from unstall.profiles.results.subject import Subject
from unstall.profiles.results.verdict import Verdict

__all__ = [
    "CANARY_RATIO",
    "INPUT_FROM",
    "Facts",
    "Flag",
    "FlagKind",
    "Result",
    "Subject",
    "Verdict",
    "summarise",
]
