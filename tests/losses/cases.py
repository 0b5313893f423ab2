"""Random problems of a given size, and every loss as a case that takes one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import product

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from mildroute.losses import (
    cost_sensitive_loss,
    cost_sensitive_margin_loss,
    cost_sensitive_zero_one_loss,
    cross_entropy,
    deferral_loss,
    hinge_loss,
    ldam_loss,
    pairwise_loss,
    tdef_loss,
    weighted_cross_entropy,
)

seeds = st.integers(0, 2**32 - 1)
taus = st.floats(0, 3)


@dataclass(frozen=True)
class Problem:
    """Everything that a loss may ask for, on the same n rows and p experts."""

    scores: Tensor
    rewards: Tensor
    costs: Tensor
    labels: Tensor
    margins: Tensor
    counts: Tensor

    def pick(self, rows: Tensor) -> Problem:
        """The problem of these rows alone."""
        return replace(
            self,
            scores=self.scores[rows],
            rewards=self.rewards[rows],
            costs=self.costs[rows],
            labels=self.labels[rows],
        )

    def permute(self, order: Tensor) -> Problem:
        """The problem whose expert i is this one's expert ``order[i]``."""
        columns = (self.scores[:, order], self.rewards[:, order], self.costs[:, order])
        return Problem(
            *columns, order.argsort()[self.labels], self.margins[order], self.counts[order]
        )

    def to(self, dtype: torch.dtype) -> Problem:
        """The problem in another floating dtype."""
        tensors = {item.name: getattr(self, item.name) for item in fields(self)}
        return Problem(
            **{
                name: value.to(dtype) if value.is_floating_point() else value
                for name, value in tensors.items()
            }
        )


def draw_problem(
    seed: int,
    rows: int,
    experts: int,
    *,
    spread: float = 3.0,
    ratio: float = 10.0,
    tied: bool = False,
) -> Problem:
    """Scores in [-spread, spread], rewards and costs in [0, 1], margins in [1, ratio].

    Rounded so that ties occur if ``tied``.
    """
    generator = torch.Generator().manual_seed(seed)
    uniform = partial(torch.rand, generator=generator, dtype=torch.float64)
    scores, rewards, costs = (
        spread * (2 * uniform(rows, experts) - 1),
        uniform(rows, experts),
        uniform(rows, experts),
    )
    if tied:
        scores, rewards, costs = scores.round(), (3 * rewards).round() / 3, (3 * costs).round() / 3
    labels = torch.randint(experts, (rows,), generator=generator)
    return Problem(
        scores, rewards, costs, labels, ratio ** uniform(experts), (20 * uniform(experts)).floor()
    )


@st.composite
def problems(draw: st.DrawFn, max_rows: int = 3, max_experts: int = 6) -> Problem:
    """Small problems, half of them with ties."""
    return draw_problem(
        draw(seeds),
        draw(st.integers(1, max_rows)),
        draw(st.integers(2, max_experts)),
        tied=draw(st.booleans()),
    )


def every_problem(
    max_rows: int = 3, max_experts: int = 6, count: int = 500
) -> Callable[[Callable[[Problem], None]], Callable[[], None]]:
    """Run a test on so many problems: all sizes, with ties and without, each again and again.

    A loop, since Hypothesis needs three times as long as the test itself, and cannot shrink a seed.
    """
    shapes = list(product(range(1, max_rows + 1), range(2, max_experts + 1), (False, True)))

    def decorate(test: Callable[[Problem], None]) -> Callable[[], None]:
        def run() -> None:
            for seed in range(count):
                rows, experts, tied = shapes[seed % len(shapes)]
                try:
                    test(draw_problem(seed, rows, experts, tied=tied))
                except AssertionError as error:
                    raise AssertionError(f"{seed=} {rows=} {experts=} {tied=}: {error}") from error

        run.__name__ = test.__name__
        run.__doc__ = test.__doc__
        run.__module__ = test.__module__
        return pytest.mark.no_cover(run)  # type: ignore[no-any-return]

    return decorate


@dataclass(frozen=True)
class Case:
    """A loss, the parts of a problem it takes and its options."""

    function: Callable[..., Tensor]
    takes: tuple[str, ...]
    options: dict[str, object] = field(default_factory=dict)

    def arguments(self, problem: Problem) -> tuple[Tensor, ...]:
        return tuple(getattr(problem, name) for name in self.takes)

    def __call__(self, problem: Problem, **options: object) -> Tensor:
        return self.function(*self.arguments(problem), **self.options, **options)


_REWARDED, _COUNTED = ("scores", "rewards", "margins"), ("scores", "rewards", "counts")
_LABELLED = ("scores", "labels", "costs", "margins")

# Losses with a second derivative everywhere.
SMOOTH: dict[str, Case] = {
    "deferral": Case(deferral_loss, _REWARDED),
    "deferral, tau 0": Case(deferral_loss, _REWARDED, {"tau": 0.0}),
    "deferral, tau 0.5": Case(deferral_loss, _REWARDED, {"tau": 0.5}),
    "deferral, tau 1.5": Case(deferral_loss, _REWARDED, {"tau": 1.5}),
    "pairwise": Case(pairwise_loss, _REWARDED),
    "pairwise, tau 0.5": Case(pairwise_loss, _REWARDED, {"tau": 0.5}),
    "tdef": Case(tdef_loss, ("scores", "rewards")),
    "cross-entropy": Case(cross_entropy, ("scores", "rewards")),
    "weighted cross-entropy": Case(weighted_cross_entropy, _COUNTED),
    "ldam": Case(ldam_loss, _COUNTED, {"s": 3.0}),
    "cost-sensitive, smooth": Case(cost_sensitive_loss, _LABELLED, {"form": "smooth"}),
    "cost-sensitive, smooth, tau 0.5": Case(
        cost_sensitive_loss, _LABELLED, {"form": "smooth", "tau": 0.5}
    ),
}

# Losses with kinks.
PIECEWISE: dict[str, Case] = {
    "hinge": Case(hinge_loss, _REWARDED),
    "cost-sensitive, max": Case(cost_sensitive_loss, _LABELLED),
    "cost-sensitive, max, tau 0": Case(cost_sensitive_loss, _LABELLED, {"tau": 0.0}),
    "cost-sensitive, hinge": Case(cost_sensitive_loss, _LABELLED, {"psi": "hinge"}),
    "cost-sensitive, hinge, smooth": Case(
        cost_sensitive_loss, _LABELLED, {"psi": "hinge", "form": "smooth"}
    ),
    "cost-sensitive margin": Case(cost_sensitive_margin_loss, _LABELLED),
}

TRAINABLE: dict[str, Case] = SMOOTH | PIECEWISE

# Every loss of the package.
LOSSES: dict[str, Case] = TRAINABLE | {
    "cost-sensitive zero-one": Case(cost_sensitive_zero_one_loss, ("scores", "labels", "costs"))
}
