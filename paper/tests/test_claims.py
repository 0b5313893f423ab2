"""Claims: pooling, pairing, verdicts and the table."""

from __future__ import annotations

import numpy as np
import pytest

from paper.claims import (
    Claim,
    claims_of,
    coverage_of,
    pooled_lines,
    published_gap,
    tables_of,
)
from paper.network_results import pooled_gap, widest
from paper.summaries import Gap, gap_over_sets, tally_of
from paper.tables import TABLES
from paper.tests.results import network, results_on

I_CIFAR, II_CIFAR = (TABLES["1a"].lines[place] for place in (0, 4))
BETTER, WORSE = Gap(-1, -2, -0.5), Gap(1, 0.5, 2)


def test_lines_that_share_images_are_one_sample() -> None:
    results = results_on(I_CIFAR, {"tdef": 0.5, "mild": 0.25})
    results |= results_on(II_CIFAR, {"tdef": 0.5, "mild": 0.25})
    found = pooled_lines([I_CIFAR, II_CIFAR], "mild", "tdef", results, 2)
    alone = pooled_lines([I_CIFAR], "mild", "tdef", results, 2)
    assert found is not None
    assert alone is not None
    # The same images twice are no more evidence than once.
    assert found[0] == alone[0]
    assert len(found[1]) == 2


def test_independent_sets_narrow_the_interval() -> None:
    one, two = np.random.default_rng(0).normal(size=(2, 1, 400))
    both, single = gap_over_sets([one, two]), gap_over_sets([one])
    assert both.value == pytest.approx((one.mean() + two.mean()) / 2)
    assert both.high - both.low < 0.8 * (single.high - single.low)


def test_networks_are_paired_by_seed_row_and_number_of_networks() -> None:
    results = [network("I cifar10", "tdef", seed, [1.0, 0.0, 1.0, 1.0]) for seed in range(2)]
    results += [network("I cifar10", "mild", 0, [0.0, 0.0, 1.0, 1.0])]
    found = pooled_gap(results, "mild", "tdef")
    assert found is not None
    assert (found[0].value, found[1]) == (-0.25, 1)
    assert pooled_gap(results, "mild-wins", "tdef") is None
    narrow = network("I cifar10", "mild", 1, [0.0, 0.0, 0.0, 0.0], trials=30)
    assert pooled_gap([*results, narrow], "mild", "tdef") == found
    both = [network("I cifar10", name, 0, [1.0] * 4, trials=30) for name in ("tdef", "mild")]
    assert pooled_gap([*results, *both], "mild", "tdef") == found
    assert set(widest([*both, *results])) == set(results)


def test_tuned_networks_are_compared_with_tdef_as_published() -> None:
    results = [
        network("I cifar10", "tdef", 0, [0.0, 0.0], published=1.0),
        network("I cifar10", "mild", 0, [1.0, 0.0]),
    ]
    assert published_gap(results, "mild").gap == gap_over_sets([np.array([[0.0, -1.0]])])
    assert published_gap(results, "tdef").gap == Gap(-1, -1, -1)
    assert published_gap(results, "mild-wins").gap is None


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [
        (Claim("", ""), "not run"),
        (Claim("", "", Gap(-1e-4, -2e-4, -5e-5), (BETTER,)), "equal"),
        (Claim("", "", WORSE, (WORSE,)), "fails"),
        (Claim("", "", Gap(-1, -2, 1), (BETTER,)), "open"),
        (Claim("", "", BETTER, (BETTER, WORSE)), "holds on average"),
        (Claim("", "", BETTER, (BETTER,), at_edge=True), "holds on this grid"),
        (Claim("", "", BETTER, (BETTER,)), "holds"),
    ],
)
def test_a_claim_is_judged_by_its_interval_and_its_lines(claim: Claim, verdict: str) -> None:
    assert claim.verdict == verdict


def test_lines_are_counted() -> None:
    gaps = [BETTER, Gap(-1, -2, 1), WORSE, Gap(0, -1, 1)]
    tally = tally_of(gaps)
    assert (tally.lines, tally.better, tally.worse) == (4, 2, 1)
    assert (tally.significantly_better, tally.significantly_worse) == (1, 1)


def test_each_claim_has_a_table_and_names_what_was_not_run() -> None:
    claims = [
        Claim("first", "one", BETTER, (BETTER,)),
        Claim("first", "two"),
        Claim("first", "three"),
        Claim("second", "four"),
    ]
    lines = tables_of(claims).replace("\u00a0", " ").splitlines()
    assert [line for line in lines if line][3:] == [
        "| one | holds | -1.0000 | [-2.0000, -0.5000] | 1 | 1 (1) | 0 (0) |",
        "Not run: two; three.",
        "**second**",
        "Not run: four.",
    ]
    assert lines[0] == "**first**"


def test_every_claim_is_measured_on_what_is_stored() -> None:
    results = results_on(I_CIFAR, {"tdef": 0.5, "mild": 0.25, "mild-mass": 0.6})
    networks = [
        network("I cifar10", name, 0, [float(name == "tdef")] * 4) for name in ("tdef", "mild")
    ]
    measured = {
        (each.claim, each.reading): each.gap.value
        for each in claims_of(results, networks, 2)
        if each.gap is not None
    }
    assert measured == {
        ("MILD is consistently below TDEF", "network, $m_k$ from P, tuned"): -1,
        ("MILD is consistently below TDEF", "linear, winner counts, untuned"): -0.25,
        ("MILD is consistently below TDEF", "linear, $m_k$ from P, untuned"): pytest.approx(0.1),
    }


def test_the_page_says_which_cells_the_networks_have() -> None:
    networks = [
        network(row, name, seed, [0.0], edges=("lowest decay",) * (name == "tdef"))
        for row, seed in (("I cifar10", 0), ("I cifar10", 1), ("II cifar10", 0))
        for name in ("tdef", "mild")
    ]
    networks += [network("III cifar10", "mild", 0, [0.0], edges=())]
    assert coverage_of([]) == "No network was run."
    assert coverage_of(networks) == (
        "Both MILD and TDEF were tuned on 1 line with 1 seed and 1 line with 2 seeds; each chose"
        " from 49 networks on 3 of these 3 problems. The choice lies at an edge of the grid for"
        " TDEF in 3 of 3 cells and for MILD in 0 of 4 cells."
    )
