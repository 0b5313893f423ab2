"""Judges by name, built in or registered by other distributions."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mildroute._optional import load_plugin, plugin_names
from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Expert, Query
from mildroute.experts.config import ExpertSpec, build_expert
from mildroute.judges.base import Judge, Verdict, VersionedJudge

__all__ = ["GROUP", "ColumnJudge", "get_judge", "judge_from_config", "judge_names"]


# Judges by name: ours, and those that other distributions register.


# Entry-point group under which other distributions register judges: classes, or functions that make
# one.
GROUP = "mildroute.judges"

_BUILT_IN = {
    "exact": "exact_match:ExactMatchJudge",
    "choice": "multiple_choice:MultipleChoiceJudge",
    "numeric": "numeric:NumericJudge",
    "regex": "regex_match:RegexJudge",
    "json": "json_field:JsonFieldJudge",
    "label": "label:LabelJudge",
    "tests": "unit_tests:UnitTestJudge",
    "graded": "rubric:RubricJudge",
    "pairwise": "pairwise:PairwiseJudge",
}


def judge_names() -> list[str]:
    """All names that :func:`get_judge` knows.

    Example:
        >>> "choice" in judge_names()
        True
    """
    return sorted({*_BUILT_IN, *plugin_names(GROUP)})


def get_judge(name: str, /, **settings: Any) -> Judge:
    """A judge.

    Args:
        name: One of :func:`judge_names`; built-in names take precedence. Several comma-separated
            names make a :class:`ColumnJudge`, and settings begin with the name of their judge:
            ``{"numeric.absolute": 0.5}``.
        **settings: Settings of the judge. If it passes a part of the answer to another judge
            (``json``, ``regex``), ``compare`` may be the name of that judge, and settings that the
            first does not have go to the second.

    Returns:
        The judge.

    Example:
        >>> get_judge("json", path="answer", compare="numeric", absolute=0.5).compare.absolute
        0.5
        >>> get_judge("vibes")
        Traceback (most recent call last):
        mildroute.exceptions.ArgumentError: judge must be one of choice, exact, ..., got 'vibes' ...
    """
    if "," in name:
        return judge_from_config(name, settings, ())
    maker = _maker(name)
    known = _signature(name, maker).parameters
    open_ended = any(
        parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in known.values()
    )
    own = {key: value for key, value in settings.items() if open_ended or key in known}
    rest = {key: value for key, value in settings.items() if key not in own}
    if (
        "compare" in known
        and isinstance(own.get("compare", "exact"), str)
        and ("compare" in own or rest)
    ):
        own["compare"], rest = get_judge(own.get("compare", "exact"), **rest), {}
    _check(name, maker, own, rest)
    judge = maker(**own)
    if not isinstance(judge, Judge):
        raise ArgumentError(
            f"judge {name!r} must have name, version and judge, got {type(judge).__name__}; correct"
            " the entry point."
        )
    return judge


@dataclass(frozen=True)
class ColumnJudge(VersionedJudge):
    """Applies to each query the judge that its column names.

    Args:
        judges: Judges by the names that the column holds.
        column: The column.
        name: Its name in tables.

    Example:
        >>> mixed = get_judge("numeric,exact")
        >>> mixed.missing_fields(Query("q1", "2 + 2?", "4", {"judge": "numeric"}))
        ''
        >>> mixed.missing_fields(Query("q1", "2 + 2?", "4", {"judge": "vibes"}))
        "the column 'judge' must be one of numeric, exact, got 'vibes'"
    """

    judges: Mapping[str, Judge]
    column: str = "judge"
    name: str = "column"

    async def judge(self, query: Query, text: str) -> Verdict:
        """Score the text that an expert gave to a query."""
        chosen = self._chosen(query)
        if chosen is None:
            return Verdict(None, self.missing_fields(query))
        return await chosen.judge(query, text)

    def missing_fields(self, query: Query) -> str:
        """What keeps it from scoring any answer to a query."""
        chosen = self._chosen(query)
        if chosen is not None:
            return chosen.missing_fields(query)
        got = query.fields.get(self.column)
        return (
            f"the column {self.column!r} must be one of {', '.join(self.judges)}, got"
            f" {'nothing' if got is None else repr(got)[:40]}"
        )

    def max_cost(self, query: Query, text: str) -> float:
        """Upper bound in dollars of judging an answer."""
        chosen = self._chosen(query)
        return 0.0 if chosen is None else chosen.max_cost(query, text)

    def max_attempt_cost(self, query: Query, text: str) -> float:
        """Upper bound in dollars of one attempt at judging an answer."""
        chosen = self._chosen(query)
        return 0.0 if chosen is None else chosen.max_attempt_cost(query, text)

    def experts(self) -> Sequence[Expert]:
        """Experts that the judges call."""
        return [expert for judge in self.judges.values() for expert in judge.experts()]

    def _chosen(self, query: Query) -> Judge | None:
        return self.judges.get(str(query.fields.get(self.column)))


def _settings_by_judge(name: str, settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The settings of each of several judges, whose names have commas between them."""
    found: dict[str, dict[str, Any]] = {each.strip(): {} for each in name.split(",")}
    for key, value in settings.items():
        owner, _, setting = key.partition(".")
        if not setting or owner not in found:
            raise ArgumentError(
                f"a setting of one of several judges must be <judge>.<setting>, got {key!r}; begin"
                f" it with one of {', '.join(found)}."
            )
        found[owner][setting] = value
    return found


