"""Two experts on which the paper's consistency bound fails, worked by hand.

Posterior (.6, .4), margins (2, 1). The conditional surrogate is ``.6 log(1 + e^(-d/2)) + .4 log(1 +
e^d)`` with d = f1 - f2. Its slope at d = 0 is ``-.6 / 4 + .4 / 2 = +.05``, so the minimum lies at d
< 0, where the largest score is the second expert's, although the first is the better one: target
regret .2 at surrogate regret 0, where the bound ``sqrt(2 * surrogate regret)`` claims 0.
"""

from __future__ import annotations

import math

import pytest
import torch
from scipy.optimize import brentq

from mildroute.losses.decision import choose, posterior
from mildroute.losses.functional import deferral_loss

BETTER, WORSE = 0.6, 0.4
MARGINS = torch.tensor([2.0, 1.0], dtype=torch.float64)
REWARDS = torch.tensor([[BETTER, WORSE]], dtype=torch.float64)


def risk(d: float) -> float:
    return BETTER * math.log1p(math.exp(-d / 2)) + WORSE * math.log1p(math.exp(d))


def slope(d: float) -> float:
    return -BETTER / 2 / (1 + math.exp(d / 2)) + WORSE / (1 + math.exp(-d))


def minimiser() -> float:
    return float(brentq(slope, -5, 5, xtol=1e-14))


def scores_at(d: float) -> torch.Tensor:
    return torch.tensor([[d, 0.0]], dtype=torch.float64)


def test_the_loss_is_the_risk_of_the_example() -> None:
    for d in (-2.0, minimiser(), 0.0, 3.0):
        assert deferral_loss(scores_at(d), REWARDS, MARGINS).item() == pytest.approx(
            risk(d), rel=1e-12
        )


def test_the_slope_at_equal_scores_points_to_the_worse_expert() -> None:
    assert slope(0.0) == pytest.approx(0.05)
    scores = scores_at(0.0).requires_grad_()
    (gradient,) = torch.autograd.grad(deferral_loss(scores, REWARDS, MARGINS), scores)
    assert gradient[0].tolist() == pytest.approx([0.05, -0.05])


def test_the_minimiser_is_below_zero() -> None:
    assert minimiser() == pytest.approx(-0.36687, abs=5e-6)
    assert risk(minimiser()) < risk(0.0)


def test_training_on_the_loss_reaches_the_minimiser() -> None:
    d = torch.zeros((), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [d],
        max_iter=50,
        tolerance_grad=1e-12,
        tolerance_change=1e-15,
        line_search_fn="strong_wolfe",
    )

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = deferral_loss(torch.stack([d, torch.zeros_like(d)])[None], REWARDS, MARGINS)
        loss.backward()
        return loss

    optimizer.step(closure)
    assert d.item() == pytest.approx(minimiser(), abs=1e-6)


def test_argmax_picks_the_worse_expert_at_zero_surrogate_regret() -> None:
    chosen = int(choose(scores_at(minimiser()), MARGINS, decision="argmax"))
    assert chosen == 1
    target_regret = BETTER - REWARDS[0, chosen].item()
    claimed = math.sqrt(2 * (risk(minimiser()) - risk(minimiser())))
    assert target_regret == pytest.approx(0.2)
    assert target_regret > claimed == 0


def test_decoding_gives_back_the_posterior_and_the_better_expert() -> None:
    scores = scores_at(minimiser())
    assert posterior(scores, MARGINS)[0].tolist() == pytest.approx([BETTER, WORSE], abs=1e-9)
    assert choose(scores, MARGINS).tolist() == [0]


def test_the_worse_expert_wins_by_argmax_exactly_where_its_share_over_margin_is_larger() -> None:
    """The minimiser prefers the first expert if and only if ``p1 / rho1 > p2 / rho2``, here p1 >
    2/3.
    """
    for share in (0.55, 0.6, 0.65, 0.68, 0.75, 0.9):
        root = brentq(
            lambda d, share=share: (
                -share / 2 / (1 + math.exp(d / 2)) + (1 - share) / (1 + math.exp(-d))
            ),
            -20,
            20,
        )
        assert (root > 0) == (share > 2 / 3)
        assert posterior(scores_at(root), MARGINS)[0, 0].item() == pytest.approx(share, abs=1e-9)
