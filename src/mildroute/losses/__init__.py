"""The mathematics of deferral: rewards, margins, losses, decisions and bounds.

The package needs only torch. Each loss is a module of scores and costs, and also a function of
scores and rewards. A router in PyTorch needs a network with one output per
expert, and a loss:

    >>> import torch
    >>> from mildroute.losses import MILDLoss, choose
    >>> inputs = torch.linspace(-1, 1, 64)[:, None]
    >>> costs = torch.cat([inputs > 0.5, inputs <= 0.5], dim=1).float()
    >>> router, loss = torch.nn.Linear(1, 2), MILDLoss.from_costs(costs)
    >>> optimizer = torch.optim.Adam(router.parameters(), lr=0.1, weight_decay=1e-4)
    >>> for _ in range(200):
    ...     optimizer.zero_grad()
    ...     loss(router(inputs), costs).backward()
    ...     optimizer.step()
    >>> choose(router(torch.tensor([[0.0], [1.0]])), loss.margins)
    tensor([0, 1])
"""

from __future__ import annotations

from mildroute._optional import needs_extra

with needs_extra("torch", extra="torch", user=__name__):
    import torch  # noqa: F401

from mildroute.losses._checks import as_costs
from mildroute.losses.bounds import (
    ComplexityEstimate,
    MarginBound,
    deferral_margin_bound,
    empirical_margin_loss,
    expected_margin_bound,
    margin_bound,
    rademacher_bound,
    rademacher_complexity,
)
from mildroute.losses.consistency import minimizability_gap
from mildroute.losses.cost_sensitive import (
    cost_sensitive_loss,
    cost_sensitive_margin_loss,
    cost_sensitive_zero_one_loss,
    label_costs,
    rho_margin_loss,
    upper_bound_scale,
)
from mildroute.losses.decision import choose, chosen_costs, log_posterior, posterior, rank
from mildroute.losses.functional import (
    cross_entropy,
    deferral_loss,
    hinge_loss,
    ldam_loss,
    pairwise_loss,
    tdef_loss,
    weighted_cross_entropy,
)
from mildroute.losses.loss_module import LossModule
from mildroute.losses.margins import feature_norms, reward_mass, theory_margins, winner_counts
from mildroute.losses.modules import (
    CostSensitiveLoss,
    CrossEntropyLoss,
    LDAMLoss,
    MILDLoss,
    TDEFLoss,
)
from mildroute.losses.rewards import (
    complement_rewards,
    complement_scale,
    gap_rewards,
    rewards_of,
    sum_rewards,
    winner_targets,
)

__all__ = [
    "ComplexityEstimate",
    "CostSensitiveLoss",
    "CrossEntropyLoss",
    "LDAMLoss",
    "LossModule",
    "MILDLoss",
    "MarginBound",
    "TDEFLoss",
    "as_costs",
    "choose",
    "chosen_costs",
    "complement_rewards",
    "complement_scale",
    "cost_sensitive_loss",
    "cost_sensitive_margin_loss",
    "cost_sensitive_zero_one_loss",
    "cross_entropy",
    "deferral_loss",
    "deferral_margin_bound",
    "empirical_margin_loss",
    "expected_margin_bound",
    "feature_norms",
    "gap_rewards",
    "hinge_loss",
    "label_costs",
    "ldam_loss",
    "log_posterior",
    "margin_bound",
    "minimizability_gap",
    "pairwise_loss",
    "posterior",
    "rademacher_bound",
    "rademacher_complexity",
    "rank",
    "reward_mass",
    "rewards_of",
    "rho_margin_loss",
    "sum_rewards",
    "tdef_loss",
    "theory_margins",
    "upper_bound_scale",
    "weighted_cross_entropy",
    "winner_counts",
    "winner_targets",
]
