"""The table of all lines: the paper's figures beside ours, and a verdict on each of its claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from paper.claims import (
    SEEDS,
    claims_of,
    coverage_of,
    gap_words,
    markdown,
    network_file,
    published_gap,
    read_store,
    table_of,
)
from paper.network_results import NetworkResult, network_gap, read_results, widest
from paper.network_study import METHODS as NETWORK_METHODS
from paper.results import Result, Store
from paper.summaries import LineFigures, figures_of, results_of
from paper.tables import TABLES

__all__ = ["READINGS", "chosen_kinds", "lines_table", "network_table", "write_table"]

# What linear routers are, as columns name them; "counts" are the m_k of the margins.
READINGS = {
    "mild": "sum reward, winner counts, argmax, untuned",
    "mild-decoded": "sum reward, winner counts, decoded, untuned",
    "mild-tuned": "sum reward, winner counts, argmax, tuned",
    "mild-mass": "sum reward, m from P, argmax, untuned",
    "mild-mass-tuned": "sum reward, m from P, argmax, tuned",
    "mildroute": "our default",
}
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


def write_table(store: Store, path: Path, *, seeds: int = SEEDS) -> int:
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
        table_of(claims_of(results, networks, seeds)),
        coverage_of(networks),
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


def lines_table(table: str, results: Mapping[str, Result], seeds: int = SEEDS) -> str:
    """Write losses and differences of the lines of a table, and what our default chose on each."""
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
    """Write losses of tuned networks and their differences to TDEF, tuned and as published."""
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
        tdef = widest(by_method["tdef"])
        if not tdef:
            continue
        published = np.mean([each.published_paid.mean() for each in tdef])
        rows.append(
            [
                f"{table} {row}",
                str(len(tdef)),
                f"{published:.4f}",
                f"{np.mean([each.loss for each in tdef]):.4f}",
                *(gap_words(network_gap(by_method[name], by_method["tdef"])) for name in others),
                gap_words(published_gap([*by_method["mild"], *by_method["tdef"]], "mild").gap),
            ]
        )
    words = "; ".join(f"{name}: {what}" for name, what in NETWORK_METHODS.items())
    note = (
        f"Methods ({words}). As published: margins of 1, weight decay 0.001. Tuned: mean of the"
        " margins and weight decay by 1,500 held-out rows, as many trials for each method."
        f" Choices at an edge of the grid: {_edge_words(networks)}."
    )
    return f"{note}\n\n{markdown(head, rows)}"


def _edge_words(networks: Sequence[NetworkResult]) -> str:
    words = []
    for name in NETWORK_METHODS:
        cells = [each for each in widest(list(networks)) if each.cell.method == name]
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
