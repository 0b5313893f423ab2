"""The report of all results: the claims of the paper, and every line beside the paper's figures.

Run: python -m paper.report [--check] [--store FOLDER --report FILE]
Writes ``paper/results/README.md`` and the table of claims in ``docs/theory/paper.md`` from the
stored results. ``--check`` writes nothing and exits with 1 if either would change. With
``--store``, writes a report of other results.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from mildroute.exceptions import ArgumentError
from paper.claims import (
    SEEDS,
    claims_of,
    coverage_of,
    gap_words,
    markdown,
    network_file,
    published_gap,
    read_store,
    tables_of,
)
from paper.network_results import NetworkResult, network_gap, read_results, widest
from paper.network_study import METHODS as NETWORK_METHODS
from paper.results import Result, Store
from paper.summaries import LineFigures, figures_of, results_of
from paper.tables import TABLES

__all__ = [
    "READINGS",
    "chosen_kinds",
    "lines_table",
    "network_table",
    "page_with_claims",
    "report_of",
]

_FOLDER = Path(__file__).parent
_STORE = _FOLDER / "results" / "linear"
_PAGE = _FOLDER.parent / "docs" / "theory" / "paper.md"
_BEGIN = "<!-- written by python -m paper.report -->"
_END = "<!-- end -->"


# Columns of linear routers.
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

Written by `python -m paper.report` from the Parquet files in this folder; do not edit. The page
[The paper](../../docs/theory/paper.md) explains the figures.

Linear routers: frozen EfficientNet-lite0 vectors of images (112 x 112 pixels, 256 main
directions), MiniLM vectors of texts; penalties by cross-validation; five seeds (tables of answers:
five folds). Differences are to TDEF on the same vectors, below zero is better, with 95%
intervals over test rows and seeds. "Tuned": margins plus one whole number from 0 to 5 by
cross-validation. "-": not run. Real experts are logistic regressions on half of the training
rows."""


def report_of(store: Store, seeds: int = SEEDS) -> str:
    """Return the report of a store as Markdown.

    Args:
        store: The results of linear routers. Those of the network study are in the file
            ``networks.parquet`` beside the store's folder.
        seeds: Number of seeds.
    """
    results = read_store(store, seeds)
    networks = read_results(network_file(store))
    parts = [
        _INTRODUCTION,
        "## Claims",
        tables_of(claims_of(results, networks, seeds)),
        coverage_of(networks),
        "## Small networks",
        network_table(networks),
        "## Linear routers",
    ]
    for name, table in TABLES.items():
        parts += [f"### {name}: {table.title}", lines_table(name, results, seeds)]
    return "\n\n".join(parts) + "\n"


def page_with_claims(text: str, store: Store) -> str:
    """Return a page with the claims of a store between its two marks.

    Example:
        >>> page = page_with_claims(f"before {_BEGIN} old {_END} after", Store("no-such-folder"))
        >>> page.split()[-3:], "old" in page
        (['end', '-->', 'after'], False)
    """
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ArgumentError(f"the page must have the marks {_BEGIN} and {_END}.")
    networks = read_results(network_file(store))
    claims = claims_of(read_store(store), networks)
    body = f"{tables_of(claims)}\n\n{coverage_of(networks)}"
    return f"{before}{_BEGIN}\n\n{body}\n\n{_END}{after}"


def lines_table(table: str, results: Mapping[str, Result], seeds: int = SEEDS) -> str:
    """Return losses and differences of the lines of a table, and what our default chose on each."""
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
            f"{each.losses['tdef']:.4f}",
            *(gap_words(each.gaps.get(name)) for name in READINGS),
            chosen_kinds(results_of(each.line, "mildroute", results, seeds).values()),
        ]
        for each in figures
    ]
    return markdown(head, rows)


def chosen_kinds(results: Iterable[Result]) -> str:
    """Return the kinds of routers that our default chose, with the number of seeds of each.

    Example:
        >>> chosen_kinds([])
        '-'
    """
    kinds = Counter(_kind(result.note) for result in results)
    return ", ".join(f"{name} {count}" for name, count in kinds.most_common()) or "-"


def network_table(networks: Sequence[NetworkResult]) -> str:
    """Return losses of tuned networks and their differences to TDEF, tuned and as published."""
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
            counts = ", ".join(f"{edge} {count}" for edge, count in sorted(edges.items()))
            words.append(f"{name} ({counts or 'never'}; of {len(cells)})")
    return "; ".join(words)


def _kind(note: str) -> str:
    if "best single expert" in note:
        return "best single"
    if "cost regression" in note:
        return "cost regression"
    return "equal margins" if "uniform margins" in note else "differing margins"


def _printed_gap(figures: LineFigures) -> str:
    mild = figures.printed_loss("MILD")
    tdef = figures.printed_loss("TDEF")
    return "-" if mild is None or tdef is None else f"{mild - tdef:+.4f}"


def main() -> None:
    """Write the report and the claims on the page, or check that they are up to date."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit with 1 if a file would change")
    parser.add_argument("--store", type=Path, help="other results of linear routers")
    parser.add_argument("--report", type=Path, help="file to write the report to, with --store")
    options = parser.parse_args()
    if (options.store is None) != (options.report is None):
        parser.error("--store and --report go together")
    store = Store(options.store or _STORE)
    files = {options.report or _FOLDER / "results" / "README.md": report_of(store)}
    if options.store is None:
        files[_PAGE] = page_with_claims(_PAGE.read_text(encoding="utf-8"), store)
    changed = [
        path
        for path, text in files.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    for path in changed:
        if not options.check:
            path.write_text(files[path], encoding="utf-8", newline="\n")
        print(f"{path}: {'out of date' if options.check else 'written'}")
    raise SystemExit(int(options.check and bool(changed)))


if __name__ == "__main__":
    main()
