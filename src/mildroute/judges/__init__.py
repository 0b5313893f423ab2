"""Judges: how good an answer is, from 0 to 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute._optional import lazy_exports

if TYPE_CHECKING:
    from mildroute.judges.base import Judge as Judge, Verdict as Verdict
    from mildroute.judges.exact_match import (
        ExactMatchJudge as ExactMatchJudge,
        RegexJudge as RegexJudge,
    )
    from mildroute.judges.json_field import (
        JsonFieldJudge as JsonFieldJudge,
        read_field as read_field,
    )
    from mildroute.judges.label import LabelJudge as LabelJudge, read_label as read_label
    from mildroute.judges.llm import (
        PairwiseJudge as PairwiseJudge,
        RubricJudge as RubricJudge,
        read_grade as read_grade,
        read_preference as read_preference,
    )
    from mildroute.judges.multiple_choice import (
        MultipleChoiceJudge as MultipleChoiceJudge,
        read_choice as read_choice,
    )
    from mildroute.judges.numeric import NumericJudge as NumericJudge, read_number as read_number
    from mildroute.judges.registry import get_judge as get_judge, judge_names as judge_names
    from mildroute.judges.unit_tests import UnitTestJudge as UnitTestJudge

__all__, __getattr__, __dir__ = lazy_exports(__name__)
