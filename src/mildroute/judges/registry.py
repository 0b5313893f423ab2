"""A registry of judges, which are built in or registered by other distributions."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mildroute._plugins import load_plugin, plugin_names
from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Expert
from mildroute.experts.config import ExpertSpec, build_expert
from mildroute.judges.base import Judge
from mildroute.judges.column import ColumnJudge

__all__ = ["GROUP", "get_judge", "judge_from_config", "judge_names"]

# Entry-point group under which other distributions register judges: classes, or functions that
# return a judge.
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
# The setting of a judge with the name of the expert to call.
_EXPERT = "expert"


def judge_names() -> list[str]:
    """Return all names that :func:`get_judge` accepts.

    Example:
        >>> "choice" in judge_names()
        True
    """
    return sorted({*_BUILT_IN, *plugin_names(GROUP)})


def get_judge(name: str, /, **settings: Any) -> Judge:
    """Return the judge with a name.

    Args:
        name: One of :func:`judge_names`; built-in names take precedence. Several comma-separated
            names result in a :class:`ColumnJudge`, whose settings begin with the name of their
            judge: ``{"numeric.absolute": 0.5}``.
        **settings: Settings of the judge. For a judge that passes a part of the answer to another
            judge (``json``, ``regex``), ``compare`` may be the name of the second judge, which also
            gets the settings that the first does not have.

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
    parameters = _signature(name, maker).parameters
    accepts_any = any(
        parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()
    )
    own = {key: value for key, value in settings.items() if accepts_any or key in parameters}
    rest = {key: value for key, value in settings.items() if key not in own}
    if (
        "compare" in parameters
        and isinstance(own.get("compare", "exact"), str)
        and ("compare" in own or rest)
    ):
        own["compare"], rest = get_judge(own.get("compare", "exact"), **rest), {}
    _check(name, maker, own, rest)
    judge = maker(**own)
    if not isinstance(judge, Judge):
        raise ArgumentError(
            f"judge {name!r} must have name, version and judge, got {type(judge).__name__}; fix the"
            " entry point."
        )
    return judge


def _settings_by_judge(name: str, settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the settings of each judge in a comma-separated list of names."""
    by_judge: dict[str, dict[str, Any]] = {each.strip(): {} for each in name.split(",")}
    for key, value in settings.items():
        owner, _, setting = key.partition(".")
        if not setting or owner not in by_judge:
            raise ArgumentError(
                f"with several judges, a setting must be <judge>.<setting>, got {key!r}; the judge"
                f" must be one of {', '.join(by_judge)}."
            )
        by_judge[owner][setting] = value
    return by_judge


def _check(
    name: str, maker: Callable[..., Any], settings: dict[str, Any], unknown: dict[str, Any]
) -> None:
    signature = _signature(name, maker)
    try:
        signature.bind(**settings, **unknown)
    except TypeError as error:
        names = ", ".join(signature.parameters)
        raise ArgumentError(
            f"judge {name!r} takes the settings {names}, got"
            f" {', '.join([*settings, *unknown]) or 'none'}: {error}."
        ) from None


def _signature(name: str, maker: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(maker)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"judge {name!r} must have name, version and judge, got {maker!r}; fix the entry point."
        ) from error


def _maker(name: str) -> Callable[..., Any]:
    if name in _BUILT_IN:
        module, _, cls = _BUILT_IN[name].partition(":")
        built_in: Callable[..., Any] = getattr(
            importlib.import_module(f"mildroute.judges.{module}"), cls
        )
        return built_in
    maker: Callable[..., Any] = load_plugin(GROUP, name, thing="judge", known=_BUILT_IN)
    return maker


def judge_from_config(
    name: str,
    settings: Mapping[str, Any],
    specs: Sequence[ExpertSpec],
    build: Callable[[ExpertSpec], Expert] = build_expert,
) -> Judge:
    """Build a judge, whose setting ``expert`` may be the name of the expert to call.

    Args:
        name: Name of the judge; see :func:`~mildroute.judges.registry.get_judge`.
        settings: Settings of the judge.
        specs: Experts that the judge may call; the first one with the name is used.
        build: Function that builds the expert.

    Returns:
        The judge; the caller must close the expert.
    """
    if "," in name:
        parts = _settings_by_judge(name, settings)
        return ColumnJudge(
            {each: judge_from_config(each, parts[each], specs, build) for each in parts}, name=name
        )
    expert = settings.get(_EXPERT)
    if not isinstance(expert, str):
        return get_judge(name, **settings)
    for spec in specs:
        if spec.name == expert:
            return get_judge(name, **{**settings, _EXPERT: build(spec)})
    options = ", ".join(dict.fromkeys(spec.name for spec in specs)) or "none"
    raise ArgumentError(
        f"judge {name!r} needs an expert from experts.yaml, got {expert!r:.60}; known: {options}."
    )
