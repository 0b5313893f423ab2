"""Judges: how good an answer is, from 0 to 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute._optional import lazy_names

if TYPE_CHECKING:
    from mildroute.judges._numbers import read_number
    from mildroute.judges.base import Judge, Verdict
    from mildroute.judges.exact_match import ExactMatchJudge
    from mildroute.judges.json_field import JsonFieldJudge, read_field
    from mildroute.judges.label import LabelJudge, read_label
    from mildroute.judges.llm import PairwiseJudge, RubricJudge, read_grade, read_preference
    from mildroute.judges.multiple_choice import MultipleChoiceJudge, read_choice
    from mildroute.judges.numeric import NumericJudge
    from mildroute.judges.regex import RegexJudge
    from mildroute.judges.registry import get_judge, judge_names
    from mildroute.judges.unit_tests import UnitTestJudge

__all__ = [
    "ExactMatchJudge",
    "JsonFieldJudge",
    "Judge",
    "LabelJudge",
    "MultipleChoiceJudge",
    "NumericJudge",
    "PairwiseJudge",
    "RegexJudge",
    "RubricJudge",
    "UnitTestJudge",
    "Verdict",
    "get_judge",
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
        "_numbers": ("read_number",),
        "base": (
            "Judge",
            "Verdict",
        ),
        "exact_match": ("ExactMatchJudge",),
        "json_field": (
            "JsonFieldJudge",
            "read_field",
        ),
        "label": (
            "LabelJudge",
            "read_label",
        ),
        "llm": (
            "RubricJudge",
            "PairwiseJudge",
            "read_grade",
            "read_preference",
        ),
        "multiple_choice": (
            "MultipleChoiceJudge",
            "read_choice",
        ),
        "numeric": ("NumericJudge",),
        "regex": ("RegexJudge",),
        "registry": (
            "get_judge",
            "judge_names",
        ),
        "unit_tests": ("UnitTestJudge",),
    },
)
