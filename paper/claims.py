"""The claims of the paper, measured under each reading, and the table of them on a page.

Run: python -m paper.claims [--page docs/theory/paper.md] [--check]
Reads the stored results in ``paper/results`` and replaces what stands between the two marks of the
page; ``--check`` exits with 1 if that would change it. Prints the figures that sentences of the
page cite.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paper.network_results import NetworkResult, network_gap, pooled_gap, read_results, widest
from paper.network_study import StudyCell
from paper.results import Result, Store
from paper.summaries import Gap, Tally, gap_between, gap_over_sets, results_of, tally_of
from paper.tables import MASS_METHODS, TABLES, Line, cells_of

__all__ = [
    "IMAGE_TABLES",
    "Claim",
    "claims_of",
    "gap_words",
    "markdown",
    "network_file",
    "pooled_lines",
    "published_gap",
    "read_store",
    "table_of",
    "write_page",
]

IMAGE_TABLES = ("1a", "1b", "2a", "2b", "severe")
RESULTS = Path(__file__).parent / "results"
SEEDS = 5
_ROOT = Path(__file__).parents[1]
_BEGIN, _END = "<!-- written by python -m paper.claims -->", "<!-- end -->"
# Costs per row that nobody would notice.
_NEGLIGIBLE = 5e-4
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
    "sum-equal": "sum reward with equal margins, tuned",
    "mild-ratio": "$m_k$ from P, ratio kept, tuned",
    "regression": "cost regression, tuned",
    "ce": "cross-entropy, tuned",
}
_TUNED = ("mild-mass", "mild-mass-tuned", "mild", "mild-tuned")


@dataclass(frozen=True)
class Claim:
    """One claim under one reading.

    Args:
        claim: The claim in words.
        reading: The method in words.
        gap: Mean difference over all lines that were run, or `None` if none was.
        lines: Difference of each line.
        at_edge: Whether a method chose an edge of the grid on a line.

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
        """Judge the claim by the interval and by the lines that are significantly worse."""
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

    The interval is that of the mean difference over the lines, which are averaged row by row where
    they share images.
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

    below = "consistently below TDEF"
    beat = "theory margins beat equal ones"
    noise = "robust to 20% noise: below TDEF on noisy costs"
    minority = "keeps the minority: below TDEF at 95/5 and 90/10"
    return [
        *network(below, "", ours, list(_NETWORK), "tdef"),
        *linear(below, "", in_paper, list(_LINEAR)),
        *network(beat, "", networks, ("mild", "mild-wins", "mild-ratio"), "sum-equal"),
        *linear(beat, "MMLU: ", TABLES["margins"].lines, _TUNED, "mild-uniform"),
        *linear(beat, "images: ", images, ("mild-mass", "mild-mass-tuned"), "mild-uniform"),
        *linear(noise, "MMLU: ", TABLES["noise"].lines, _TUNED),
        *linear(minority, "95/5, MMLU: ", TABLES["extreme"].lines, _TUNED),
        *network(minority, "90/10: ", ninety, ("mild", "mild-wins", "sum-equal"), "tdef"),
        *linear(minority, "90/10: ", severe, _TUNED),
        *linear(minority, "90/10, three lines of ours: ", added, _TUNED),
    ]


def table_of(claims: Sequence[Claim]) -> str:
    """Write the claims as a table; those that were not run share one row for each claim."""
    head = [
        "claim",
        "reading",
        "mean difference, 95% interval",
        "lines better (significantly) / worse",
        "verdict",
    ]
    rows = []
    for name in dict.fromkeys(each.claim for each in claims):
        here = [each for each in claims if each.claim == name]
        measured = [_row(each) for each in here if each.gap is not None]
        missing = "; ".join(each.reading for each in here if each.gap is None)
        measured += [["", f"*not run:* {missing}", "", "", "not run"]] if missing else []
        measured[0][0] = name
        rows += measured
    return markdown(head, rows, text_columns=(0, 1, 4))


def _row(claim: Claim) -> list[str]:
    tally = claim.tally
    return [
        "",
        claim.reading,
        gap_words(claim.gap),
        f"{tally.better} ({tally.significantly_better}) / {tally.worse}"
        f" ({tally.significantly_worse}) of {tally.lines}",
        claim.verdict,
    ]


def coverage_of(networks: Sequence[NetworkResult]) -> str:
    """Say in a sentence or two which cells the rows on networks rest on."""
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
    """Return the cell and the number of trials of each cell of MILD that TDEF has, too."""
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
        # Two subjects of MMLU are 4% of all its rows; that overlap is left out of account.
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
    """Read the results of all tables, those of methods beyond the tables' too."""
    cells = cells_of(list(TABLES), seeds=seeds)
    cells += cells_of([name for name in TABLES if not TABLES[name].frozen], methods=MASS_METHODS)
    return store.read({cell.key for cell in cells})


def network_file(store: Store) -> Path:
    """Return where the results of the network study lie beside a store."""
    return store.folder.parent / "networks.parquet"


def gap_words(gap: Gap | None) -> str:
    """Write a difference with its interval.

    Example:
        >>> gap_words(Gap(-0.1, -0.2, 0.05)), gap_words(None)
        ('-0.1000 [-0.2000, +0.0500]', '-')
    """
    return "-" if gap is None else f"{gap.value:+.4f} [{gap.low:+.4f}, {gap.high:+.4f}]"


def markdown(
    head: Sequence[str], rows: Sequence[Sequence[str]], text_columns: Sequence[int] = (0,)
) -> str:
    """Write a table; columns of figures are aligned to the right.

    Example:
        >>> print(markdown(["row", "loss"], [["a", "0.5"]]))
        | row | loss |
        | --- | --: |
        | a | 0.5 |
    """
    rule = ["---" if column in text_columns else "--:" for column in range(len(head))]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, rule, *rows])


def write_page(text: str, body: str) -> str:
    """Replace what stands between the marks of a page.

    Example:
        >>> write_page(f"before {_BEGIN} old {_END} after", "new").split()[-5:]
        ['new', '<!--', 'end', '-->', 'after']
    """
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise SystemExit(f"the page must have the marks {_BEGIN} and {_END}.")
    return f"{before}{_BEGIN}\n\n{body}\n\n{_END}{after}"


def main() -> None:
    """Write the table of claims to the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--page", type=Path, default=_ROOT / "docs" / "theory" / "paper.md")
    parser.add_argument("--check", action="store_true", help="exit with 1 if the page would change")
    options = parser.parse_args()
    store = Store(RESULTS / "linear")
    networks = read_results(network_file(store))
    claims = claims_of(read_store(store), networks)
    old = options.page.read_text(encoding="utf-8")
    new = write_page(old, f"{table_of(claims)}\n\n{coverage_of(networks)}")
    if options.check:
        raise SystemExit(int(new != old))
    options.page.write_text(new, encoding="utf-8")
    for method in ("mild", "sum-equal", "tdef"):
        claim = published_gap(networks, method)
        by_line = ", ".join(f"{gap.value:+.4f}" for gap in claim.lines)
        print(f"{method} tuned - TDEF as published: {gap_words(claim.gap)}; by line {by_line}")


if __name__ == "__main__":
    main()
