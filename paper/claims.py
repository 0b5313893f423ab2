"""The claims of the paper, measured under each reading of its definitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paper.network_results import NetworkResult, network_gap, pooled_gap, widest
from paper.network_study import StudyCell
from paper.results import Result, Store
from paper.summaries import Gap, Tally, gap_between, gap_over_sets, results_of, tally_of
from paper.tables import TABLES, Line, cells_of

__all__ = [
    "IMAGE_TABLES",
    "Claim",
    "claims_of",
    "gap_words",
    "interval_words",
    "markdown",
    "network_file",
    "pooled_lines",
    "published_gap",
    "read_store",
    "tables_of",
]

IMAGE_TABLES = ("1a", "1b", "2a", "2b", "severe")
SEEDS = 5
# A difference in cost per row that nobody would notice.
_NEGLIGIBLE = 5e-4
_NO_BREAK = "\u00a0"
_LINEAR = {
    "mild-mass": "$m_k$ from P, untuned",
    "mild-mass-tuned": "$m_k$ from P, tuned",
    "mild": "winner counts, untuned",
    "mild-decoded": "winner counts, decoded",
    "mild-tuned": "winner counts, tuned",
}
_NETWORK = {
    "mild": "$m_k$ from P, tuned",
    "mild-wins": "winner counts, tuned",
    "sum-equal": "equal margins, tuned",
}
_TUNED = ("mild-mass", "mild-mass-tuned", "mild", "mild-tuned")


@dataclass(frozen=True)
class Claim:
    """A claim under one reading.

    Args:
        claim: The claim in words.
        reading: The method in words.
        gap: Mean difference over all lines that were run; `None` if none was.
        lines: Difference on each line.
        at_edge: Whether a method chose an edge of the grid on any line.

    Example:
        >>> Claim("below", "ours", Gap(-1, -2, -0.5), (Gap(-1, -2, -0.5),)).verdict
        'holds'
    """

    claim: str
    reading: str
    gap: Gap | None = None
    lines: tuple[Gap, ...] = ()
    at_edge: bool = False

    @property
    def tally(self) -> Tally:
        """Return the number of lines that are better and worse."""
        return tally_of(self.lines)

    @property
    def verdict(self) -> str:
        """Return the verdict, from the interval and the lines that are significantly worse."""
        if self.gap is None:
            return "not run"
        if max(abs(self.gap.low), abs(self.gap.high)) < _NEGLIGIBLE:
            return "equal"
        if self.gap.low > 0:
            return "fails"
        if self.gap.high >= 0:
            return "open"
        if self.tally.significantly_worse:
            return "holds on average"
        return "holds on this grid" if self.at_edge else "holds"


def claims_of(
    results: Mapping[str, Result], networks: Sequence[NetworkResult], seeds: int = SEEDS
) -> list[Claim]:
    """Measure each claim of the paper under each reading.

    The interval is that of the mean difference over the lines. Lines that share images are averaged
    row by row first.
    """
    images = [line for name in IMAGE_TABLES for line in TABLES[name].lines]
    in_paper = [line for line in images if line.in_paper]
    severe = [line for line in TABLES["severe"].lines if line.in_paper]
    added = [line for line in TABLES["severe"].lines if not line.in_paper]
    ours = [each for each in networks if each.cell.line.in_paper]
    ninety = [each for each in ours if each.cell.table == "severe"]

    def linear(
        claim: str, where: str, lines: Sequence[Line], names: Sequence[str], other: str = "tdef"
    ) -> list[Claim]:
        return [
            _linear_claim(
                claim, f"{where}linear, {_LINEAR[name]}", lines, name, other, results, seeds
            )
            for name in names
        ]

    def network(
        claim: str, where: str, cells: Sequence[NetworkResult], names: Sequence[str], other: str
    ) -> list[Claim]:
        return [
            _network_claim(claim, f"{where}network, {_NETWORK[name]}", cells, name, other)
            for name in names
        ]

    below = "MILD is consistently below TDEF"
    beat = "Theory margins are better than equal ones"
    noise = "With 20% noise on the costs, MILD is below TDEF"
    minority = "With few rows for an expert (95/5 and 90/10), MILD is below TDEF"
    return [
        *network(below, "", ours, list(_NETWORK), "tdef"),
        *linear(below, "", in_paper, list(_LINEAR)),
        *network(beat, "", networks, ("mild", "mild-wins"), "sum-equal"),
        *linear(beat, "MMLU, ", TABLES["margins"].lines, _TUNED, "mild-uniform"),
        *linear(noise, "MMLU, ", TABLES["noise"].lines, _TUNED),
        *linear(minority, "95/5, MMLU, ", TABLES["extreme"].lines, _TUNED),
        *network(minority, "90/10, ", ninety, ("mild", "mild-wins", "sum-equal"), "tdef"),
        *linear(minority, "90/10, ", severe, _TUNED),
        *linear(minority, "90/10, synthetic experts, ", added, _TUNED),
    ]


def tables_of(claims: Sequence[Claim]) -> str:
    """Return a Markdown table for each claim, with a sentence on the readings that were not run."""
    head = ["reading", "verdict", "difference", "95% interval", "lines", "better", "worse"]
    parts = []
    for name in dict.fromkeys(each.claim for each in claims):
        readings = [each for each in claims if each.claim == name]
        rows = [_row(each, each.gap) for each in readings if each.gap is not None]
        missing = "; ".join(each.reading for each in readings if each.gap is None)
        parts.append(f"**{name}**")
        parts += [markdown(head, rows, text_columns=(0, 1))] if rows else []
        parts += [f"Not run: {missing}."] if missing else []
    return "\n\n".join(parts)


def _row(claim: Claim, gap: Gap) -> list[str]:
    tally = claim.tally
    return [
        claim.reading,
        claim.verdict,
        f"{gap.value:+.4f}",
        interval_words(gap),
        str(tally.lines),
        f"{tally.better}{_NO_BREAK}({tally.significantly_better})",
        f"{tally.worse}{_NO_BREAK}({tally.significantly_worse})",
    ]


def coverage_of(networks: Sequence[NetworkResult]) -> str:
    """Describe in two sentences which cells the rows on networks are based on."""
    if not networks:
        return "No network was run."
    networks = widest(list(networks))
    pairs = _pairs(networks)
    seeds = Counter(Counter((cell.table, cell.row) for cell, _ in pairs).values())
    words = " and ".join(
        f"{lines} line{'s' * (lines > 1)} with {count} seed{'s' * (count > 1)}"
        for count, lines in sorted(seeds.items())
    )
    grids = Counter(trials for _, trials in pairs)
    chosen = " and ".join(
        f"from {trials} networks on {count}" for trials, count in sorted(grids.items())
    )
    return (
        f"Both MILD and TDEF were tuned on {words}; each chose {chosen} of these {len(pairs)}"
        f" problems. The choice lies at an edge of the grid for {_edges('tdef', networks)} and for"
        f" {_edges('mild', networks)}."
    )


def _pairs(networks: Sequence[NetworkResult]) -> list[tuple[StudyCell, int]]:
    """Return each cell of MILD that TDEF has on the same grid, with its number of trials."""
    tdef = {
        (replace(each.cell, method="mild"), each.trials)
        for each in networks
        if each.cell.method == "tdef"
    }
    return [
        (each.cell, each.trials)
        for each in networks
        if each.cell.method == "mild" and (each.cell, each.trials) in tdef
    ]


def _edges(method: str, networks: Sequence[NetworkResult]) -> str:
    cells = [each for each in networks if each.cell.method == method]
    edges = sum(bool(each.edges) for each in cells)
    return f"{method.upper()} in {edges} of {len(cells)} cells"


def published_gap(networks: Sequence[NetworkResult], method: str) -> Claim:
    """Compare a tuned method with TDEF as published, on the lines and seeds that both have."""
    published = [
        replace(each, cell=replace(each.cell, method="published"), paid=each.published_paid)
        for each in networks
        if each.cell.method == "tdef"
    ]
    both = [*published, *(each for each in networks if each.cell.method == method)]
    return _network_claim("below TDEF as published", method, both, method, "published")


def pooled_lines(
    lines: Sequence[Line], method: str, other: str, results: Mapping[str, Result], seeds: int
) -> tuple[Gap, list[Gap]] | None:
    """Return the mean difference over the lines that both methods have, and that of each line."""
    by_set: dict[str, list[NDArray[np.float64]]] = {}
    gaps = []
    for line in lines:
        ours, theirs = (results_of(line, name, results, seeds) for name in (method, other))
        both = sorted(set(ours) & set(theirs))
        if not both:
            continue
        gaps.append(gap_between(ours, theirs))
        paid = [ours[seed].paid - theirs[seed].paid for seed in both]
        rows = np.concatenate(paid)[None] if line.experts.kind == "table" else np.stack(paid)
        # The two subjects are 4% of all rows of MMLU; the interval ignores that overlap.
        by_set.setdefault(f"{line.data.name} {line.data.groups}", []).append(rows)
    if not gaps:
        return None
    matrices = []
    for each in by_set.values():
        seeds_of_all = min(len(rows) for rows in each)
        matrices.append(np.mean([rows[:seeds_of_all] for rows in each], axis=0))
    return gap_over_sets(matrices), gaps


def _linear_claim(
    claim: str,
    reading: str,
    lines: Sequence[Line],
    method: str,
    other: str,
    results: Mapping[str, Result],
    seeds: int,
) -> Claim:
    pooled = pooled_lines(lines, method, other, results, seeds)
    return (
        Claim(claim, reading)
        if pooled is None
        else Claim(claim, reading, pooled[0], tuple(pooled[1]))
    )


def _network_claim(
    claim: str, reading: str, networks: Sequence[NetworkResult], method: str, other: str
) -> Claim:
    pooled = pooled_gap(list(networks), method, other)
    if pooled is None:
        return Claim(claim, reading)
    gaps = []
    for line in dict.fromkeys((each.cell.table, each.cell.row) for each in networks):
        here = [each for each in networks if (each.cell.table, each.cell.row) == line]
        gap = network_gap(
            *([each for each in here if each.cell.method == name] for name in (method, other))
        )
        gaps += [] if gap is None else [gap]
    at_edge = any(
        each.edges for each in widest(list(networks)) if each.cell.method in (method, other)
    )
    return Claim(claim, reading, pooled[0], tuple(gaps), at_edge)


def read_store(store: Store, seeds: int = SEEDS) -> dict[str, Result]:
    """Return the stored results of all tables, by key."""
    return store.read({cell.key for cell in cells_of(list(TABLES), seeds=seeds)})


def network_file(store: Store) -> Path:
    """Return the path of the results of the network study, beside the folder of a store."""
    return store.folder.parent / "networks.parquet"


def gap_words(gap: Gap | None) -> str:
    """Return a difference with its interval as text.

    Example:
        >>> gap_words(Gap(-0.1, -0.2, 0.05)).split(), gap_words(None)
        (['-0.1000', '[-0.2000,', '+0.0500]'], '-')
    """
    return "-" if gap is None else f"{gap.value:+.4f} {interval_words(gap)}"


def interval_words(gap: Gap) -> str:
    """Return an interval as text that does not break across lines."""
    return f"[{gap.low:+.4f},{_NO_BREAK}{gap.high:+.4f}]"


def markdown(
    head: Sequence[str], rows: Sequence[Sequence[str]], text_columns: Sequence[int] = (0,)
) -> str:
    """Return a Markdown table whose columns of figures are aligned to the right.

    Example:
        >>> print(markdown(["row", "loss"], [["a", "0.5"]]))
        | row | loss |
        | --- | --: |
        | a | 0.5 |
    """
    rule = ["---" if column in text_columns else "--:" for column in range(len(head))]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, rule, *rows])
