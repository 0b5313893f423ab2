from __future__ import annotations

import pytest
import torch

from mildroute.exceptions import ArgumentError, ShapeError
from mildroute.losses.reduction import reduce_rows

LOSSES, WEIGHTS = torch.tensor([1.0, 2.0, 6.0]), torch.tensor([1.0, 0.0, 3.0])


def test_without_weights_rows_count_equally() -> None:
    assert reduce_rows(LOSSES, None, "mean").item() == 3
    assert reduce_rows(LOSSES, None, "sum").item() == 9
    assert torch.equal(reduce_rows(LOSSES, None, "none"), LOSSES)


def test_weights_multiply_and_the_mean_divides_by_their_sum() -> None:
    assert reduce_rows(LOSSES, WEIGHTS, "mean").item() == 19 / 4
    assert reduce_rows(LOSSES, WEIGHTS, "sum").item() == 19
    assert reduce_rows(LOSSES, WEIGHTS, "none").tolist() == [1, 0, 18]


def test_whole_number_weights_take_the_dtype_of_the_losses() -> None:
    assert reduce_rows(LOSSES, torch.tensor([2, 1, 1]), "mean").dtype == LOSSES.dtype
    assert reduce_rows(LOSSES.double(), WEIGHTS, "sum").dtype == torch.float64


def test_an_unknown_reduction_is_refused() -> None:
    with pytest.raises(ArgumentError, match="'median'"):
        reduce_rows(LOSSES, None, "median")  # type: ignore[arg-type]


def test_weights_of_another_length_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"\(2,\)"):
        reduce_rows(LOSSES, torch.ones(2), "mean")
