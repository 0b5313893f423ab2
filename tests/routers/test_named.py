"""Routers by name: who is known, and what is said of who is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from persistence.test_registry import install

from mildroute.exceptions import ArgumentError, ArtifactError
from mildroute.persistence.named_routers import get_router, router_names
from mildroute.routers.knn import KNNRouter
from mildroute.routers.mild import MildRouter
from mildroute.routers.regression import RegressionRouter
from mildroute.routers.surrogate import (
    CrossEntropyRouter,
    CustomLossRouter,
    TDEFRouter,
    get_loss,
)

PLUGIN = """
class Bare:
    def __init__(self, alpha=1): self.alpha = alpha
    def get_params(self, deep=True): return {"alpha": self.alpha}
    def predict(self, X): return [0 for _ in X]

class Needy:
    def __init__(self, costs): self.costs = costs
    def get_params(self, deep=True): return {"costs": self.costs}
    fit = fit_rows = predict = predict_proba = rank = posterior_unchecked = None

constant = 3
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "named"
    install(
        site, "bare = named_plugin:Bare\nneedy = named_plugin:Needy\ngone = no_such_module:Router\n"
    )
    (site / "named_plugin.py").write_text(PLUGIN)
    with (site / "named-1.0.dist-info" / "entry_points.txt").open("a") as points:
        points.write(
            "[mildroute.losses]\nnumber = named_plugin:constant\nabsent = named_plugin:nothing\n"
        )
    monkeypatch.syspath_prepend(site)


def test_every_name_gives_a_router_and_the_seed_reaches_it() -> None:
    assert isinstance(get_router("KNNRouter", random_state=3), KNNRouter)
    assert isinstance(get_router("cross-entropy"), CustomLossRouter)
    for name in router_names():
        router = get_router(name, random_state=3)
        assert router.get_params().get("random_state", 3) == 3


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("knn", KNNRouter),
        ("kNN", KNNRouter),
        ("KnnRouter", KNNRouter),
        ("tdef", TDEFRouter),
        ("TDEF", TDEFRouter),
        ("mild", MildRouter),
        ("mildrouter", MildRouter),
        ("CE", CrossEntropyRouter),
        ("linear regression", RegressionRouter),
    ],
)
def test_short_names_in_any_case_are_those_of_comparisons(name: str, expected: type) -> None:
    assert type(get_router(name)) is expected


@pytest.mark.parametrize(
    ("name", "why"),
    [("FrontierRouter", "if the table has dollars"), ("OracleRouter", "must know the costs")],
)
def test_routers_that_cannot_be_compared_by_name_say_why(name: str, why: str) -> None:
    assert name not in router_names()
    with pytest.raises(ArgumentError, match=why):
        get_router(name)


@pytest.mark.usefixtures("plugin")
def test_plug_ins_that_cannot_serve_say_why() -> None:
    assert "bare" in router_names()
    assert "gone" not in router_names()
    with pytest.raises(
        ArgumentError, match="Bare has no fit, fit_rows, predict_proba, rank, posterior_unchecked"
    ):
        get_router("bare")
    with pytest.raises(ArgumentError, match="must be constructible without arguments"):
        get_router("needy")
    with pytest.raises(ArtifactError, match="no_such_module"):
        get_router("gone")


@pytest.mark.usefixtures("plugin")
def test_losses_that_cannot_serve_say_why() -> None:
    with pytest.raises(ArgumentError, match="must be a function of scores and costs, got"):
        get_loss("number")
    with pytest.raises(ArgumentError, match="which fails"):
        get_loss("absent")
