from __future__ import annotations

from math import isnan, log

import numpy as np
import pytest

from mildroute.decision.drift import (
    Drift,
    DriftReference,
    StabilityIndex,
    Window,
    stability,
)
from mildroute.exceptions import ArgumentError

SKEWED = np.array([0.5, 0.3, 0.15, 0.05])


def test_the_index_is_what_its_formula_says() -> None:
    # 1,000 decisions against thirds of 900, half a decision more in each bin of both sides.
    before, now = [(250.5, 500.5, 250.5), (400.5, 300.5, 300.5)]
    by_hand = sum((q - p) * log(q / p) for p, q in zip(before, now, strict=True)) / 1001.5
    assert stability([225, 450, 225], [400, 300, 300]).index == pytest.approx(by_hand, rel=1e-12)


def test_its_noise_is_that_of_both_samples() -> None:
    found = stability([1, 1, 1], [100, 100, 100], rows=600)
    assert found.index == 0.0
    assert found.noise == pytest.approx(2 * (1 / 300 + 1 / 600))
    assert found.limit == pytest.approx(
        13.82 * (1 / 300 + 1 / 600), rel=0.03
    )  # 13.82: the 99.9% quantile of two degrees of freedom


def test_a_bin_that_was_empty_and_still_is_changes_nothing() -> None:
    assert stability([5, 0, 5], [30, 0, 70]) == stability([5, 5], [30, 70])


def test_too_few_decisions_have_no_index() -> None:
    few = stability([1, 1, 1], [5, 5, 4])
    assert isnan(few.index)
    assert isnan(few.corrected)
    assert few.reading == "unknown"
    assert stability([1, 1], [0, 0]).reading == "unknown"


@pytest.mark.parametrize(
    ("index", "reading"), [(0.05, "steady"), (0.11, "steady"), (0.2, "moved"), (0.27, "shifted")]
)
def test_the_reading_is_the_usual_one_of_what_is_above_noise(index: float, reading: str) -> None:
    assert StabilityIndex(index, noise=0.015, limit=0.04, decisions=600).reading == reading


def test_nothing_is_read_into_what_chance_alone_can_do() -> None:
    assert StabilityIndex(0.5, noise=0.18, limit=0.56, decisions=50).reading == "steady"


@pytest.mark.parametrize("decisions", [60, 500])
@pytest.mark.parametrize("rows", [300, 100_000])
def test_without_drift_the_index_is_its_noise_on_average_and_alarms_are_rare(
    decisions: int, rows: int
) -> None:
    rng = np.random.default_rng(decisions + rows)
    found = [
        stability(
            rng.multinomial(rows, SKEWED).tolist(),
            rng.multinomial(decisions, SKEWED).tolist(),
            rows,
        )
        for _ in range(1000)
    ]
    assert np.mean([one.index for one in found]) == pytest.approx(found[0].noise, rel=0.12)
    assert np.mean([one.index > one.limit for one in found]) <= 0.005
    assert np.mean([one.reading != "steady" for one in found]) <= 0.005


def test_a_real_shift_is_seen_in_nearly_every_window() -> None:
    rng = np.random.default_rng(0)
    shifted = [0.2, 0.3, 0.3, 0.2]  # an index of 0.59
    readings = [
        stability(SKEWED.tolist(), rng.multinomial(200, shifted).tolist()).reading
        for _ in range(500)
    ]
    assert np.mean([reading == "shifted" for reading in readings]) > 0.98


def test_a_window_forgets_whole_panes() -> None:
    window = Window(2, 80)
    for _ in range(80):
        window.add(0)
    assert window.counts() == [80, 0]
    window.add(1)
    assert window.counts() == [70, 1]
    for _ in range(79):
        window.add(1)
    assert window.counts() == [0, 80]


def posteriors(
    rng: np.random.Generator, decisions: int, lift: float = 0.0
) -> list[tuple[float, float]]:
    tops = np.clip(rng.beta(8, 2, decisions) / 2 + 0.5 - lift, 0.5, 1.0)
    firsts = rng.random(decisions) < 0.7
    return [
        (float(top), 1 - float(top)) if first else (1 - float(top), float(top))
        for top, first in zip(tops, firsts, strict=True)
    ]


