from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from losses.cases import seeds
from mildroute.losses._interpolation import _TOLERANCE, _chebyshev, interpolation_nodes, node_count
from mildroute.losses._logsumexp import log_margin_sum

CPU = torch.device("cpu")
dtypes = st.sampled_from([torch.float32, torch.float64])
experts_up_to_2000 = st.integers(4, 2000)
gaps = st.floats(math.log(0.1), math.log(3000)).map(math.exp)
Levels = list[tuple[int, float]]


def log_sum(levels: Levels, inverse: Tensor) -> Tensor:
    """``logsumexp(t * scores)`` where ``count`` experts lie ``gap`` below the best one, for each
    level.
    """
    return torch.log(
        sum((count * torch.exp(-inverse * gap) for count, gap in levels), torch.zeros_like(inverse))
    )


def interpolation_error(experts: int, ratio: float, levels: Levels, dtype: torch.dtype) -> float:
    """Largest error over margins from 1 to ``ratio`` with that dtype's nodes, rounding aside."""
    margins = torch.logspace(0, math.log10(ratio), 400, dtype=torch.float64)
    nodes, weights = _chebyshev(
        tuple(margins.tolist()), node_count(experts, ratio, _TOLERANCE[dtype])
    )
    return float((weights @ log_sum(levels, nodes) - log_sum(levels, 1 / margins)).abs().max())


def critical_gap(experts: int, position: float, ratio: float) -> float:
    """A gap at which the one expert above weighs as much as all others, at a margin between 1 and
    ``ratio``.
    """
    return math.log(experts - 1) * ratio**position


@settings(max_examples=500, deadline=None)
@given(
    experts=experts_up_to_2000,
    ratio=st.floats(2, 1000),
    gap=gaps,
    position=st.floats(-0.2, 1.2),
    dtype=dtypes,
)
def test_one_expert_above_equal_ones_stays_within_tolerance(
    experts: int, ratio: float, gap: float, position: float, dtype: torch.dtype
) -> None:
    for below in (gap, critical_gap(experts, position, ratio)):
        assert (
            interpolation_error(experts, ratio, [(1, 0.0), (experts - 1, below)], dtype)
            <= _TOLERANCE[dtype]
        )


@settings(max_examples=500, deadline=None)
@given(
    experts=experts_up_to_2000,
    log_ratio=st.floats(-6, math.log10(math.log(2))),
    position=st.floats(-0.2, 1.2),
    dtype=dtypes,
)
def test_nearly_equal_margins_stay_within_tolerance(
    experts: int, log_ratio: float, position: float, dtype: torch.dtype
) -> None:
    """Ratios of margins from 1.000001 to 2, as large offsets give them."""
    ratio = math.exp(10**log_ratio)
    levels = [(1, 0.0), (experts - 1, critical_gap(experts, position, ratio))]
    assert interpolation_error(experts, ratio, levels, dtype) <= _TOLERANCE[dtype]


@settings(max_examples=500, deadline=None)
@given(
    experts=experts_up_to_2000,
    ratio=st.floats(2, 1000),
    gap=gaps,
    share=st.floats(0, 1),
    dtype=dtypes,
)
def test_several_experts_above_equal_ones_stay_within_tolerance(
    experts: int, ratio: float, gap: float, share: float, dtype: torch.dtype
) -> None:
    above = 1 + int(share * (experts - 2))
    assert (
        interpolation_error(experts, ratio, [(above, 0.0), (experts - above, gap)], dtype)
        <= _TOLERANCE[dtype]
    )


@settings(max_examples=500, deadline=None)
@given(
    experts=experts_up_to_2000,
    ratio=st.floats(2, 1000),
    gap=gaps,
    factor=st.floats(1, 100),
    seed=seeds,
    dtype=dtypes,
)
def test_three_levels_of_scores_stay_within_tolerance(
    experts: int, ratio: float, gap: float, factor: float, seed: int, dtype: torch.dtype
) -> None:
    first, second = sorted(
        torch.randint(1, experts, (2,), generator=torch.Generator().manual_seed(seed)).tolist()
    )
    levels = [(first, 0.0), (second - first, gap), (experts - second, gap * factor)]
    assert interpolation_error(experts, ratio, levels, dtype) <= _TOLERANCE[dtype]