def _check(
    name: str, maker: Callable[..., Any], settings: dict[str, Any], unknown: dict[str, Any]
) -> None:
    signature = _signature(name, maker)
    try:
        signature.bind(**settings, **unknown)
    except TypeError as wrong:
        known = ", ".join(signature.parameters)
        raise ArgumentError(
            f"judge {name!r} takes the settings {known}, got"
            f" {', '.join([*settings, *unknown]) or 'none'}: {wrong}."
        ) from None


def _signature(name: str, maker: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(maker)
    except (TypeError, ValueError) as broken:
        raise ArgumentError(
            f"judge {name!r} must have name, version and judge, got {maker!r}; correct the entry"
            " point."
        ) from broken


def _maker(name: str) -> Callable[..., Any]:
    if name in _BUILT_IN:
        module, _, cls = _BUILT_IN[name].partition(":")
        built_in: Callable[..., Any] = getattr(
            importlib.import_module(f"mildroute.judges.{module}"), cls
        )
        return built_in
    maker: Callable[..., Any] = load_plugin(GROUP, name, thing="judge", known=_BUILT_IN)
    return maker


# Judges as files and commands describe them: an expert that a judge asks is there by its name.


_ASKED = "expert"


def judge_from_config(
    name: str,
    settings: Mapping[str, Any],
    specs: Sequence[ExpertSpec],
    build: Callable[[ExpertSpec], Expert] = build_expert,
) -> Judge:
    """Build a judge whose setting ``expert``, if it has one, is the name of the expert to call.

    Args:
        name: Of the judge; see :func:`~mildroute.judges.registry.get_judge`.
        settings: Of the judge.
        specs: Experts that it may call; the first of that name is used.
        build: Builds that expert.

    Returns:
        The judge; the caller closes the expert.
    """
    if "," in name:
        parts = _settings_by_judge(name, settings)
        return ColumnJudge(
            {each: judge_from_config(each, parts[each], specs, build) for each in parts}, name=name
        )
    asked = settings.get(_ASKED)
    if not isinstance(asked, str):
        return get_judge(name, **settings)
    for spec in specs:
        if spec.name == asked:
            return get_judge(name, **{**settings, _ASKED: build(spec)})
    known = ", ".join(dict.fromkeys(spec.name for spec in specs)) or "none"
    raise ArgumentError(
        f"judge {name!r} must ask an expert of experts.yaml, got {asked!r:.60}; known: {known}."
    )
