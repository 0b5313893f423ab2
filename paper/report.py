"""The table of all lines: the paper's figures beside ours, and a verdict on each of its claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paper.network_results import NetworkResult, network_gap, pooled_gap, read_results
from paper.network_study import METHODS as NETWORK_METHODS
from paper.run import Result, Store
from paper.summaries import (
    Gap,
    LineFigures,
    figures_of,
    gap_between,
    gap_over_sets,
    results_of,
    tally_of,
)
from paper.tables import MASS_METHODS, TABLES, Line, cells_of

__all__ = [
    "IMAGE_TABLES",
    "READINGS",
    "chosen_kinds",
    "claims_table",
    "gap_words",
    "lines_table",
    "markdown",
    "network_table",
    "pooled_lines",
    "write_table",
]

IMAGE_TABLES = ("1a", "1b", "2a", "2b", "severe")
# What linear routers are, as columns name them; "counts" are the m_k of the margins.
READINGS = {
    "mild": "sum reward, winner counts, argmax, untuned",
    "mild-decoded": "sum reward, winner counts, decoded, untuned",
    "mild-tuned": "sum reward, winner counts, argmax, tuned",
    "mild-mass": "sum reward, m from P, argmax, untuned",
    "mild-mass-tuned": "sum reward, m from P, argmax, tuned",
    "mildroute": "our default",
}
_SEEDS = 5
_INTRODUCTION = """\
# The paper, line by line

Written by `python -m paper --store paper/results/linear --ledger paper/results/README.md` from
the Parquet files beside it; do not edit. What the figures mean is on the page
[The paper](../../docs/theory/paper.md).

Linear routers: frozen EfficientNet-lite0 vectors of images (112 x 112 pixels, 256 main
directions), MiniLM vectors of texts; penalties by cross-validation; five seeds (tables of answers:
five folds). Differences are to TDEF on the same vectors, below zero is better, with 95%
intervals over test rows and seeds. "Tuned": margins plus one whole number from 0 to 5 by
cross-validation. "-": not run. Real experts are logistic regressions on half of the training
rows."""


def write_table(store: Store, path: Path, *, seeds: int = _SEEDS) -> int:
    """Write the table of a store; the same store gives the same bytes.

    Args:
        store: The results of linear routers; ``networks.parquet`` beside the folder holds
            those of the network study.
        path: The Markdown file.
        seeds: Seeds 0 to this one, exclusive.

    Returns:
        How many results of linear routers it rests on.
    """
    results = read_store(store, seeds)
    networks = read_results(network_file(store))
    parts = [
        _INTRODUCTION,
        "## Claims",
        claims_table(results, networks, seeds),
        "## Small networks",
        network_table(networks),
        "## Linear routers",
        *(
            part
            for name, table in TABLES.items()
            if not table.frozen
            for part in (f"### {name}: {table.title}", lines_table(name, results, seeds))
        ),
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8", newline="\n")
    return len(results)


def read_store(store: Store, seeds: int = _SEEDS) -> dict[str, Result]:
    """Read the results of all tables, those of methods beyond the tables' too."""
    cells = cells_of(list(TABLES), seeds=seeds)
    cells += cells_of([name for name in TABLES if not TABLES[name].frozen], methods=MASS_METHODS)
    return store.read({cell.key for cell in cells})


def network_file(store: Store) -> Path:
    """Return where the results of the network study lie beside a store."""
    return store.folder.parent / "networks.parquet"


def lines_table(table: str, results: Mapping[str, Result], seeds: int = _SEEDS) -> str:
    """Losses and differences of the lines of a table, and what our default chose on each."""
    figures = figures_of(TABLES[table], results, seeds)
    if not figures:
        return f"Not run: `python -m paper --table {table}`."
    head = [
        "line",
        "paper: MILD - TDEF",
        "best single",
        "TDEF",
        *READINGS.values(),
        "our default chose",
    ]
    rows = [
        [
            each.line.row + ("" if each.line.in_paper else " (not in the paper)"),
            _printed_gap(each),
            f"{each.best_single:.4f}",
            f"{each.spreads['tdef'].mean:.4f}",
            *(gap_words(each.gaps.get(name)) for name in READINGS),
            chosen_kinds(results_of(each.line, "mildroute", results, seeds).values()),
        ]
        for each in figures
    ]
    return markdown(head, rows)


def chosen_kinds(results: Iterable[Result]) -> str:
    """Return what the default router chose, with the number of seeds.

    Example:
        >>> chosen_kinds([])
        '-'
    """
    kinds = Counter(_kind(result.note) for result in results)
    return ", ".join(f"{name} {count}" for name, count in kinds.most_common()) or "-"


