"""From a table to an operating point."""

from __future__ import annotations

import re
from typing import Any, Self

import numpy as np
import pytest

from mildroute import Target, fit
from mildroute.costs.table import CostTable
from mildroute.encoders.tfidf import TfidfEncoder
from mildroute.exceptions import ArgumentError, TableError, UnreachableTargetError
from mildroute.fitting.descriptions import describe_router, why_constant
from mildroute.fitting.targets import default_price_weights
from mildroute.routers import base as router_base
from mildroute.routers.knn import KNNRouter
from mildroute.routers.regression import RegressionRouter
from mildroute.routers.training_rows import TrainingRows
from tests.support.small_table import small_table

TABLE = small_table()


def test_the_grid_goes_from_quality_alone_to_money_alone() -> None:
    """The most expensive costs .1 more than the cheapest.

    Weights from .03, worth .003 errors, to 300, worth 30.
    """
    grid = default_price_weights(np.array([[0.1, 0.2], [0.3, 0.4]]))
    assert (grid[0], grid[1], grid[-1]) == (0.0, 0.03, 300.0)
    assert list(grid) == sorted(set(grid))


def test_experts_of_one_price_need_no_grid() -> None:
    assert default_price_weights(np.ones((2, 3))) == (0.0, 1.0)
    assert default_price_weights(np.zeros((2, 3))) == (0.0, 1.0)
    assert default_price_weights(np.array([[0.1 + 0.2, 0.3]])) == (
        0.0,
        1.0,
    )  # rounding is no difference


def test_experts_that_cost_the_same_on_the_whole_and_not_on_each_row_need_a_grid() -> None:
    assert default_price_weights(np.array([[0.1, 0.2], [0.2, 0.1]])) == default_price_weights(
        np.array([[0.1, 0.2], [0.1, 0.2]])
    )


def test_a_more_expensive_target_gives_a_better_score() -> None:
    cheap, dear = (
        fit(TABLE, target=Target("budget", budget), thorough=False).point for budget in (3.0, 11.0)
    )
    assert cheap is not None
    assert dear is not None
    assert cheap.dollars_per_1000 <= 3.0
    assert cheap.score < dear.score


def test_a_price_weight_is_taken_as_it_is_and_kept() -> None:
    fitted = fit(TABLE, target=Target("price weight", 12.5), thorough=False)
    assert fitted.point is not None
    stored = fitted.router.operating_point
    assert stored is not None
    assert fitted.point.price_weight == stored.price_weight == 12.5
    assert not stored.is_mixed
    assert fitted.router.target == Target("price weight", 12.5)
    assert list(fitted.router.experts_) == ["small", "large"]


def test_without_a_target_the_cheapest_point_of_nearly_full_quality_is_taken() -> None:
    assert "99.0% of the score of large, the best in the table" in fit(TABLE).note


def test_where_nothing_cheaper_can_be_promised_the_best_answers_all_and_the_cause_is_said() -> None:
    """Two experts right on independent halves of 80 rows, whatever the text says.

    The cheap one is not shown to be as good.
    """
    rng = np.random.default_rng(0)
    noise = {f"score:{name}": (rng.random(80) < 0.5).astype(float) for name in ("dear", "cheap")}
    noise["score:dear"][:4] = 1.0
    bills = {"cost:dear": [0.01] * 80, "cost:cheap": [0.001] * 80}
    fitted = fit(
        CostTable.from_data({"input": [f"word{row}" for row in range(80)], **noise, **bills}),
        thorough=False,
    )
    assert fitted.point is not None
    assert fitted.point.shares == pytest.approx((1.0, 0.0))
    why = why_constant(fitted.router.router_, fitted.point, None)
    assert why is not None
    assert why.startswith(
        "too few rows to promise 99% of the score of dear with 95% confidence for less, though $"
    )


