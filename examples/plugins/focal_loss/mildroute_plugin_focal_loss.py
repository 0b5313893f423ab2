"""Focal loss (Lin et al., 2017) for routers: rows that are easy to route count less."""

from torch import Tensor

GAMMA = 1.0  # 0 gives the loss "gap"; the larger it is, the less easy rows count


def focal_loss(scores: Tensor, costs: Tensor) -> Tensor:
    """Loss of each row, shape (n,), from scores and costs of shape (n, p)."""
    rewards = (
        costs.max(dim=1, keepdim=True).values - costs
    )  # how far each expert is below the dearest of its row
    log_chance = scores.log_softmax(dim=1)
    hardness = (1 - log_chance.exp()) ** GAMMA
    return -(rewards * hardness * log_chance).sum(dim=1)
