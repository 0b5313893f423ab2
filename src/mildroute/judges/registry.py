"""Judges by name, built in or registered by other distributions."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mildroute._optional import load_plugin, plugin_names
from mildroute.exceptions import ArgumentError
from mildroute.experts.config import ExpertSpec, build_expert
from mildroute.judges.base import Judge

__all__ = ["GROUP", "get_judge", "judge_from_config", "judge_names"]


# Judges by name: ours, and those that other distributions register.


# Entry-point group under which other distributions register judges: classes, or functions that make
# one.
GROUP = "mildroute.judges"

_BUILT_IN = {
    "exact": "exact_match:ExactMatchJudge",
    "choice": "multiple_choice:MultipleChoiceJudge",
    "numeric": "numeric:NumericJudge",
    "regex": "regex:RegexJudge",
    "json": "json_field:JsonFieldJudge",
    "label": "label:LabelJudge",
    "tests": "unit_tests:UnitTestJudge",
    "graded": "llm:RubricJudge",
    "pairwise": "llm:PairwiseJudge",
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
        name: One of :func:`judge_names`; our own come first.
        **settings: Of the judge. Where it hands a part of the answer to another judge (``json``,
            ``regex``), ``compare`` may be the name of that one, and settings that the first does
            not have go to the second.

    Returns:
        The judge.

    Example:
        >>> get_judge("json", path="answer", compare="numeric", absolute=0.5).compare.absolute
        0.5
        >>> get_judge("vibes")
        Traceback (most recent call last):
        mildroute.exceptions.ArgumentError: judge must be one of choice, exact, ..., got 'vibes' ...
    """
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


def judge_from_config(name: str, settings: Mapping[str, Any], specs: Sequence[ExpertSpec]) -> Judge:
    """A judge whose setting ``expert``, where it has one, is the name of the expert that it asks.

    Args:
        name: Of the judge; see :func:`~mildroute.judges.registry.get_judge`.
        settings: Of the judge.
        specs: Experts that it may ask; the first of that name is taken.

    Returns:
        The judge; the caller closes the expert.
    """
    asked = settings.get(_ASKED)
    if not isinstance(asked, str):
        return get_judge(name, **settings)
    for spec in specs:
        if spec.name == asked:
            return get_judge(name, **{**settings, _ASKED: build_expert(spec)})
    known = ", ".join(dict.fromkeys(spec.name for spec in specs)) or "none"
    raise ArgumentError(
        f"judge {name!r} must ask an expert of experts.yaml, got {asked!r:.60}; known: {known}."
    )