def test_why_a_router_is_constant() -> None:
    def of(small: object, large: object, bill: float, target: Target) -> str | None:
        columns = {
            "input": [f"word{row}" for row in range(200)],
            "score:small": small,
            "score:large": large,
        }
        table = CostTable.from_data(
            {**columns, "cost:small": [bill] * 200, "cost:large": [0.01] * 200}
        )
        fitted = fit(table, target=target, thorough=False)
        assert fitted.point is not None
        return why_constant(fitted.router.router_, fitted.point, target)

    right, wrong = np.ones(200), np.zeros(200)
    assert (
        of(right, right, 0.001, Target("quality", 0.9))
        == "it is the best in the table and the cheapest"
    )
    assert (
        of(wrong, right, 0.001, Target("budget", 1.0))
        == "no better expert, mix or router stays within the budget with 95% confidence"
    )
    assert (
        of(wrong, right, 0.001, Target("budget", 20.0))
        == "the budget pays for it, and nothing scores higher on held-out rows"
    )
    assert (
        of(wrong, right, 0.001, Target("quality", 1.0))
        == "no cheaper expert or mix keeps 100% of its score, and no router beats a random mix of"
        " single experts"
    )
    assert (
        of(wrong, right, 0.001, Target("price weight", 0.0))
        == "at price weight 0 it is the best for almost every query"
    )
    assert of(wrong, right, 0.001, Target("quality", 0.5)) is None


@pytest.mark.parametrize(
    ("value", "words"), [(95.0, "did you mean 0.95?"), (1e6, "0.95 is a usual value")]
)
def test_a_quality_in_percent_is_refused(value: float, words: str) -> None:
    with pytest.raises(
        ArgumentError, match=re.escape(f"a quality must be at most 1.5, got {value:g}; {words}")
    ):
        Target("quality", value)


class Forgetful(RegressionRouter):
    """A router whose last fit, the one that is stored, sends everything to the first expert."""

    def posterior_unchecked(self, X: Any, price_weight: float | None = None) -> Any:
        posterior = super().posterior_unchecked(X, price_weight)
        if self.n_seen_ == len(TABLE):
            posterior[:] = [1.0, 0.0]
        return posterior

    def fit_rows(self, rows: TrainingRows, progress: Any = None) -> Self:
        super().fit_rows(rows, progress)
        self.n_seen_ = len(rows.costs)
        return self

    def expected(self, X: Any) -> Any:
        errors, prices = super().expected(X)
        if self.n_seen_ == len(TABLE):
            errors = errors + np.array([-1e6, 1e6])
        return errors, prices


def test_a_stored_router_that_does_not_do_what_was_measured_is_replaced_by_a_coin() -> None:
    fitted = fit(TABLE, router=Forgetful(), target=Target("quality", 0.97))
    assert len(fitted.warnings) == 1
    assert re.match(
        r"the fitted router sends \d+% of its own training rows to small, where \d+% of held-out",
        fitted.warnings[0],
    )
    assert fitted.warnings[0].endswith("single experts are mixed at random instead")
    assert fitted.point is not None
    assert not fitted.point.uses_router
    assert fitted.router.operating_point == fitted.point
    served = np.bincount(fitted.router.predict(TABLE.inputs), minlength=2) / len(TABLE)
    assert served == pytest.approx(fitted.point.shares, abs=0.15)
    weighed = fit(TABLE, router=Forgetful(), target=Target("price weight", 1.0))
    assert weighed.warnings[0].endswith("expect other shares, score and bill than these")
    assert weighed.point is not None
    assert weighed.point.uses_router


def test_a_router_that_knows_its_rows_by_heart_is_kept_and_the_user_is_told() -> None:
    """Answers by pure luck.

    A training row is its own nearest neighbor, so on these rows the router is right for less money.
    """
    rng = np.random.default_rng(0)
    scores = (rng.random((300, 2)) < [0.6, 0.9]).astype(float)
    columns = {
        "score:small": scores[:, 0],
        "score:large": scores[:, 1],
        "cost:small": np.full(300, 0.001),
        "cost:large": np.full(300, 0.01),
    }
    texts = [
        " ".join(rng.choice(list("abcdefghijklmnop"), 6)) + f" word{row}" for row in range(300)
    ]
    fitted = fit(
        CostTable.from_data({"input": texts, **columns}),
        router=KNNRouter(n_neighbors=50, weights="distance"),
        target=Target("price weight", 20.0),
    )
    assert fitted.point is not None
    assert fitted.point.uses_router
    assert len(fitted.warnings) == 1
    assert fitted.warnings[0].endswith(
        "it has memorized them, so the promise could not be checked on them; hold rows out and"
        " evaluate"
    )