@settings(max_examples=500, deadline=None)
@given(
    seed=seeds,
    experts=st.integers(30, 90),
    ratio=st.floats(1.5, 1000),
    gap=gaps,
    levels=st.integers(2, 3),
)
def test_surprises_of_few_levels_are_exact_to_rounding(
    seed: int, experts: int, ratio: float, gap: float, levels: int
) -> None:
    """End to end, in both dtypes: the interpolated form against one logsumexp a margin."""
    generator = torch.Generator().manual_seed(seed)
    scores = -gap * torch.randint(levels, (2, experts), generator=generator).to(torch.float64)
    scores[:, 0] = gap
    for dtype, limit in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
        margins = torch.logspace(0, math.log10(ratio), experts, dtype=dtype)
        rounded = scores.to(dtype)
        exact = (
            torch.logsumexp(rounded.double()[:, None, :] / margins.double()[:, None], dim=2)
            - rounded.double() / margins.double()
        )
        error = (log_margin_sum(rounded, margins).double() - exact).abs() / exact.clamp_min(1)
        assert error.max() <= limit


def test_equal_margins_need_one_node() -> None:
    nodes = interpolation_nodes((4.0,) * 5, torch.float32, CPU)
    assert nodes.inverse.tolist() == [0.25]
    assert nodes.weights.tolist() == [[1.0]] * 5


def test_few_distinct_margins_are_their_own_nodes() -> None:
    nodes = interpolation_nodes((2.0, 1.0, 2.0, 4.0), torch.float64, CPU)
    assert nodes.inverse.tolist() == [1.0, 0.5, 0.25]
    assert nodes.weights.tolist() == [[0, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]


def test_repeated_margins_share_exact_nodes() -> None:
    assert interpolation_nodes((1.0, 2.0, 4.0) * 300, torch.float32, CPU).inverse.tolist() == [
        1.0,
        0.5,
        0.25,
    ]


def test_two_distinct_margins_are_served_exactly_however_near() -> None:
    assert len(interpolation_nodes((1.0, 1.0 + 1e-12) * 500, torch.float64, CPU).inverse) == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_many_margins_share_few_nodes(dtype: torch.dtype) -> None:
    margins = tuple(torch.logspace(0, 1, 1000, dtype=torch.float64).tolist())
    nodes = interpolation_nodes(margins, dtype, CPU)
    assert nodes.inverse.dtype == nodes.weights.dtype == dtype
    assert nodes.weights.shape == (1000, len(nodes.inverse))
    assert len(nodes.inverse) < 100
    assert nodes.inverse.min() >= 0.1
    assert nodes.inverse.max() <= 1
    assert (nodes.weights.sum(dim=1) - 1).abs().max() <= 1e-5


def test_a_margin_on_a_node_takes_its_value() -> None:
    _, weights = _chebyshev((1.0, 2.0, 4.0), 5)
    assert weights[1].tolist() == [0, 0, 1, 0, 0]


def test_polynomials_in_the_logarithm_are_interpolated_exactly() -> None:
    margins = torch.logspace(0, 1, 50, dtype=torch.float64)
    nodes, weights = _chebyshev(tuple(margins.tolist()), 4)
    for power in range(4):
        torch.testing.assert_close(
            weights @ nodes.log() ** power, (-margins.log()) ** power, rtol=1e-12, atol=1e-12
        )


def test_wider_margins_more_experts_and_smaller_errors_need_more_nodes() -> None:
    assert node_count(100, 10.0, 1e-5) < node_count(100, 100.0, 1e-5)
    assert node_count(100, 10.0, 1e-5) < node_count(1000, 10.0, 1e-5)
    assert node_count(100, 10.0, 1e-5) < node_count(100, 10.0, 1e-10)
    assert node_count(2, 10.0, 1e-5) >= 1
