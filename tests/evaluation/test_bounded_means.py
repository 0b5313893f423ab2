"""The lower limit of a mean that survives rows without a loss."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta

from mildroute.evaluation.bounded_means import bounded_mean_lower
from mildroute.exceptions import ArgumentError


@pytest.mark.parametrize(("losses", "rows"), [(0, 1), (0, 30), (1, 40), (5, 100), (50, 300)])
def test_of_losses_that_are_0_or_1_it_is_the_exact_limit(losses: int, rows: int) -> None:
    """Clopper and Pearson: the 97.5% quantile of Beta(losses + 1, rows - losses)."""
    values = -(np.arange(rows) < losses).astype(float)
    assert bounded_mean_lower(values, -1.0) == pytest.approx(
        -beta.ppf(0.975, losses + 1, rows - losses), rel=0.06
    )


def test_of_many_rows_it_is_students_limit() -> None:
    values = np.random.default_rng(0).uniform(-1, 1, size=3000)
    assert bounded_mean_lower(values, -1.0) == pytest.approx(
        values.mean() - 1.96 * values.std() / np.sqrt(3000), abs=0.002
    )


def test_rows_that_repeat_within_groups_count_once() -> None:
    values = np.repeat(np.random.default_rng(0).uniform(-1, 1, size=20), 50)
    groups = np.repeat(np.arange(20), 50)
    assert bounded_mean_lower(values, -1.0, groups) == pytest.approx(
        bounded_mean_lower(values[::50], -1.0), abs=0.02
    )
    assert bounded_mean_lower(values, -1.0, ["one"] * 1000) == bounded_mean_lower(values, -1.0)


def test_more_confidence_goes_lower_and_a_confidence_in_percent_is_refused() -> None:
    assert bounded_mean_lower(np.zeros(50), -1.0, confidence=0.99) < bounded_mean_lower(
        np.zeros(50), -1.0, confidence=0.9
    )
    with pytest.raises(ArgumentError, match="confidence"):
        bounded_mean_lower(np.zeros(50), -1.0, confidence=95)
