from __future__ import annotations

import importlib.metadata
from typing import Any

import pytest

from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Query
from mildroute.judges.base import Judge, Verdict
from mildroute.judges.registry import GROUP, get_judge, judge_names
from tests.judges.scripted import Scripted

OURS = ["choice", "exact", "graded", "json", "label", "numeric", "pairwise", "regex", "tests"]


class Coin(Judge):
    name, version = "coin", "1"

    def __init__(self, side: float = 0.5) -> None:
        self.side = side

    async def judge(self, query: Query, text: str) -> Verdict:
        return Verdict(self.side, f"{query.query_id}: {text}")


def coin_maker(**settings: Any) -> Coin:
    return Coin(**settings)


NO_JUDGE = dict


def registered(monkeypatch: pytest.MonkeyPatch, *points: tuple[str, str]) -> None:
    found = [importlib.metadata.EntryPoint(name, value, GROUP) for name, value in points]

    def entry_points(*, group: str, name: str | None = None) -> list[importlib.metadata.EntryPoint]:
        return [point for point in found if point.group == group and name in (None, point.name)]

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)


def test_all_of_ours_are_found_and_are_judges() -> None:
    assert set(OURS) <= set(judge_names())
    for name in OURS:
        settings = {"expert": Scripted([])} if name in ("graded", "pairwise") else {}
        judge = get_judge(name, **settings)
        assert isinstance(judge, Judge)
        assert judge.name == name
        assert judge.version


def test_versions_change_with_settings_and_not_with_names() -> None:
    assert get_judge("exact").version == get_judge("exact", name="other").version
    assert get_judge("exact").version != get_judge("exact", keep_case=True).version
    assert (
        get_judge("label", labels=["a", "b"]).version
        != get_judge("label", labels=["b", "a"]).version
    )


def test_other_distributions_can_add_a_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    registered(
        monkeypatch,
        ("coin", "tests.judges.test_registry:Coin"),
        ("made", "tests.judges.test_registry:coin_maker"),
    )
    assert get_judge("coin", side=1.0).side == get_judge("made", side=1.0).side == 1.0  # type: ignore[attr-defined]
    assert get_judge("json", path="a", compare="coin", side=0.25).compare.side == 0.25  # type: ignore[attr-defined]
    assert judge_names() == sorted([*OURS, "coin", "made"])


def test_nobody_can_replace_one_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    registered(monkeypatch, ("exact", "tests.judges.test_registry:Coin"))
    assert type(get_judge("exact")).__name__ == "ExactMatchJudge"


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([], "one of choice, exact, .* got 'coin'"),
        ([("coin", "a:b"), ("coin", "c:d")], "uninstall all but one"),
        ([("coin", "no.such.module:Coin")], "which fails"),
        ([("coin", "tests.judges.test_registry:Nothing")], "which fails"),
        ([("coin", "tests.judges.test_registry:NO_JUDGE")], "must have name, version and judge"),
    ],
)
def test_what_cannot_be_found_is_refused_with_a_way_out(
    points: list[tuple[str, str]], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered(monkeypatch, *points)
    with pytest.raises(ArgumentError, match=message):
        get_judge("coin")


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("exact", {"tolerance": 1}),
        ("graded", {}),
        ("json", {"path": "a", "tolerance": 1}),
        ("json", {"compare": "vibes"}),
        ("numeric", {"labels": []}),
    ],
)
def test_unknown_or_missing_settings_are_refused(name: str, settings: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=r"takes the settings|one of"):
        get_judge(name, **settings)


def test_the_package_names_all_judges() -> None:
    from mildroute import judges

    assert judges.MultipleChoiceJudge.__name__ == "MultipleChoiceJudge"
    assert set(judges.__all__) == set(dir(judges))
    assert all(hasattr(judges, name) for name in judges.__all__)
