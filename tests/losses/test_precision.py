from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

from mildroute.losses._precision import full_precision, no_autocast

ONES = torch.ones(2, 2)


@pytest.mark.parametrize(
    ("given", "computed"),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
        (torch.int64, torch.float32),
    ],
)
def test_scores_are_brought_to_at_least_float32_and_the_others_follow(
    given: torch.dtype, computed: torch.dtype
) -> None:
    scores, rewards = full_precision(ONES.to(given), ONES.to(torch.float64))
    assert scores.dtype == rewards.dtype == computed


def test_full_precision_tensors_are_not_copied() -> None:
    assert full_precision(ONES)[0] is ONES


def test_autocast_is_off_inside_and_on_again_after() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with no_autocast(ONES):
            assert (ONES @ ONES).dtype == torch.float32
        assert (ONES @ ONES).dtype == torch.bfloat16


def test_outside_of_autocast_nothing_is_entered() -> None:
    assert isinstance(no_autocast(ONES), nullcontext)
