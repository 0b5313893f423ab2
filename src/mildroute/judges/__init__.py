"""Judges: how good an answer is, from 0 to 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute.lazy import lazy_names

if TYPE_CHECKING:
    from mildroute.judges.choice import ChoiceJudge, read_choice
    from mildroute.judges.exact import ExactJudge
    from mildroute.judges.find import judge_by_name, judge_names
    from mildroute.judges.graded import GradedJudge, read_grade
    from mildroute.judges.json_field import JsonFieldJudge, read_field
    from mildroute.judges.label import LabelJudge, read_label
    from mildroute.judges.number_reading import read_number
    from mildroute.judges.numeric import NumericJudge
    from mildroute.judges.pairwise import PairwiseJudge, read_preference
    from mildroute.judges.protocol import Judge, Verdict
    from mildroute.judges.regex import RegexJudge
    from mildroute.judges.unit_tests import UnitTestJudge

__all__ = [
    "ChoiceJudge",
    "ExactJudge",
    "GradedJudge",
    "JsonFieldJudge",
    "Judge",
    "LabelJudge",
    "NumericJudge",
    "PairwiseJudge",
    "RegexJudge",
    "UnitTestJudge",
    "Verdict",
    "judge_by_name",
    "judge_names",
    "read_choice",
    "read_field",
    "read_grade",
    "read_label",
    "read_number",
    "read_preference",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "choice": ("ChoiceJudge", "read_choice"),
        "exact": ("ExactJudge",),
        "find": ("judge_by_name", "judge_names"),
        "graded": ("GradedJudge", "read_grade"),
        "json_field": ("JsonFieldJudge", "read_field"),
        "label": ("LabelJudge", "read_label"),
        "number_reading": ("read_number",),
        "numeric": ("NumericJudge",),
        "pairwise": ("PairwiseJudge", "read_preference"),
        "protocol": ("Judge", "Verdict"),
        "regex": ("RegexJudge",),
        "unit_tests": ("UnitTestJudge",),
    },
)
