"""What logged decisions say about two routers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mildroute.learning.traffic import RouterPair, read_traffic, scored_rows
from tests.learning.world import DOLLARS, SKILL, SONGS, World, ideal_router

WEIGHT, BOUND = 10.0, 1.1


def true_gain() -> float:
    """The mean cost of the small expert minus that of the ideal router, worked out by hand."""
    small = 1 - SKILL["small"][1] + WEIGHT * DOLLARS["small"]
    large = 1 - SKILL["large"][1] + WEIGHT * DOLLARS["large"]
    return SONGS * (small - large)  # both send sums to the small expert


@pytest.mark.parametrize(("exploration", "sampling"), [(0.4, 0.0), (0.0, 1.0), (0.3, 0.5)])
def test_gains_have_the_true_mean(tmp_path: Path, exploration: float, sampling: float) -> None:
    World(tmp_path, exploration=exploration, sampling=sampling).serve(3000)
    pair = RouterPair(ideal_router(), None, WEIGHT, BOUND, 0.1)
    gains, bounds = pair.gains(read_traffic(tmp_path))
    assert (np.abs(gains) <= bounds + 1e-9).all()
    error = gains.std() / np.sqrt(len(gains))
    assert gains.mean() == pytest.approx(true_gain(), abs=4 * error)
    assert len(gains) > 2900


def test_what_was_never_drawn_shows_nothing(tmp_path: Path) -> None:
    World(tmp_path).serve(50)
    rows = read_traffic(tmp_path)
    assert len(scored_rows(rows)) == 50
    pair = RouterPair(ideal_router(), None, WEIGHT, BOUND, 0.01)
    # Songs would go to the large expert, whose answers nobody has seen.
    gains, _ = pair.gains(rows)
    assert 0 < len(gains) < 50
    assert not gains.any()


def test_answers_of_fallbacks_do_not_count(tmp_path: Path) -> None:
    World(tmp_path, exploration=0.5).serve(50, served_by="other")
    gains, _ = RouterPair(ideal_router(), None, WEIGHT, BOUND, 0.01).gains(read_traffic(tmp_path))
    assert len(gains) == 0
