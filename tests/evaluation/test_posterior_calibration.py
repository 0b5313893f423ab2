"""Calibration error and Brier score of the posterior over experts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from mildroute.evaluation.posterior_calibration import brier_score, calibration_error, reliability
from mildroute.exceptions import ArgumentError, ShapeError
from tests.support.evaluation_cases import tables

POSTERIOR = np.array([[0.8, 0.2], [0.75, 0.25], [0.45, 0.55], [0.0, 1.0]])
COSTS = np.array([[0, 1], [1, 0], [0, 0], [1, 0]])


def test_calibration_error_by_hand() -> None:
    # bins of .25: (.5, .75] holds .75 (lost) and .55 (tie, won); (.75, 1] holds .8 and 1, both won
    rows, confidence, won = reliability(POSTERIOR, COSTS, bins=4)
    assert rows.tolist() == [0, 0, 2, 2]
    assert confidence[2:] == pytest.approx([0.65, 0.9])
    assert won[2:].tolist() == [0.5, 1.0]
    assert calibration_error(POSTERIOR, COSTS, bins=4) == pytest.approx((2 * 0.15 + 2 * 0.1) / 4)


def test_brier_score_by_hand() -> None:
    rows = [2 * 0.2**2, 2 * 0.75**2, 2 * 0.05**2, 0.0]
    assert brier_score(POSTERIOR, COSTS) == pytest.approx(np.mean(rows))


def test_a_sure_and_right_posterior_has_no_error() -> None:
    assert calibration_error(np.eye(2), 1 - np.eye(2)) == 0
    assert brier_score(np.eye(2), 1 - np.eye(2)) == 0


@given(tables())
def test_both_stay_within_their_bounds(table: tuple[np.ndarray, np.ndarray]) -> None:
    costs, choice = table
    posterior = np.full(costs.shape, 0.5 / costs.shape[1])
    posterior[np.arange(len(choice)), choice] += 0.5
    assert 0 <= calibration_error(posterior, costs) <= 1
    assert 0 <= brier_score(posterior, costs) <= 2
    assert brier_score(posterior[:, ::-1], costs[:, ::-1]) == pytest.approx(
        brier_score(posterior, costs)
    )


def test_what_is_no_posterior_is_refused() -> None:
    with pytest.raises(ArgumentError, match="sum to 1"):
        calibration_error([[0.9, 0.9]], [[0, 1]])
    with pytest.raises(ShapeError, match="posterior"):
        brier_score([[1.0]], [[0, 1]])
    with pytest.raises(ArgumentError, match="bins"):
        calibration_error([[1.0, 0.0]], [[0, 1]], bins=0)
