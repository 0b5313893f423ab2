"""The report: its headline, what its slider shows, and what its script may do."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import Any

import numpy as np
import pytest

from mildroute import Target, fit
from mildroute.costs.table import CostTable
from mildroute.evaluation.cost_savings import savings
from mildroute.evaluation.frontier import measure_frontier
from mildroute.evaluation.frontier_picture import plot_frontier
from mildroute.evaluation.held_out_choices import request_keys
from mildroute.evaluation.report import report_html
from mildroute.evaluation.router_evaluation import RouterEvaluation, evaluate
from mildroute.fitting.text_router import TextRouter
from tests.support.small_table import small_table

TRAIN, HELD_OUT = small_table(400).split(0.3, seed=0)
BEST = HELD_OUT.scores.mean(axis=0).max()


@pytest.fixture(scope="module")
def router() -> TextRouter:
    return fit(TRAIN, target=Target("quality", 0.925), thorough=False).router


@pytest.fixture(scope="module")
def found(router: TextRouter) -> RouterEvaluation:
    return evaluate(router, HELD_OUT)


@pytest.fixture(scope="module")
def page(found: RouterEvaluation) -> str:
    return report_html(found)


def data_of(page: str) -> dict[str, Any]:
    text = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert text is not None
    return dict(json.loads(text[1]))


def test_the_slider_has_whole_percentages_and_the_quality_in_use(page: str) -> None:
    data = data_of(page)
    qualities = [row["quality"] for row in data["targets"]]
    assert qualities == sorted(qualities)
    assert [each for each in qualities if round(100 * each) != pytest.approx(100 * each)] == [0.925]
    assert {0.9, 0.95, 1.0} < set(qualities)
    in_use = data["targets"][data["start"]]
    assert in_use["text"]["target"] == "92.5%, in use"
    assert [row["text"]["target"] for row in data["targets"] if "use" in row["text"]["target"]] == [
        "92.5%, in use"
    ]


def test_the_slider_shows_what_the_router_does_at_each_target(
    router: TextRouter, page: str
) -> None:
    """Bill, score and shares of the choices that would be served, for every target."""
    rows, inputs = np.arange(len(HELD_OUT)), list(HELD_OUT.inputs or ())
    vectors = router.encoder_.transform(inputs)
    assert HELD_OUT.dollars is not None
    for shown in data_of(page)["targets"]:
        point = router.router_.for_quality(shown["quality"])
        served = router.explain_vectors(vectors, request_keys(HELD_OUT), point=point)
        choice = np.array([each.expert for each in served])
        bill = 1000 * HELD_OUT.dollars[rows, choice].mean()
        assert shown["dollars_per_1000"] == pytest.approx(bill)
        assert shown["shares"] == pytest.approx(np.bincount(choice, minlength=2) / len(rows))
        kept = HELD_OUT.scores[rows, choice].mean() / BEST
        assert shown["text"]["kept"].startswith(f"{kept:.1%} [")


@pytest.mark.parametrize("quality", [0.7, 0.925, 0.97, 1.0])
def test_the_slider_says_what_an_evaluation_at_that_target_says(
    router: TextRouter, found: RouterEvaluation, quality: float
) -> None:
    (shown,) = (row for row in found.targets if row.quality == quality)
    there = evaluate(router, HELD_OUT, target=Target("quality", quality))
    assert there.savings is not None
    assert there.promise is not None
    for ours, theirs in (
        (shown.saved, there.savings.saved),
        (shown.kept, there.savings.kept),
        (shown.kept, there.promise.measured),
        (shown.dollars_per_1000, there.savings.dollars_per_1000),
    ):
        assert (ours.value, ours.low, ours.high) == pytest.approx(
            (theirs.value, theirs.low, theirs.high), nan_ok=True
        )
    assert shown.shares == tuple(row.share for row in there.evaluation.per_expert)
    assert shown.score == pytest.approx(there.evaluation.score.value)
    assert shown.verdict == there.promise.verdict


def test_a_target_that_is_no_quality_starts_the_slider_at_the_nearest_bill(
    router: TextRouter,
) -> None:
    data = data_of(report_html(evaluate(router, HELD_OUT, target=Target("budget", 4.0))))
    away = [abs(row["dollars_per_1000"] - data["bill"]) for row in data["targets"]]
    assert away[data["start"]] == min(away)
    assert not any("in use" in row["text"]["target"] for row in data["targets"])


def test_the_news_comes_first_and_the_fine_print_last(found: RouterEvaluation, page: str) -> None:
    parts = [
        f'<p class="headline">{found.headline}</p>',
        '<ul class="cards">',
        "<h2>Who answers</h2>",
        "<h2>Money against quality</h2>",
        "<h2>Monthly bill</h2>",
        "<h2>Where it loses most</h2>",
        "<h2>Fine print</h2>",
    ]
    places = [page.index(part) for part in parts]
    assert places == sorted(places)
    assert "price weight" not in page[: places[-1]]
    assert "compared with large, the best in the table" in page


@pytest.mark.parametrize(("quality", "mark"), [(0.5, "✓"), (0.96, "?")])
def test_the_card_of_the_target_tells_its_verdict_by_a_mark_and_a_word(
    router: TextRouter, quality: float, mark: str
) -> None:
    found = evaluate(router, HELD_OUT, target=Target("quality", quality))
    assert found.promise is not None
    verdict = {"✓": "met", "?": "not decided"}[mark]
    assert found.promise.verdict == verdict
    card = f'<b><span aria-hidden="true">{mark}</span> {verdict}</b>'
    assert card in report_html(found)


def test_a_month_is_the_bill_of_a_million_requests(found: RouterEvaluation, page: str) -> None:
    assert found.savings is not None
    ours = 1000 * found.savings.dollars_per_1000.value
    assert f'<b id="month-ours">${ours:,.2f}</b>' in page
    assert '<b id="month-theirs">$10,000.00</b> for large alone' in page


def test_the_page_runs_no_script_but_its_own(page: str) -> None:
    policy = re.search(r"script-src '(sha256-[^']+)'", page)
    script = re.search(r"<script>(.*?)</script>", page, re.DOTALL)
    assert policy is not None
    assert script is not None
    digest = hashlib.sha256(script[1].encode()).digest()
    assert policy[1] == f"sha256-{base64.b64encode(digest).decode()}"


# The headline.


def headline_of(
    choice: Any, scores: Any, prices: tuple[float, float] = (0.001, 0.004), base: int = 1
) -> str:
    quality = np.asarray(scores, dtype=float)
    dollars = np.tile(prices, (len(quality), 1))
    found = savings(choice, quality, dollars, reference=base, experts=["small", "large"])
    return found.headline


EASY = np.arange(1000) % 4 > 0
BOTH = np.stack([EASY, np.ones(1000)], axis=1)


def test_the_headline_says_what_is_saved_and_kept() -> None:
    assert headline_of(np.where(EASY, 0, 1), BOTH) == (
        "56% cheaper than large [54, 58], keeps 100.0% of its score"
    )


def test_the_headline_of_a_router_that_saves_nothing_says_so() -> None:
    assert headline_of(np.ones(1000, dtype=int), BOTH) == (
        "Saves nothing: costs as much as large, keeps 100.0% of its score"
    )
    assert headline_of(np.arange(1000) % 2, np.ones((1000, 2)), base=0).startswith(
        "Saves nothing: 150% more expensive than small ["
    )


def test_the_headline_of_a_trade_that_a_coin_offers_says_so() -> None:
    blind = np.arange(1000) % 2
    assert headline_of(blind, BOTH).startswith(
        "Gains nothing beyond a random mix of experts: 38% cheaper than large ["
    )


def test_the_headline_names_a_single_expert_that_does_the_same() -> None:
    assert headline_of(np.arange(1000) % 2, np.ones((1000, 2))).endswith("; so does small alone")


def test_the_headline_of_a_router_that_scores_more_says_by_how_much() -> None:
    either = np.stack([EASY, ~EASY], axis=1)
    assert headline_of(np.where(EASY, 0, 1), either, base=0) == (
        "Scores 25.0 points [22.4, 27.7] above small, 75% more expensive [67, 83]"
    )
    assert headline_of(np.where(EASY, 0, 1), either, (0.001, 0.001), base=0).endswith(
        "above small, for as much money"
    )


def test_a_router_that_always_asks_one_expert_saves_nothing() -> None:
    columns: dict[str, Any] = {"input": [f"add {row}" for row in range(200)]}
    columns |= {"score:small": np.zeros(200), "score:large": np.ones(200)}
    columns |= {"cost:small": np.full(200, 0.001), "cost:large": np.full(200, 0.01)}
    table = CostTable.from_data(columns)
    found = evaluate(fit(table, target=Target("quality", 1.0), thorough=False).router, table)
    assert found.headline == "Saves nothing: large answers every query"
    assert f'<p class="headline">{found.headline}</p>' in report_html(found)
    assert found.as_dict()["headline"] == found.headline


def test_without_dollars_the_headline_is_about_the_score() -> None:
    is_sum = np.arange(300) % 2
    columns: dict[str, Any] = {
        "input": [f"add {row}" if each else f"sing of {row}" for row, each in enumerate(is_sum)],
        "score:poet": 1 - is_sum,
        "score:clerk": np.where(np.arange(300) < 30, 1, is_sum),
    }
    table = CostTable.from_data(columns)
    found = evaluate(fit(table).router, table)
    assert found.headline.startswith("Scores 45.0 points [")
    assert found.headline.endswith("] above clerk, the best in the table")
    assert found.targets == ()
    page = report_html(found)
    assert "Monthly bill" not in page
    assert 'type="range"' not in page
    alike = CostTable.from_data(columns | {"score:poet": is_sum, "score:clerk": is_sum})
    assert evaluate(fit(alike).router, alike).headline.startswith("Gains nothing: ")


# The picture.


def test_a_plot_is_drawn_on_the_axes_that_are_given() -> None:
    from matplotlib.figure import Figure

    scores, dollars = [[0, 1], [1, 1]], [[0.001, 0.01], [0.001, 0.01]]
    frontier = measure_frontier([[1, 1], [0, 0]], scores, dollars, experts=["small", "large"])
    axes = Figure().subplots()
    assert plot_frontier(frontier, ax=axes) is axes
    assert axes.get_ylabel() == "score"
    legend = axes.get_legend()
    assert legend is not None
    assert "oracle" in [text.get_text() for text in legend.get_texts()]
