from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from mildroute.exceptions import ArgumentError, CostError, MarginError, MildrouteError, ShapeError
from mildroute.losses._checks import (
    as_costs,
    check_costs,
    check_margins,
    check_scores,
    check_tau,
    check_weights,
)


@pytest.mark.parametrize(
    "values",
    [
        [[0, 1], [1, 0]],
        np.array([[0, 1], [1, 0]]),
        np.array([[0, 1], [1, 0]], dtype=np.float32),
        torch.tensor([[0, 1], [1, 0]]),
    ],
)
def test_lists_arrays_and_tensors_become_float64_costs(values: object) -> None:
    costs = as_costs(values)
    assert costs.dtype == torch.float64
    assert costs.tolist() == [[0, 1], [1, 0]]


def test_good_values_pass_unchanged() -> None:
    costs = torch.rand(3, 2)
    assert check_costs(costs) is costs
    assert check_margins(torch.tensor([0.5, 2.0]), experts=2) == [0.5, 2.0]
    check_scores(costs, costs)
    check_weights(torch.ones(3), rows=3)
    check_tau(0.0)


def margins(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(
    ("call", "error", "value"),
    [
        (lambda: as_costs([0.0, 1.0]), ShapeError, r"shape \(2,\)"),
        (lambda: as_costs([[0.0], [1.0]]), ShapeError, r"shape \(2, 1\)"),
        (lambda: as_costs(np.zeros((2, 2, 2))), ShapeError, r"shape \(2, 2, 2\)"),
        (lambda: as_costs([[0.0, float("nan")]]), CostError, "1 non-finite value;"),
        (lambda: as_costs([[float("-inf"), float("nan")]]), CostError, "2 non-finite values;"),
        (lambda: check_scores(torch.zeros(3), torch.zeros(3)), ShapeError, r"shape \(3,\)"),
        (
            lambda: check_scores(torch.zeros(2, 3), torch.zeros(2, 4)),
            ShapeError,
            r"\(2, 3\) and \(2, 4\)",
        ),
        (lambda: check_margins(margins(1.0), experts=2), ShapeError, r"shape \(1,\)"),
        (
            lambda: check_margins(margins(1.0, 2.0)[:, None], experts=2),
            ShapeError,
            r"shape \(2, 1\)",
        ),
        (lambda: check_margins(margins(1.0, 0.0), experts=2), MarginError, "0.0 for expert 1"),
        (lambda: check_margins(margins(-2.5, 1.0), experts=2), MarginError, "-2.5 for expert 0"),
        (
            lambda: check_margins(margins(1.0, float("nan")), experts=2),
            MarginError,
            "nan for expert 1",
        ),
        (
            lambda: check_margins(margins(float("inf"), 1.0), experts=2),
            MarginError,
            "inf for expert 0",
        ),
        (lambda: check_weights(torch.ones(2), rows=3), ShapeError, r"shape \(2,\)"),
        (lambda: check_weights(torch.ones(3, 1), rows=3), ShapeError, r"shape \(3, 1\)"),
        (lambda: check_tau(-0.5), ArgumentError, "-0.5"),
        (lambda: check_tau(float("nan")), ArgumentError, "nan"),
    ],
)
def test_bad_values_are_refused_by_name(
    call: Callable[[], object], error: type[MildrouteError], value: str
) -> None:
    with pytest.raises(error, match=value):
        call()


def test_every_refusal_is_also_a_value_error() -> None:
    assert all(
        issubclass(error, ValueError)
        for error in (ArgumentError, CostError, MarginError, ShapeError)
    )
