"""A cascade over texts: what it may know, what is stored, and what comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mildroute import FitResult, Target, TextRouter, fit
from mildroute.costs.table import CostTable
from mildroute.encoders.reduced import ReducedEncoder
from mildroute.evaluation.held_out_choices import request_keys
from mildroute.evaluation.report import report_html
from mildroute.evaluation.router_evaluation import evaluate
from mildroute.exceptions import ArgumentError, ShapeError, TableError
from mildroute.fitting.targets import without_looks
from mildroute.persistence import load_router, save_router
from mildroute.routers.cascade.router import CascadePath, CascadeRouter
from mildroute.routers.regression import RegressionRouter
from tests.support.answered import PRICES, answered_columns, answered_table


def fitted(*, cascade: bool) -> FitResult:
    return fit(
        answered_table(500, 0),
        encoder=ReducedEncoder(n_components=8),
        router=RegressionRouter(),
        target=Target("quality", 0.95),
        cascade=cascade,
    )


@pytest.fixture(scope="module")
def found() -> FitResult:
    return fitted(cascade=True)


@pytest.fixture(scope="module")
def router(found: FitResult) -> TextRouter:
    return found.router


@pytest.fixture(scope="module")
def test_rows() -> CostTable:
    return answered_table(500, 1)


def path_of(router: TextRouter, table: CostTable) -> CascadePath:
    """What becomes of each row of a table at the operating point."""
    seen = router.see([table.answers(name) for name in PRICES])
    vectors = router.encoder_.transform(table.inputs)
    return router.router_.follow(vectors, seen, request_ids=[str(i) for i in table.inputs or ()])


def changed(table: CostTable, **columns: Any) -> CostTable:
    """The table with other columns in place of some."""
    data = {name: table.arrow.column(name).to_pylist() for name in table.arrow.column_names}
    return CostTable.from_data(data | columns, answers=True)


def test_looks_stand_behind_the_experts(router: TextRouter) -> None:
    assert isinstance(router.router_, CascadeRouter)
    assert router.n_experts == 3
    names = [str(name) for name in router.experts_]
    assert names[:3] == list(PRICES)
    assert 1 <= len(names) - 3 <= 4
    assert all(name.split(",")[0].split(" + ")[0] in PRICES for name in names[3:])


def test_a_stored_cascade_decides_and_is_evaluated_as_before(
    router: TextRouter, test_rows: CostTable, tmp_path: Path
) -> None:
    loaded = load_router(save_router(router, tmp_path / "router"))
    assert isinstance(loaded, TextRouter)
    before, after = path_of(router, test_rows), path_of(loaded, test_rows)
    assert before.is_look.any()
    for one, two in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, two)
    assert evaluate(loaded, test_rows).as_dict() == evaluate(router, test_rows).as_dict()
    for weight in (0.0, 10.0, 1000.0):
        np.testing.assert_array_equal(
            loaded.predict_proba(test_rows.inputs, price_weight=weight),
            router.predict_proba(test_rows.inputs, price_weight=weight),
        )


def test_neither_scores_nor_references_of_a_table_change_what_a_cascade_does(
    router: TextRouter, test_rows: CostTable
) -> None:
    poisoned = changed(
        test_rows,
        **{f"score:{name}": 1 - test_rows.scores[:, place] for place, name in enumerate(PRICES)},
        reference=["(A)"] * len(test_rows),
    )
    for one, two in zip(path_of(router, test_rows), path_of(router, poisoned), strict=True):
        np.testing.assert_array_equal(one, two)
    looks, others = router.with_looks(test_rows), router.with_looks(poisoned)
    assert looks.dollars is not None
    assert others.dollars is not None
    np.testing.assert_array_equal(looks.dollars, others.dollars)
    np.testing.assert_array_equal(looks.scores, 1 - others.scores)


def test_features_of_answers_are_the_same_for_any_scores_in_training(router: TextRouter) -> None:
    train = answered_table(500, 0)
    other = TextRouter(router=CascadeRouter(max_calls=1, router=RegressionRouter()))
    other.fit(
        train.inputs,
        train.scores,  # scores for errors: the opposite of what the router has learned from
        prices=train.dollars,
        answers=[train.answers(name) for name in PRICES],
    )
    texts = [answered_table(50, 2).answers(name) for name in PRICES]
    np.testing.assert_array_equal(router.see(texts).vectors, other.see(texts).vectors)
    np.testing.assert_array_equal(router.see(texts).readings, other.see(texts).readings)


def test_answers_of_experts_that_were_not_asked_do_not_change_the_path(
    router: TextRouter, test_rows: CostTable
) -> None:
    path = path_of(router, test_rows)
    texts = {
        f"answer:{name}": [
            text if is_called else "Poison (Z) 17."
            for text, is_called in zip(
                test_rows.answers(name), path.is_called[:, place], strict=True
            )
        ]
        for place, name in enumerate(PRICES)
    }
    assert any("Poison (Z) 17." in column for column in texts.values())
    again = path_of(router, changed(test_rows, **texts))
    for one, two in zip(path, again, strict=True):
        np.testing.assert_array_equal(one, two)


def test_a_look_pays_for_all_that_it_asked(router: TextRouter, test_rows: CostTable) -> None:
    looks = router.with_looks(test_rows)
    assert looks.dollars is not None
    vectors = router.encoder_.transform(test_rows.inputs)
    seen = router.see([test_rows.answers(name) for name in PRICES])
    column = router.n_experts
    path = router.router_.walk(np.full(len(test_rows), column), vectors, seen)
    prices = np.array(list(PRICES.values()))
    rows = np.arange(len(test_rows))
    np.testing.assert_allclose(looks.dollars[:, column], path.is_called @ prices)
    np.testing.assert_array_equal(looks.scores[:, column], test_rows.scores[rows, path.experts])
    assert router.with_looks(looks) is looks, "a table that has the columns is not changed"


def test_it_saves_more_than_routing_without_looks(found: FitResult, test_rows: CostTable) -> None:
    plain = fitted(cascade=False)
    saved = evaluate(found.router, test_rows).evaluation
    routed = evaluate(plain.router, test_rows).evaluation
    assert saved.dollars_per_1000 is not None
    assert routed.dollars_per_1000 is not None
    assert saved.dollars_per_1000.value < 0.8 * routed.dollars_per_1000.value
    assert saved.reference == "large", "a look is no expert to compare with"


def test_an_evaluation_tells_what_looks_did_and_what_they_bought(
    router: TextRouter, test_rows: CostTable
) -> None:
    assessed = evaluate(router, test_rows)
    found = assessed.second_look
    assert found is not None
    looks = router.with_looks(test_rows)
    assert looks.dollars is not None
    vectors = router.encoder_.transform(test_rows.inputs)
    decided = router.explain_vectors(vectors, request_keys(looks), point=assessed.point)
    choice = np.array([each.expert for each in decided])
    seen = router.see([test_rows.answers(name) for name in PRICES])
    path = router.router_.walk(choice, vectors, seen)
    rows = np.arange(len(test_rows))
    assert found.looked_at == pytest.approx(path.is_look.mean())
    assert found.calls == pytest.approx(path.is_called.sum(axis=1).mean())
    assert sum(row.share for row in found.rows) == pytest.approx(1.0)
    for row in found.rows:
        at = choice < 3
        if row.name != "without a look":
            at = choice == list(looks.experts).index(row.name)
        assert row.share == pytest.approx(at.mean())
        assert row.calls == pytest.approx(path.is_called[at].sum(axis=1).mean())
        assert row.score == pytest.approx(test_rows.scores[rows, path.experts][at].mean())
        bill = 1000 * (path.is_called @ np.array(list(PRICES.values())))[at].mean()
        assert row.dollars_per_1000 == pytest.approx(bill)
    weight = assessed.price_weight
    plain = without_looks(router).predict(test_rows.inputs, request_ids=request_keys(test_rows))
    assert set(plain) <= {0, 1, 2}
    costs = looks.costs(price_weight=weight)
    assert found.gain.value == pytest.approx((costs[rows, choice] - costs[rows, plain]).mean())
    assert found.gain.high < 0, "looks are worth it here"
    assert [row.oracle_share for row in assessed.evaluation.per_expert][3:] == [0.0] * found.looks
    assert assessed.frontier is not None
    assert [point.name for point in assessed.frontier.singles] == list(PRICES)


def test_a_report_has_a_section_on_looks_where_there_are_any(
    router: TextRouter, test_rows: CostTable
) -> None:
    assessed = evaluate(router, test_rows)
    page = report_html(assessed)
    looks = len(router.experts_) - 3
    assert f"3 experts and {looks} looks" in page
    section = page[page.index("<h2>Second look</h2>") :]
    assert "calls on average" in section
    assert "with looks at answers" in page
    assert assessed.point is not None
    assert assessed.point.is_mixed
    assert "without looks, for the same target, has a score of" in section
    assert "looks are worth it" in section
    assert "which is what it buys between the two points" in page
    page = report_html(evaluate(router, test_rows, price_weight=assessed.price_weight))
    assert "the price weight there" in page
    errors = 1 - test_rows.scores
    plain = TextRouter(router=RegressionRouter()).fit(
        test_rows.inputs, errors, experts=test_rows.experts
    )
    page = report_html(evaluate(plain, CostTable.from_data(answered_columns(60, 4))))
    assert "Second look" not in page
    assert "3 experts;" in page


def test_a_router_without_looks_says_what_is_missing(test_rows: CostTable) -> None:
    plain = TextRouter(router=RegressionRouter())
    errors = 1 - test_rows.scores
    plain.fit(test_rows.inputs, errors, experts=test_rows.experts)
    with pytest.raises(ArgumentError, match="fitted without answers and looks at none"):
        plain.see([["x"], ["y"], ["z"]])
    assert plain.with_looks(test_rows) is test_rows
    assert plain.n_experts == 3
    with pytest.raises(
        ArgumentError, match="does not support answers; leave them out or use a Casc"
    ):
        plain.fit(test_rows.inputs, errors, answers=[["x"] * 500] * 3)


def test_a_table_whose_answers_were_not_read_is_refused(router: TextRouter) -> None:
    table = CostTable.from_data(answered_columns(40, 3))
    for call in (lambda: evaluate(router, table), lambda: fit(table, cascade=True)):
        with pytest.raises(TableError, match="read the table with answers=True"):
            call()
    free = {
        name: values
        for name, values in answered_columns(40, 3).items()
        if not name.startswith("cost:")
    }
    with pytest.raises(TableError, match="a cascade needs dollars"):
        fit(CostTable.from_data(free, answers=True), cascade=True)
    with pytest.raises(ArgumentError, match="answer_characters is for a cascade"):
        fit(table, answer_characters=20)


def test_a_failed_fit_leaves_a_cascade_as_it_was(router: TextRouter, test_rows: CostTable) -> None:
    before = path_of(router, test_rows)
    with pytest.raises(ArgumentError, match="cannot combine sample_weight with answers"):
        router.fit(
            test_rows.inputs,
            1 - test_rows.scores,
            sample_weight=np.ones(500),
            prices=test_rows.dollars,
            answers=[test_rows.answers(name) for name in PRICES],
        )
    for one, two in zip(before, path_of(router, test_rows), strict=True):
        np.testing.assert_array_equal(one, two)


def told_table(rows: int, seed: int, names: tuple[str, ...] = ("small", "mid")) -> CostTable:
    """Answers of which only log-probabilities tell whether they are right."""
    columns = answered_columns(rows, seed)
    random = np.random.default_rng(seed)
    for name in PRICES:
        is_right = np.array(columns[f"score:{name}"]) > 0
        columns[f"answer:{name}"] = [text[-18:] for text in columns[f"answer:{name}"]]
        is_sure = random.random(rows) < np.where(is_right, 0.9, 0.1)
        if name in names:
            columns[f"logprob:{name}"] = np.where(is_sure, -0.1, -1.5) - random.random(rows) / 10
    return CostTable.from_data(columns, answers=True)


def fitted_on(table: CostTable) -> TextRouter:
    return fit(
        table,
        encoder=ReducedEncoder(n_components=8),
        router=RegressionRouter(),
        target=Target("quality", 0.95),
        cascade=True,
    ).router


def test_log_probabilities_are_learned_from_and_stored(tmp_path: Path) -> None:
    train, held_out = told_table(500, 0), told_table(500, 1)
    router = fitted_on(train)
    assert router.logprob_experts_ == ("small", "mid")
    found = evaluate(router, held_out)
    assert found.second_look is not None
    assert found.second_look.looked_at > 0.5
    save_router(router, tmp_path / "router")
    again = load_router(tmp_path / "router")
    assert again.logprob_experts_ == ("small", "mid")
    seen = router.see_table(held_out)
    assert seen is not None
    np.testing.assert_array_equal(again.see_table(held_out).vectors, seen.vectors)
    blind = router.see([held_out.answers(name) for name in PRICES])
    assert (blind.vectors != seen.vectors).any()
    with pytest.raises(ShapeError, match="logprobs must have one entry per expert, 3, got 2"):
        router.see([["x"]] * 3, [None] * 2)


def test_log_probabilities_that_were_not_learned_from_change_nothing() -> None:
    """Be it those of all experts or of one."""
    train, held_out = told_table(500, 0, ()), told_table(500, 1)
    router = fitted_on(train)
    assert router.logprob_experts_ == ()
    seen = router.see_table(held_out)
    plain = router.see_table(told_table(500, 1, ()))
    if seen is not None and plain is not None:
        np.testing.assert_array_equal(seen.vectors, plain.vectors)
    one = fitted_on(told_table(500, 0, ("small",)))
    assert one.logprob_experts_ == ("small",)
    seen, plain = (
        one.see_table(told_table(500, 1, names)) for names in (("small", "mid"), ("small",))
    )
    assert seen is not None
    assert plain is not None
    np.testing.assert_array_equal(seen.vectors, plain.vectors)


def test_a_mix_of_two_points_costs_what_both_cost_at_its_exchange_rate(router: TextRouter) -> None:
    curve, point = router.router_.curve, router.operating_point
    assert point is not None
    assert point.is_mixed
    rate = curve.exchange_rate(point)
    ends = [
        curve.errors[place] + rate * curve.dollars[place]
        for place in map(curve._index, point.vertices)
    ]
    assert ends[0] == pytest.approx(ends[1])
    assert rate > 0
    whole = router.router_.at(24.0)
    assert curve.exchange_rate(whole) == 24.0