def network_table(networks: Sequence[NetworkResult]) -> str:
    """Losses of tuned networks and their differences to TDEF, tuned alike and as published."""
    if not networks:
        return "Not run: `python -m paper.network_study`."
    others = [name for name in NETWORK_METHODS if name != "tdef"]
    head = [
        "line",
        "seeds",
        "TDEF as published",
        "TDEF tuned",
        *(f"{name}, tuned" for name in others),
        "MILD tuned - TDEF as published",
    ]
    rows = []
    for table, row in dict.fromkeys((each.cell.table, each.cell.row) for each in networks):
        by_method = {
            name: [
                each
                for each in networks
                if (each.cell.table, each.cell.row, each.cell.method) == (table, row, name)
            ]
            for name in NETWORK_METHODS
        }
        tdef = by_method["tdef"]
        if not tdef:
            continue
        published = np.mean([each.published_paid.mean() for each in tdef])
        rows.append(
            [
                f"{table} {row}",
                str(len(tdef)),
                f"{published:.4f}",
                f"{np.mean([each.loss for each in tdef]):.4f}",
                *(gap_words(network_gap(by_method[name], tdef)) for name in others),
                gap_words(_gap_to_published(by_method["mild"], tdef)),
            ]
        )
    words = "; ".join(f"{name}: {what}" for name, what in NETWORK_METHODS.items())
    note = (
        f"Methods ({words}). As published: margins of 1, weight decay 0.001. Tuned: mean of the"
        " margins and weight decay by 1,500 held-out rows, 30 trials for each method. How often"
        f" the choice lies at an edge of the grid: {_edge_words(networks)}."
    )
    return f"{note}\n\n{markdown(head, rows)}"


def claims_table(
    results: Mapping[str, Result], networks: Sequence[NetworkResult], seeds: int = _SEEDS
) -> str:
    """Measure each claim of the paper under each reading.

    The interval is that of the mean difference over the lines, which are averaged row by row where
    they share images.
    """
    rows = [
        *_claim_below_tdef(results, networks, seeds),
        *_claim_theory_margins(results, networks, seeds),
        *_claim_noise(results, seeds),
        *_claim_minority(results, networks, seeds),
    ]
    head = ["claim", "reading", "mean difference", "lines better", "significantly", "worse"]
    return markdown(head, rows)


def pooled_lines(
    lines: Sequence[Line], method: str, other: str, results: Mapping[str, Result], seeds: int
) -> tuple[Gap, list[Gap]] | None:
    """Mean difference between two methods over the lines that have both, and that of each line."""
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


