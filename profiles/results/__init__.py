"""Derives results and verdicts from samples. All functions are pure, from attribution and checks to the verdict."""

from profiles.results.attribution import INPUT_FROM, attribute, bound_of
from profiles.results.checks import CANARY_RATIO
from profiles.results.evidence import Evidence
from profiles.results.parts import Parts
from profiles.results.result import Result, summarise
from profiles.results.subject import Subject
from profiles.results.verdict import Verdict, evidence_of, judge

__all__ = [
    "CANARY_RATIO",
    "INPUT_FROM",
    "Evidence",
    "Parts",
    "Result",
    "Subject",
    "Verdict",
    "attribute",
    "bound_of",
    "evidence_of",
    "judge",
    "summarise",
]