def drawn_table(rows: int, seed: int) -> CostTable:
    """Words that tell which of three experts is right, some of the time."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 4, size=rows)
    words = [
        f"{('add', 'sing', 'prove', 'draw')[kind]} {('red', 'blue', 'green')[rng.integers(3)]}"
        f" {rng.integers(50)}"
        for kind in kinds
    ]
    chances = np.array([[0.9, 0.9, 0.92], [0.2, 0.7, 0.9], [0.1, 0.3, 0.8], [0.6, 0.6, 0.7]])[kinds]
    scores = (rng.random((rows, 3)) < chances).astype(float)
    names = ("small", "medium", "large")
    columns = {f"score:{name}": scores[:, place] for place, name in enumerate(names)}
    columns |= {
        f"cost:{name}": np.full(rows, bill)
        for name, bill in zip(names, (0.0001, 0.0009, 0.0031), strict=True)
    }
    return CostTable.from_data(
        {"query_id": [f"{seed}-{row}" for row in range(rows)], "input": words, **columns}
    )


def test_what_is_served_has_the_promised_shares_score_and_bill() -> None:
    """Of many small draws at least 90% keep each promise on fresh rows.

    Shares are held to four standard errors and 5 points.

    Over 60 further draws: score 97%, the target itself 93%.
    """
    fresh = drawn_table(5000, 10**6)
    every, best = np.arange(len(fresh)), fresh.scores.mean(axis=0).max()
    kept = []
    for seed in range(20):
        rows, target = (80, 150)[seed % 2], Target("quality", (0.9, 0.95)[seed % 4 // 2])
        fitted = fit(drawn_table(rows, seed), target=target, thorough=False)
        point = fitted.point
        assert point is not None
        # Texts repeat among the fresh rows; each row stands for a request of its own.
        choice = fitted.router.predict(fresh.inputs, request_ids=fresh.query_ids)
        score, bill = (
            float(values[every, choice].mean())
            for values in (fresh.scores, 1000 * np.asarray(fresh.dollars))
        )
        shares, promised = (
            np.bincount(choice, minlength=3) / len(fresh),
            np.clip(point.shares, 0, 1),
        )
        near = np.abs(shares - promised) <= 4 * np.sqrt(promised * (1 - promised) / rows) + 0.05
        inside = [
            low - 1e-9 <= value <= high + 1e-9  # the bill of a single expert is one number
            for value, (low, high) in (
                (score, point.score_interval),
                (bill, point.dollars_interval),
            )
        ]
        kept.append([bool(near.all()), *inside, score >= target.value * best])
    assert (np.mean(kept, axis=0) >= [0.9] * 4).all(), np.mean(kept, axis=0)


def test_a_target_out_of_reach_is_said() -> None:
    with pytest.raises(UnreachableTargetError, match="raise the budget"):
        fit(TABLE, target=Target("budget", 0.1), thorough=False)


def test_a_table_without_inputs_or_dollars_is_refused_where_they_are_needed() -> None:
    with pytest.raises(TableError, match="needs the column 'input'"):
        fit(CostTable.from_data({"query_id": ["q"], "score:a": [1], "score:b": [0]}))
    with pytest.raises(TableError, match=r"a quality of 0\.9 needs dollars"):
        fit(small_table(dollars=False), target=Target("quality", 0.9))


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf])
def test_a_target_must_be_finite_and_not_negative(value: float) -> None:
    with pytest.raises(ArgumentError, match="a budget must be a finite number, not negative"):
        Target("budget", value)


def test_an_encoder_of_choice_is_used() -> None:
    fitted = fit(small_table(dollars=False), encoder=TfidfEncoder())
    assert isinstance(fitted.router.encoder_, TfidfEncoder)
    assert fitted.point is None


@pytest.mark.parametrize("dollars", [True, False])
def test_a_router_of_choice_is_used_and_knows_its_held_out_decisions(dollars: bool) -> None:
    fitted = fit(small_table(dollars=dollars), router=RegressionRouter())
    assert describe_router(fitted.router)["method"] == (
        "RegressionRouter, for any price" if dollars else "RegressionRouter"
    )
    assert fitted.router.outcome_model_ is not None
    assert fitted.router.outcome_model_.shares_ is not None
    assert fitted.router.outcome_model_.shares_.sum() == pytest.approx(1)
    assert (
        dollars
        or fitted.note == "no dollars in the table, so only quality counts; RegressionRouter"
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("thorough", True),
        ("thorough", False),
        ("n_jobs", 2),
        ("baseline", "large"),
        ("order", "time"),
    ],
)
def test_arguments_that_need_dollars_are_refused_without_them(name: str, value: object) -> None:
    table = small_table(dollars=False)
    assert "large" in table.experts
    with pytest.raises(TableError, match=f"{name}={value!r} needs dollars, got .* or no {name}"):
        fit(table, **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("thorough", ["auto", True])
def test_one_fit_checks_and_hashes_the_costs_once(
    thorough: bool | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    for name in ("check_costs", "hash_of_data"):
        real = getattr(router_base, name)
        monkeypatch.setattr(
            router_base,
            name,
            lambda *given, real=real, name=name, **more: (calls.append(name), real(*given, **more))[
                1
            ],
        )
    fit(small_table(200), target=Target("quality", 0.9), thorough=thorough)  # type: ignore[arg-type]
    assert sorted(calls) == ["check_costs", "hash_of_data"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"router": "nope"},
            "router must be one of BestSingleRouter, .*, got 'nope'; a short name .* a plug-in",
        ),
        ({"router": 5}, r"router must be an estimator with predict, .* got 5; .* KNNRouter\(\)"),
        ({"router": KNNRouter}, "router must be an estimator with predict"),
        ({"encoder": "x"}, "encoder must be auto, tfidf, .*, got 'x'"),
        ({"encoder": 5}, "encoder must be an estimator with transform, its name, or None, got 5"),
        ({"seed": -1}, "seed must be a whole number from 0 .*, got -1 .*; 0 is the default"),
        ({"seed": 2**32}, "seed must be a whole number"),
        ({"seed": True}, "seed must be a whole number"),
        ({"seed": "x"}, "seed must be a whole number"),
        ({"target": 5}, "target must be a Target or None, got 5; .*quality=5.*budget=5"),
        ({"thorough": "x"}, "thorough must be True, False or 'auto', got 'x'"),
        ({"n_jobs": "x"}, "n_jobs must be a number of processes, got 'x'"),
        ({"progress": 5}, "progress must be a function or None, got 5"),
    ],
)
def test_arguments_of_fit_that_mean_nothing_are_rejected(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        fit(TABLE, **arguments)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (5, "a table must be Arrow, pandas, polars, .*, got int"),
        ("costs.parquet", "'costs.parquet' does not exist; check the path"),
        (None, "a table must be Arrow, pandas, polars, .*, got NoneType"),
    ],
)
def test_data_that_are_no_table_are_refused(data: Any, message: str) -> None:
    with pytest.raises(TableError, match=message):
        fit(data)


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("budget", "x", "a budget must be a finite number, not negative, got 'x'; pass dollars"),
        ("budget", None, "a budget must be a finite number"),
        ("quality", True, "a quality must be a finite number, not negative, got True; 0.95"),
        ("quality", float("nan"), "a quality must be a finite number, not negative, got nan"),
        ("foo", 1, r"a target must be 'price weight', 'budget', 'quality', got 'foo'"),
        (5, 1, "a target must be"),
    ],
)
def test_targets_that_mean_nothing_are_rejected(kind: Any, value: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Target(kind, value)


def test_routers_and_encoders_are_found_by_name() -> None:
    fitted = fit(TABLE, router="KNNRouter", encoder="tfidf-sparse", seed=3)
    assert describe_router(fitted.router) == {
        "method": "KNNRouter, for any price",
        "encoder": "TfidfEncoder",
    }


@pytest.mark.parametrize("dollars", [(0.0, 1e-12), (1e-12, 1e9), (0.0, 1e9), (1e9, 1e9)])
def test_the_smallest_and_largest_dollars_give_finite_numbers(
    dollars: tuple[float, float],
) -> None:
    """Warnings are errors here: nothing overflows, and nothing is divided by a denormal."""
    columns = {
        "input": ["add 1 1", "sing a song"] * 20,
        "score:small": [1, 0] * 20,
        "score:large": [1, 1] * 20,
        "cost:small": [dollars[0]] * 40,
        "cost:large": [dollars[1]] * 40,
    }
    point = fit(CostTable.from_data(columns), router="KNNRouter").point
    assert point is not None
    numbers = [point.dollars_per_1000, *point.dollars_interval, point.saved, *point.saved_interval]
    assert np.isfinite(numbers).all()