def gap_words(gap: Gap | None) -> str:
    """Write a difference with its interval.

    Example:
        >>> gap_words(Gap(-0.1, -0.2, 0.05)), gap_words(None)
        ('-0.1000 [-0.2000, +0.0500]', '-')
    """
    return "-" if gap is None else f"{gap.value:+.4f} [{gap.low:+.4f}, {gap.high:+.4f}]"


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table whose first column is text and whose other columns are figures.

    Example:
        >>> print(markdown(["row", "loss"], [["a", "0.5"]]))
        | row | loss |
        | --- | --: |
        | a | 0.5 |
    """
    rule = ["---", *("--:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, rule, *rows])


def _claim_below_tdef(
    results: Mapping[str, Result], networks: Sequence[NetworkResult], seeds: int
) -> list[list[str]]:
    claim = "consistently below TDEF"
    images = [line for name in IMAGE_TABLES for line in TABLES[name].lines]
    rows = []
    for name, label in READINGS.items():
        if name != "mildroute":
            found = pooled_lines([x for x in images if x.in_paper], name, "tdef", results, seeds)
            rows.append(_row(claim, f"linear: {label}", found))
    ours = [each for each in networks if each.cell.line.in_paper]
    rows += [
        _network_row(claim, f"network, {NETWORK_METHODS[name]}; both tuned", ours, name, "tdef")
        for name in ("mild", "mild-ratio", "mild-wins", "sum-equal", "regression", "ce")
    ]
    return rows


def _claim_theory_margins(
    results: Mapping[str, Result], networks: Sequence[NetworkResult], seeds: int
) -> list[list[str]]:
    claim = "theory margins beat uniform ones"
    lines = TABLES["margins"].lines
    rows = [
        _row(
            claim,
            f"linear, MMLU: {READINGS[name]}",
            pooled_lines(lines, name, "mild-uniform", results, seeds),
        )
        for name in ("mild", "mild-tuned", "mild-mass", "mild-mass-tuned")
    ]
    images = [line for name in IMAGE_TABLES for line in TABLES[name].lines]
    rows += [
        _row(
            claim,
            f"linear, images: {READINGS[name]}",
            pooled_lines(images, name, "mild-uniform", results, seeds),
        )
        for name in ("mild-mass", "mild-mass-tuned")
    ]
    return rows + [
        _network_row(
            claim, f"network, {NETWORK_METHODS[name]}; both tuned", networks, name, "sum-equal"
        )
        for name in ("mild", "mild-ratio", "mild-wins")
    ]


def _claim_noise(results: Mapping[str, Result], seeds: int) -> list[list[str]]:
    names = ("mild", "mild-tuned", "mild-mass", "mild-mass-tuned")
    found = {
        name: pooled_lines(TABLES["noise"].lines, name, "tdef", results, seeds) for name in names
    }
    return [
        _row("below TDEF under 20% noise", f"linear, MMLU: {READINGS[name]}", found[name])
        for name in names
    ]


def _claim_minority(
    results: Mapping[str, Result], networks: Sequence[NetworkResult], seeds: int
) -> list[list[str]]:
    names = ("mild", "mild-tuned", "mild-mass", "mild-mass-tuned")
    rows = []
    severe = TABLES["severe"].lines
    for claim, lines in (
        ("95/5, MMLU", TABLES["extreme"].lines),
        ("90/10, images", [line for line in severe if line.in_paper]),
        ("90/10, images, lines not in the paper", [line for line in severe if not line.in_paper]),
    ):
        for name in names:
            found = pooled_lines(lines, name, "tdef", results, seeds)
            rows.append(_row(f"below TDEF at {claim}", f"linear: {READINGS[name]}", found))
    rows += [
        _network_row(
            "below TDEF at 90/10, images",
            f"network, {NETWORK_METHODS[name]}; both tuned",
            [each for each in networks if each.cell.table == "severe" and each.cell.line.in_paper],
            name,
            "tdef",
        )
        for name in ("mild", "mild-wins", "sum-equal")
    ]
    return rows


def _row(claim: str, reading: str, found: tuple[Gap, list[Gap]] | None) -> list[str]:
    if found is None:
        return [claim, reading, "not run", "-", "-", "-"]
    pooled, gaps = found
    tally = tally_of(gaps)
    return [
        claim,
        reading,
        gap_words(pooled),
        f"{tally.better} of {tally.lines}",
        str(tally.significantly_better),
        f"{tally.worse}, {tally.significantly_worse} significantly",
    ]


def _network_row(
    claim: str, reading: str, networks: Sequence[NetworkResult], method: str, other: str
) -> list[str]:
    pooled = pooled_gap(list(networks), method, other)
    if pooled is None:
        return _row(claim, reading, None)
    gaps = []
    for line in dict.fromkeys((each.cell.table, each.cell.row) for each in networks):
        here = [each for each in networks if (each.cell.table, each.cell.row) == line]
        gap = network_gap(
            *([each for each in here if each.cell.method == name] for name in (method, other))
        )
        gaps += [] if gap is None else [gap]
    return _row(claim, reading, (pooled[0], gaps))


def _gap_to_published(ours: list[NetworkResult], tdef: list[NetworkResult]) -> Gap | None:
    published = {each.cell.seed: each.published_paid for each in tdef}
    rows = [each.paid - published[each.cell.seed] for each in ours if each.cell.seed in published]
    return gap_over_sets([np.stack(rows)]) if rows else None


def _edge_words(networks: Sequence[NetworkResult]) -> str:
    words = []
    for name in NETWORK_METHODS:
        cells = [each for each in networks if each.cell.method == name]
        if cells:
            edges = Counter(edge for each in cells for edge in each.edges)
            told = ", ".join(f"{edge} {count}" for edge, count in sorted(edges.items()))
            words.append(f"{name} ({told or 'never'}; of {len(cells)})")
    return "; ".join(words)


def _kind(note: str) -> str:
    if "best single expert" in note:
        return "best single"
    if "cost regression" in note:
        return "cost regression"
    return "equal margins" if "uniform margins" in note else "differing margins"


def _printed_gap(figures: LineFigures) -> str:
    mild, tdef = (
        figures.printed[name].loss if name in figures.printed else None for name in ("MILD", "TDEF")
    )
    return "-" if mild is None or tdef is None else f"{mild - tdef:+.4f}"
