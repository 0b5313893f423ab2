from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from mildroute.exceptions import ArgumentError
from mildroute.routers._adam import TrainingConfig, _Adam, holdout_split, train_adam

ROWS = np.arange(40)


def schedule(**options: Any) -> TrainingConfig:
    return TrainingConfig(
        **({"learning_rate": 0.1, "weight_decay": 0.0, "max_epochs": 50, "seed": 0} | options)
    )


def square(parameters: Any, rows: Any) -> torch.Tensor:
    return ((parameters[0] - 3) ** 2).sum()


def test_steps_are_those_of_torch() -> None:
    start = torch.tensor([1.0, -2.0, 0.5])
    ours, theirs = start.clone().requires_grad_(), start.clone().requires_grad_()
    adam = _Adam([ours], schedule(weight_decay=0.3))
    reference = torch.optim.Adam([theirs], lr=0.1, weight_decay=0.3)
    for _ in range(25):
        adam.step(torch.autograd.grad((ours**4).sum(), [ours]))
        reference.zero_grad()
        (theirs**4).sum().backward()
        reference.step()
    torch.testing.assert_close(ours, theirs)


def test_the_epoch_with_the_lowest_risk_is_returned() -> None:
    risks = iter([5.0, 4.0, 1.0, 2.0, *[3.0] * 100])
    seen = []

    def risk(parameters: Any) -> float:
        seen.append(parameters[0].copy())
        return next(risks)

    [found] = train_adam([np.zeros(1)], square, risk, ROWS, schedule())
    np.testing.assert_array_equal(found, seen[2])
    assert len(seen) == 13  # the start, two epochs that improve, ten that do not


def test_the_start_is_kept_where_training_does_not_help() -> None:
    [found] = train_adam(
        [np.zeros(1)], square, lambda parameters: float(parameters[0][0]), ROWS, schedule()
    )
    np.testing.assert_array_equal(found, [0.0])


def test_every_row_is_seen_once_an_epoch_in_an_order_of_the_seed() -> None:
    def order(seed: int) -> list[int]:
        batches: list[int] = []

        def loss(parameters: Any, rows: Any) -> torch.Tensor:
            batches.extend(rows)
            return square(parameters, rows)

        train_adam([np.zeros(1)], loss, lambda _: 0.0, ROWS, schedule(max_epochs=1, seed=seed))
        return batches

    assert sorted(order(0)) == list(ROWS)
    assert order(0) == order(0) != order(1)


def test_a_tenth_of_the_rows_is_held_out() -> None:
    seen, held_out = holdout_split(1000, seed=3)
    assert len(held_out) == 100
    assert sorted([*seen, *held_out]) == list(range(1000))
    assert not np.array_equal(held_out, holdout_split(1000, seed=4)[1])


@pytest.mark.parametrize(
    "wrong", [{"learning_rate": 0.0}, {"weight_decay": -1.0}, {"max_epochs": 0}]
)
def test_impossible_schedules_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        schedule(**wrong)


def test_training_leaves_the_global_random_state_alone() -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    train_adam([np.zeros(1)], square, lambda _: 0.0, ROWS, schedule(max_epochs=1))
    assert torch.equal(before, torch.random.get_rng_state())
