from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings, strategies as st

from losses.cases import Problem, draw_problem, every_problem, problems, seeds
from losses.reference import chain, choice_of, deferral_gradient_row, each_row
from mildroute.exceptions import ArgumentError, MarginError, MildrouteError, ShapeError
from mildroute.losses import decision as decisions
from mildroute.losses.decision import choose, chosen_costs, log_posterior, posterior, rank

sizes = st.integers(2, 100)
spreads = st.floats(math.log(0.1), math.log(1e4)).map(math.exp)
decodable = st.floats(0, 1.75)


def decodable_ratio(tau: float) -> float:
    """How far apart margins may be for the loss to have a minimiser.

    Less than ``1 / (tau - 1)`` above tau = 1.
    """
    return min(10.0, 0.95 / max(tau - 1, 1e-9))


@settings(max_examples=500, deadline=None)
@given(
    seed=seeds,
    experts=sizes,
    spread=spreads,
    ratio=st.floats(1, 1000),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_posteriors_of_any_scores_are_probabilities(
    seed: int, experts: int, spread: float, ratio: float, dtype: torch.dtype
) -> None:
    problem = draw_problem(seed, rows=3, experts=experts, spread=spread, ratio=ratio).to(dtype)
    for tau in (1.0, 0.0, 0.5):
        probabilities = posterior(problem.scores, problem.margins, tau=tau)
        assert probabilities.dtype == dtype
        assert probabilities.min() >= 0
        assert (probabilities.sum(dim=1) - 1).abs().max() <= 1e-5
        logarithms = log_posterior(problem.scores, problem.margins, tau=tau)
        assert not logarithms.isnan().any()
        assert logarithms.max() <= 1e-6


@settings(max_examples=500, deadline=None)
@given(
    seed=seeds,
    experts=sizes,
    gap=spreads,
    rho=st.floats(0.001, 1000),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_one_expert_far_above_the_others_breaks_nothing(
    seed: int, experts: int, gap: float, rho: float, dtype: torch.dtype
) -> None:
    problem = draw_problem(seed, rows=2, experts=experts, spread=1.0, tied=True).to(dtype)
    margins = problem.margins.clone()
    margins[0] = rho
    problem.scores[0, 0] += gap
    problem.scores[1, 0] -= gap
    probabilities = posterior(problem.scores, margins)
    assert (probabilities.sum(dim=1) - 1).abs().max() <= 1e-5
    assert not log_posterior(problem.scores, margins).isnan().any()


@settings(max_examples=500, deadline=None)
@given(seed=seeds, experts=sizes, spread=spreads, ratio=st.floats(1, 1000), tied=st.booleans())
def test_a_ranking_orders_all_experts_and_starts_with_the_choice(
    seed: int, experts: int, spread: float, ratio: float, tied: bool
) -> None:
    problem = draw_problem(seed, rows=3, experts=experts, spread=spread, ratio=ratio, tied=tied)
    for decision in ("consistent", "argmax"):
        order = rank(problem.scores, problem.margins, decision=decision)
        assert torch.equal(order.sort(dim=1).values, torch.arange(experts).expand(3, -1))
        assert torch.equal(order[:, 0], choose(problem.scores, problem.margins, decision=decision))
        ordered = log_posterior(problem.scores, problem.margins).gather(1, order)
        assert decision == "argmax" or bool((ordered[:, 1:] <= ordered[:, :-1] + 1e-9).all())


@settings(max_examples=500, deadline=None)
@given(problem=problems(max_experts=8), rho=st.floats(0.1, 10), tau=decodable)
def test_equal_margins_decode_by_softmax_and_choose_the_largest_score(
    problem: Problem, rho: float, tau: float
) -> None:
    margins = torch.full_like(problem.margins, rho)
    torch.testing.assert_close(
        posterior(problem.scores, margins),
        torch.softmax(problem.scores / rho, dim=1),
        rtol=1e-12,
        atol=1e-14,
    )
    expected = torch.softmax((2 - tau) * problem.scores / rho, dim=1)
    torch.testing.assert_close(
        posterior(problem.scores, margins, tau=tau), expected, rtol=1e-11, atol=1e-14
    )
    assert choose(problem.scores, margins).tolist() == [
        choice_of(row) for row in problem.scores.tolist()
    ]
    assert torch.equal(
        choose(problem.scores, margins), choose(problem.scores, margins, decision="argmax")
    )


@settings(max_examples=500, deadline=None)
@given(seed=seeds, experts=st.integers(2, 12), tau=decodable)
def test_margins_a_hair_apart_decode_as_equal_ones(seed: int, experts: int, tau: float) -> None:
    """The linear system and the softmax are two ways to one answer."""
    problem = draw_problem(seed, rows=3, experts=experts)
    margins = 2 + 1e-12 * problem.margins
    expected = torch.softmax((2 - tau) * problem.scores / 2, dim=1)
    torch.testing.assert_close(
        posterior(problem.scores, margins, tau=tau), expected, rtol=1e-9, atol=0
    )


@every_problem(max_experts=8)
def test_the_largest_score_wins_by_argmax_whatever_the_margins(problem: Problem) -> None:
    assert choose(problem.scores, problem.margins, decision="argmax").tolist() == [
        choice_of(row) for row in problem.scores.tolist()
    ]


@settings(max_examples=500, deadline=None)
@given(problem=problems(max_experts=8), shift=st.floats(-100, 100), seed=seeds)
def test_posteriors_ignore_shifts_and_follow_permutations(
    problem: Problem, shift: float, seed: int
) -> None:
    probabilities = posterior(problem.scores, problem.margins)
    torch.testing.assert_close(
        posterior(problem.scores + shift, problem.margins), probabilities, rtol=1e-9, atol=1e-12
    )
    order = torch.randperm(len(problem.margins), generator=torch.Generator().manual_seed(seed))
    permuted = problem.permute(order)
    torch.testing.assert_close(
        posterior(permuted.scores, permuted.margins), probabilities[:, order], rtol=1e-9, atol=1e-12
    )


@settings(max_examples=500, deadline=None)
@given(
    seed=seeds, experts=st.integers(2, 12), spread=st.floats(0.1, 30), ratio=st.floats(1.1, 1000)
)
def test_posterior_over_margin_is_stationary(
    seed: int, experts: int, spread: float, ratio: float
) -> None:
    """q S = q with q = p / rho, each entry to its own size."""
    problem = draw_problem(seed, rows=2, experts=experts, spread=spread, ratio=ratio)
    flow = posterior(problem.scores, problem.margins) / problem.margins
    flow = flow / flow.sum(dim=1, keepdim=True)
    steps = each_row(chain, problem.scores, margins=problem.margins)
    after = torch.einsum("nk,nkj->nj", flow, steps)
    assert ((after - flow).abs() / flow).max() <= 1e-9


@settings(max_examples=500, deadline=None)
@given(seed=seeds, experts=st.integers(2, 8), tau=decodable)
def test_scores_minimise_the_loss_of_the_posterior_they_decode_to(
    seed: int, experts: int, tau: float
) -> None:
    """At the decoded posterior the gradient of the conditional comp-sum loss vanishes.

    The scores are its minimiser.
    """
    problem = draw_problem(seed, rows=2, experts=experts, ratio=decodable_ratio(tau))
    probabilities = posterior(problem.scores, problem.margins, tau=tau)
    gradient = each_row(
        deferral_gradient_row, problem.scores, probabilities, margins=problem.margins, tau=tau
    )
    assert gradient.abs().max() <= 1e-9


@every_problem(max_experts=6)
def test_logarithms_of_posteriors_are_log_posteriors(problem: Problem) -> None:
    probabilities = posterior(problem.scores, problem.margins)
    torch.testing.assert_close(
        log_posterior(problem.scores, problem.margins).exp(), probabilities, rtol=1e-10, atol=1e-14
    )


@settings(max_examples=500, deadline=None)
@given(seed=seeds, experts=st.integers(3, 8), spread=st.integers(0, 2))
def test_twins_tie_and_the_highest_index_wins(seed: int, experts: int, spread: int) -> None:
    """Experts with the same score and the same margin have the same posterior.

    Rounding must not tell them apart.
    """
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(-spread, spread + 1, (1, experts), generator=generator).to(torch.float64)
    margins = torch.randint(1, 3, (experts,), generator=generator).to(torch.float64)
    chosen = int(choose(scores, margins))
    twins = (scores[0] == scores[0, chosen]) & (margins == margins[chosen])
    assert chosen == int(twins.nonzero().max())


def test_a_ranking_starts_with_the_choice_also_where_posteriors_tie() -> None:
    """Near d = 0.8392352 the two posteriors are equal in float32 while the scores differ."""
    leads = 0.8392352 + 6e-8 * torch.arange(-100, 101)
    scores, margins = torch.stack([leads, torch.zeros_like(leads)], dim=1), torch.tensor([1.0, 2.0])
    assert torch.equal(rank(scores, margins)[:, 0], choose(scores, margins))


def test_ties_go_to_the_highest_index() -> None:
    scores = torch.tensor([[1.0, 3.0, 3.0, 2.0]])
    for decision in ("consistent", "argmax"):
        assert choose(scores, torch.ones(4), decision=decision).tolist() == [2]
        assert rank(scores, torch.ones(4), decision=decision).tolist() == [[2, 1, 3, 0]]


def test_equal_scores_decode_to_shares_of_the_margins() -> None:
    probabilities = posterior(torch.zeros(1, 3, dtype=torch.float64), torch.tensor([1.0, 2.0, 5.0]))
    assert probabilities[0].tolist() == pytest.approx([1 / 8, 2 / 8, 5 / 8])


def test_a_wide_margin_can_overrule_the_largest_score() -> None:
    scores, margins = torch.tensor([[0.0, 0.2]]), torch.tensor([2.0, 1.0])
    assert choose(scores, margins).tolist() == [0]
    assert choose(scores, margins, decision="argmax").tolist() == [1]
    assert rank(scores, margins).tolist() == [[0, 1]]
    assert rank(scores, margins, decision="argmax").tolist() == [[1, 0]]


def test_experts_too_unlikely_to_tell_apart_are_ranked_by_score() -> None:
    scores = torch.tensor([[-3e5, 0.0, -1e5, -2e5]])
    assert rank(scores, torch.tensor([1.0, 2.0, 1.0, 2.0])).tolist() == [[1, 2, 3, 0]]


def test_the_size_of_the_blocks_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = draw_problem(3, rows=11, experts=7)
    whole = posterior(problem.scores, problem.margins)
    for elements in (1, 100, 300):
        monkeypatch.setattr(decisions, "_BLOCK_ELEMENTS", elements)
        torch.testing.assert_close(
            posterior(problem.scores, problem.margins), whole, rtol=1e-12, atol=0
        )


@pytest.mark.parametrize("margins", [torch.ones(3), torch.tensor([1.0, 2.0, 3.0])])
def test_no_rows_give_no_decisions(margins: torch.Tensor) -> None:
    empty = torch.zeros(0, 3)
    assert posterior(empty, margins).shape == rank(empty, margins).shape == (0, 3)
    assert choose(empty, margins).shape == (0,)


def test_low_precision_scores_are_decoded_in_float32_also_inside_autocast() -> None:
    problem = draw_problem(4, rows=3, experts=4).to(torch.bfloat16)
    expected = posterior(problem.scores.float(), problem.margins)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(posterior(problem.scores, problem.margins), expected)
    assert expected.dtype == torch.float32


def test_decoding_keeps_no_graph() -> None:
    scores = torch.zeros(1, 2, requires_grad=True)
    assert not posterior(scores, torch.tensor([1.0, 2.0])).requires_grad


def test_paid_costs_are_those_of_the_choice() -> None:
    costs = torch.tensor([[0.1, 0.9], [0.2, 0.4], [0.5, 0.3]])
    assert torch.equal(chosen_costs(costs, torch.tensor([0, 1, 1])), torch.tensor([0.1, 0.4, 0.3]))


ZEROS, UNEQUAL = torch.zeros(2, 3), torch.tensor([1.0, 2.0, 3.0])


@pytest.mark.parametrize("function", [posterior, log_posterior, choose, rank])
@pytest.mark.parametrize("margins", [torch.ones(3), UNEQUAL])
def test_a_single_row_without_its_axis_is_refused(
    function: Callable[..., object], margins: torch.Tensor
) -> None:
    with pytest.raises(ShapeError, match=r"shape \(3,\)"):
        function(torch.zeros(3), margins)


@pytest.mark.parametrize("function", [posterior, log_posterior, choose, rank])
@pytest.mark.parametrize("margins", [torch.ones(3), UNEQUAL])
def test_a_negative_tau_is_refused(function: Callable[..., object], margins: torch.Tensor) -> None:
    with pytest.raises(ArgumentError, match=r"-0\.5"):
        function(ZEROS, margins, tau=-0.5)


@pytest.mark.parametrize(
    ("call", "error", "value"),
    [
        (lambda: posterior(ZEROS, UNEQUAL, tau=2.0), ArgumentError, "got tau 2.0"),
        (lambda: choose(ZEROS, UNEQUAL, tau=2.5), ArgumentError, "got tau 2.5"),
        (lambda: posterior(ZEROS, -UNEQUAL), MarginError, "-1.0 for expert 0"),
        (lambda: choose(ZEROS, torch.ones(2)), ShapeError, r"\(2,\)"),
        (lambda: choose(ZEROS, UNEQUAL, decision="best"), ArgumentError, "'best'"),  # type: ignore[arg-type]
        (lambda: rank(ZEROS, UNEQUAL, decision="best"), ArgumentError, "'best'"),  # type: ignore[arg-type]
        (lambda: chosen_costs(ZEROS, torch.tensor([0, 1, 2])), ShapeError, r"\(3,\)"),
    ],
)
def test_bad_arguments_are_refused(
    call: Callable[[], object], error: type[MildrouteError], value: str
) -> None:
    with pytest.raises(error, match=value):
        call()
