"""Judges, which score answers from 0 to 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute._lazy import lazy_exports

if TYPE_CHECKING:
    from mildroute.judges.base import Judge as Judge, Verdict as Verdict
    from mildroute.judges.exact_match import ExactMatchJudge as ExactMatchJudge
    from mildroute.judges.json_field import JsonFieldJudge as JsonFieldJudge
    from mildroute.judges.label import LabelJudge as LabelJudge
    from mildroute.judges.multiple_choice import MultipleChoiceJudge as MultipleChoiceJudge
    from mildroute.judges.numeric import NumericJudge as NumericJudge
    from mildroute.judges.pairwise import PairwiseJudge as PairwiseJudge
    from mildroute.judges.regex_match import RegexJudge as RegexJudge
    from mildroute.judges.registry import get_judge as get_judge, judge_names as judge_names
    from mildroute.judges.rubric import RubricJudge as RubricJudge
    from mildroute.judges.unit_tests import UnitTestJudge as UnitTestJudge

__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "mildroute.judges.base": ("Judge", "Verdict"),
        "mildroute.judges.exact_match": ("ExactMatchJudge",),
        "mildroute.judges.json_field": ("JsonFieldJudge",),
        "mildroute.judges.label": ("LabelJudge",),
        "mildroute.judges.multiple_choice": ("MultipleChoiceJudge",),
        "mildroute.judges.numeric": ("NumericJudge",),
        "mildroute.judges.pairwise": ("PairwiseJudge",),
        "mildroute.judges.regex_match": ("RegexJudge",),
        "mildroute.judges.registry": ("get_judge", "judge_names"),
        "mildroute.judges.rubric": ("RubricJudge",),
        "mildroute.judges.unit_tests": ("UnitTestJudge",),
    },
)
