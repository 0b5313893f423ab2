"""A torch module that wraps a loss function and its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from torch import Tensor, nn

__all__ = ["Loss", "LossModule"]


# Any function of scores and rewards; a custom loss needs nothing else.
Loss: TypeAlias = Callable[..., Tensor]


class LossModule(nn.Module):
    """A loss function with its arguments.

    Tensor arguments move with the module and are saved with it.

    Args:
        function: A loss of :mod:`mildroute.losses.functional`, or a custom one.
        arguments: Keyword arguments passed to every call.

    Example:
        >>> import torch
        >>> from mildroute.losses.functional import deferral_loss
        >>> loss = LossModule(deferral_loss, margins=torch.ones(2), tau=1.0)
        >>> loss(torch.zeros(1, 2), torch.tensor([[1.0, 0.0]]))
        tensor(0.6931)
        >>> loss
        LossModule(deferral_loss, tau=1.0)
    """

    def __init__(self, function: Loss, **arguments: object) -> None:
        super().__init__()
        self.function = function
        self.constants = {
            name: value for name, value in arguments.items() if not isinstance(value, Tensor)
        }
        for name, value in arguments.items():
            if isinstance(value, Tensor):
                self.register_buffer(name, value)

    def forward(self, scores: Tensor, rewards: Tensor) -> Tensor:
        """Call the function with the stored arguments."""
        return self.function(scores, rewards, **self.constants, **self._buffers)

    def extra_repr(self) -> str:
        """Return the function's name and its non-tensor arguments."""
        constants = [f"{name}={value!r}" for name, value in self.constants.items()]
        return ", ".join([getattr(self.function, "__name__", repr(self.function)), *constants])
