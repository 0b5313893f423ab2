"""The sentence on savings.

What it claims, when it claims nothing, and that it is not fooled by its own choice.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from mildroute._format import format_dollars, format_score
from mildroute.evaluation.cost_savings import savings
from mildroute.evaluation.resampling import Interval
from mildroute.evaluation.savings_sentences import as_percent, format_points
from mildroute.exceptions import ArgumentError, ShapeError

NAMES = ["small", "large"]
DOLLARS = np.tile([0.001, 0.004], (1000, 1))
EASY = (
    np.arange(1000) % 4 > 0
)  # three of four queries; both experts are right on them, the large one alone on the others
SCORES = np.stack([EASY, np.ones(1000)], axis=1).astype(float)
PERFECT = np.where(EASY, 0, 1)


def test_the_same_quality_for_less_is_said_with_its_interval() -> None:
    found = savings(PERFECT, SCORES, DOLLARS, reference=1, experts=NAMES)
    # three of four queries for 1 instead of 4: 1.75 instead of 4
    assert found.verdict == "saved"
    assert found.saved.value == pytest.approx(1 - 1.75 / 4)
    assert (
        found.sentence
        == "At the quality of large (1.00), the router costs $1.75 instead of $4.00 per 1,000"
        " queries: 56% less [54, 58]."
    )


@pytest.mark.parametrize(("rows", "verdict"), [(50, "likely"), (700, "likely"), (800, "saved")])
def test_rows_without_a_loss_show_equal_quality_only_where_they_are_many(
    rows: int, verdict: str
) -> None:
    # none in n rows leaves 1 - .025 ** (1 / n): .071, .0053 and .0046 where .005 is allowed
    found = savings(PERFECT[:rows], SCORES[:rows], DOLLARS[:rows], experts=NAMES)
    assert found.score_difference.low == 0
    assert found.score_floor == pytest.approx(0.025 ** (1 / rows) - 1, rel=0.1)
    assert found.verdict == verdict


def test_a_loss_that_few_rows_have_not_shown_is_named_as_possible() -> None:
    found = savings(PERFECT[:50], SCORES[:50], DOLLARS[:50], experts=NAMES)
    assert re.search(
        r"not significantly different from that of large \(1\.00, difference 0\.0 points"
        r" \[-[67]\.\d, 0\.0\]\)",
        found.sentence,
    )


@pytest.mark.parametrize("rows", [50, 100, 200, 400])
def test_a_loss_just_beyond_the_margin_is_rarely_called_equal_quality(rows: int) -> None:
    """A router that loses 5.5% and wins 3% of rows is worse by 2.5 points where 2 are allowed."""
    called = 0
    for seed in range(100):
        luck = np.random.default_rng(seed).random(rows)
        scores = np.stack([luck > 0.055, (luck <= 0.055) | (luck > 0.085)], axis=1).astype(float)
        called += (
            savings(
                np.zeros(rows, dtype=int),
                scores,
                DOLLARS[:rows],
                reference=1,
                margin=0.02,
                seed=seed,
            ).verdict
            == "saved"
        )
    assert (
        called <= 7
    )  # 2.5 expected at most, and 7 or fewer of 100 then happen in 99.5 of 100 runs


def test_the_reference_among_equals_is_the_cheapest_in_any_order_of_columns() -> None:
    for order in ([0, 1], [1, 0]):
        dollars = DOLLARS[:, order]
        assert (
            savings(
                np.zeros(1000, dtype=int),
                np.ones((1000, 2)),
                dollars,
                experts=np.array(NAMES)[order].tolist(),
            ).reference
            == "small"
        )


def test_a_single_expert_that_saves_as_much_is_named() -> None:
    scores = np.column_stack([SCORES, np.ones(1000)])
    dollars = np.column_stack([DOLLARS, np.full(1000, 0.0015)])
    found = savings(PERFECT, scores, dollars, reference=1, experts=[*NAMES, "middle"])
    assert found.also == ("middle", pytest.approx(1.5))
    assert found.sentence.endswith(
        "56% less [54, 58]; so does sending everything to middle, for $1.50."
    )
    more_expensive = np.column_stack([DOLLARS, np.full(1000, 0.002)])
    assert (
        savings(PERFECT, scores, more_expensive, reference=1, experts=[*NAMES, "middle"]).also
        is None
    )


def test_a_router_that_is_one_expert_is_called_so() -> None:
    found = savings(
        np.zeros(1000, dtype=int), np.ones((1000, 2)), DOLLARS, reference=1, experts=NAMES
    )
    assert (found.verdict, found.also) == ("saved", ("small", pytest.approx(1.0)))


def test_the_reference_is_the_expert_of_highest_score_unless_named() -> None:
    assert savings(PERFECT, SCORES, DOLLARS, experts=NAMES).reference == "large"
    assert (
        savings(PERFECT, SCORES, DOLLARS, experts=NAMES, reference="best single").reference
        == "large"
    )
    assert savings(PERFECT, SCORES, DOLLARS, experts=NAMES, reference=0).reference == "small"


def test_the_reference_itself_saves_nothing() -> None:
    found = savings(np.ones(1000, dtype=int), SCORES, DOLLARS, experts=NAMES)
    assert found.verdict == "nothing"
    assert found.sentence.startswith(
        "Nothing is saved: against large, the router costs $4.00 instead of $4.00"
    )


def test_cheaper_and_worse_is_called_a_trade() -> None:
    found = savings(np.zeros(1000, dtype=int), SCORES, DOLLARS, experts=NAMES)
    assert found.verdict == "trade"
    told = (
        "Nothing is gained beyond mixing: beside large (1.00) the router costs $1.00 instead of"
        " $4.00 per 1,000 queries"
    )
    assert found.sentence.startswith(told)
    assert "75% less [75, 75], but scores lower by 25.0 points [22." in found.sentence
    assert found.sentence.endswith(
        "not shown to be better than a random mix of experts for the same bill (difference 0.0"
        " points [0.0, 0.0])."
    )


def test_better_and_more_expensive_than_the_reference_is_compared_with_a_mix_of_the_same_bill() -> (
    None
):
    found = savings(PERFECT, SCORES, DOLLARS, reference=0, experts=NAMES)
    # a mix for 1.75 has a quarter of its answers from the large expert: .75 + .25 / 4
    assert found.verdict == "beyond mixing"
    assert found.mix_difference.value == pytest.approx(1 - 0.8125)
    start = (
        "For $1.75 per 1,000 queries, the router scores 1.00 and the best random mix of experts"
        " 0.812: higher by 18.8 points ["
    )
    assert found.sentence.startswith(start)
    assert "beside small (0.75) it scores higher by 25.0 points" in found.sentence
    assert "75% more" in found.sentence


def test_more_expensive_and_better_as_any_mix_would_be_is_a_trade() -> None:
    found = savings(np.ones(1000, dtype=int), SCORES, DOLLARS, reference=0, experts=NAMES)
    assert found.verdict == "trade"
    assert "300% more [300, 300]" in found.sentence


def test_a_bill_below_every_expert_is_held_against_the_cheapest() -> None:
    dollars = np.where(np.arange(1000)[:, None] % 2 == 0, [0.001, 0.003], [0.003, 0.001])
    found = savings(np.arange(1000) % 2, np.ones((1000, 2)), dollars, experts=NAMES)
    assert (found.verdict, found.mix_difference.value) == ("saved", 0.0)


def test_better_for_the_same_bill_is_a_gain() -> None:
    found = savings(PERFECT, SCORES, np.full((1000, 2), 0.002), reference=0, experts=NAMES)
    assert found.verdict == "gained"
    assert found.sentence.startswith(
        "For no more than small costs ($2.00 per 1,000 queries), the router scores 1.00 instead of"
        " 0.75: higher by"
    )


def test_cheaper_with_scores_that_cannot_be_distinguished_says_so() -> None:
    rng = np.random.default_rng(0)
    scores = (rng.random((200, 2)) < 0.7).astype(float)
    found = savings(np.zeros(200, dtype=int), scores, DOLLARS[:200], reference=1, experts=NAMES)
    assert found.verdict == "likely"
    assert found.score_difference.low < -found.margin
    assert "not significantly different from that of large" in found.sentence
    assert "difference" in found.sentence


def test_a_free_reference_cannot_be_undercut() -> None:
    free = np.tile([0.0, 0.004], (1000, 1))
    assert savings(np.zeros(1000, dtype=int), SCORES, free, reference=0).verdict == "nothing"
    dear = savings(PERFECT, SCORES, free, reference=0, experts=NAMES)
    assert dear.verdict == "beyond mixing"
    assert dear.sentence.endswith("but costs $1.00 instead of $0.00 per 1,000 queries.")


def test_among_price_weights_the_cheapest_of_equal_quality_is_picked() -> None:
    choices = np.stack([np.ones(1000, dtype=int), PERFECT, np.zeros(1000, dtype=int)])
    found = savings(choices, SCORES, DOLLARS, experts=NAMES, margin=0.01)
    # no loss in 500 rows leaves .0074
    assert (found.point, found.verdict, found.rows) == (1, "saved", 500)


def test_where_no_weight_keeps_the_quality_the_best_affordable_one_is_picked() -> None:
    poor = np.where(np.arange(1000) % 8, PERFECT, 0)  # half of the hard queries are missed
    found = savings(np.stack([np.zeros(1000, dtype=int), poor]), SCORES, DOLLARS, experts=NAMES)
    assert (found.point, found.verdict) == (1, "beyond mixing")


def test_picking_among_many_worthless_weights_does_not_look_like_a_gain() -> None:
    """Random choices at one price.

    The best of 50 looks good on the rows that picked it, and not on the others.
    """
    verdicts = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        scores = (rng.random((300, 2)) < 0.6).astype(float)
        choices = rng.integers(0, 2, size=(50, 300))
        verdicts.append(
            savings(choices, scores, np.full((300, 2), 0.002), reference=1, seed=seed).verdict
        )
    assert (
        verdicts.count("gained") + verdicts.count("saved") <= 4
    )  # one in forty is what 95% allows on this side


def test_groups_stay_on_one_side() -> None:
    # were groups split, the bootstrap would see more than five of ten groups on the measured side
    groups = np.repeat([f"g{index}" for index in range(10)], 100)
    choices = np.stack([np.ones(1000, dtype=int), PERFECT])
    assert savings(choices, SCORES, DOLLARS, groups).rows % 100 == 0
    assert savings(choices, SCORES, DOLLARS, ["one"] * 1000).rows == 500


def test_a_group_larger_than_half_still_leaves_rows_on_both_sides() -> None:
    groups = ["big"] * 990 + ["small"] * 10
    for seed in range(4):
        assert savings(np.stack([PERFECT]), SCORES, DOLLARS, groups, seed=seed).rows in (10, 990)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ArgumentError, match="margin"):
        savings(PERFECT, SCORES, DOLLARS, margin=-1)
    with pytest.raises(ArgumentError, match="reference"):
        savings(PERFECT, SCORES, DOLLARS, reference=2)
    with pytest.raises(ArgumentError, match="reference"):
        savings(PERFECT, SCORES, DOLLARS, reference="most expensive")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="4 rows"):
        savings(PERFECT[None, :3], SCORES[:3], DOLLARS[:3])
    with pytest.raises(ShapeError, match="W, n"):
        savings(np.zeros((1, 1, 3), dtype=int), SCORES[:3], DOLLARS[:3])


def test_figures_are_written_as_people_write_them() -> None:
    assert [format_dollars(value) for value in (4.5, 0.5, 0.0123, 1e6)] == [
        "$4.50",
        "$0.50",
        "$0.012",
        "$1,000,000.00",
    ]
    assert [format_score(value) for value in (0.0, 0.8, 0.8256, 0.9999)] == [
        "0.00",
        "0.80",
        "0.826",
        "1.00",
    ]
    assert as_percent(Interval(0.001, -0.002, 0.5)) == "0% less [0, 50]"
    assert format_points(Interval(-0.0001, -0.011, 0.02)) == "0.0 points [-1.1, 2.0]"