def reference_of(
    predictions: list[tuple[float, float]], point: float | None = None
) -> DriftReference:
    rows = np.array(predictions)
    histogram = np.histogram(rows.max(axis=1), bins=20, range=(0.0, 1.0))[0]
    return DriftReference(np.bincount(rows.argmax(axis=1)) / len(rows), histogram, len(rows), point)


def test_scores_that_fall_are_seen_though_the_shares_stay() -> None:
    rng = np.random.default_rng(1)
    drift = Drift(["a", "b"], reference_of(posteriors(rng, 3000)))
    for prediction in posteriors(rng, 2000):
        drift.add(prediction)
    calm = drift.report()
    assert (calm.source, calm.scores.reading, calm.shares.reading) == (
        "training",
        "steady",
        "steady",
    )
    for prediction in posteriors(rng, 2000, lift=0.15):
        drift.add(prediction)
    moved = drift.report()
    assert (moved.scores.reading, moved.shares.reading) == ("shifted", "steady")


def test_without_a_reference_the_first_decisions_are_it() -> None:
    rng = np.random.default_rng(2)
    drift = Drift(["a", "b"], window=800)
    for prediction in posteriors(rng, 799):
        drift.add(prediction)
    assert drift.report().source == "learning"
    assert drift.report().scores.reading == "unknown"
    drift.add((0.9, 0.1))
    assert drift.report().source == "first decisions"
    for prediction in posteriors(rng, 800):
        drift.add(prediction)
    assert drift.report().scores.reading == drift.report().shares.reading == "steady"
    for _ in range(800):
        drift.add((0.1, 0.9))
    assert drift.report().shares.reading == "shifted"


def test_decisions_at_another_operating_point_are_left_out() -> None:
    drift = Drift(["a", "b"], DriftReference((0.5, 0.5), (0, 1), rows=100, point=5.0))
    for _ in range(100):
        drift.add((0.9, 0.1), 7.0)
    assert drift.report().shares.decisions == 0
    drift.add((0.9, 0.1), 5.0)
    assert drift.report().shares.decisions == 1


def test_certainty_falls_into_the_last_bin() -> None:
    drift = Drift(["a", "b"], DriftReference((1, 1), (1, 1)))
    drift.add((1.0, 0.0))
    assert drift.report().scores.decisions == 1


@pytest.mark.parametrize(
    ("shares", "histogram", "rows"),
    [
        ((0, 0), (1,), 10),
        ((1, -1), (1,), 10),
        ((1, 1), (float("nan"),), 10),
        ((1, 1), (1,), 0),
        ((), (1,), 1),
    ],
)
def test_a_reference_that_is_no_distribution_is_refused(
    shares: tuple[float, ...], histogram: tuple[float, ...], rows: float
) -> None:
    with pytest.raises(ArgumentError):
        DriftReference(shares, histogram, rows)


def test_a_reference_of_other_experts_and_a_window_of_nothing_are_refused() -> None:
    with pytest.raises(ArgumentError, match="each of 2 experts, got 3"):
        Drift(["a", "b"], DriftReference((1, 1, 1), (1, 1)))
    with pytest.raises(ArgumentError, match="window"):
        Drift(["a", "b"], window=7)


def test_shares_count_whom_the_coin_chose() -> None:
    rng = np.random.default_rng(3)
    drift = Drift(["a", "b"], DriftReference((0.3, 0.7), (0, 1), rows=2000, point="between"))
    for chosen in rng.random(2000) < 0.7:
        drift.add((0.6, 0.4), "between", int(chosen))
        drift.add((0.6, 0.4), "elsewhere", 0)
    found = drift.report()
    assert (found.shares.decisions, found.shares.reading) == (2000, "steady")
    for _ in range(2000):
        drift.add((0.6, 0.4), "between")
    assert drift.report().shares.reading == "shifted"
