"""The loss against figures worked out by hand, and inside a router."""

import numpy as np
import torch
from mildroute.routers import CustomLossRouter
from mildroute_plugin_focal_loss import focal_loss


def test_the_loss_by_hand() -> None:
    """Two experts, the second 0.5 more expensive: at equal scores 0.5 x (1 - 0.5) x log 2.

    An easy row counts far less.
    """
    costs = torch.tensor([[0.0, 0.5], [0.0, 0.5]])
    equal, easy = focal_loss(torch.tensor([[0.0, 0.0], [5.0, 0.0]]), costs).tolist()
    assert abs(equal - 0.25 * np.log(2)) < 1e-6
    assert 0 < easy < 0.001 * equal


def test_a_router_learns_by_it() -> None:
    X = np.random.default_rng(0).normal(size=(200, 3))
    costs = np.stack([X[:, 0] > 0, X[:, 0] <= 0], axis=1).astype(float)
    assert CustomLossRouter("focal", random_state=0).fit(X, costs).score(X, costs) > -0.05
