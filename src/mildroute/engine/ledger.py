"""The ledger: every table of the paper beside what was measured, written from the store and from nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from mildroute.engine.causes import CAUSES
from mildroute.engine.comparisons import gap_between
from mildroute.engine.ledger_end_to_end import default_table, end_to_end_introduction, frozen_table
from mildroute.engine.ledger_tables import gap_table, gap_words, loss_table, markdown, share_table, sign_table
from mildroute.engine.ledger_words import INTRODUCTION, NOT_SHOWN, ODDITIES
from mildroute.engine.methods import METHODS
from mildroute.engine.paper_tables import TABLES, PaperTable, cells_of
from mildroute.engine.results import Result
from mildroute.engine.store import Store
from mildroute.engine.summaries import LineFigures, figures_of, results_of

__all__ = ["ledger_of", "write_ledger"]


def write_ledger(store: Store, path: Path, *, seeds: int = 5) -> int:
    """Write the ledger of a store; the same store gives the same bytes.

    Args:
        store: The results.
        path: The Markdown file.
        seeds: Seeds 0 to this one, exclusive.

    Returns:
        How many results it rests on.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> write_ledger(Store(folder / "store"), folder / "ledger.md")
        0
    """
    results = store.read({cell.key for cell in cells_of(list(TABLES), seeds=seeds)})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(ledger_of(results, seeds=seeds), encoding="utf-8", newline="\n")
    return len(results)


def ledger_of(results: Mapping[str, Result], *, seeds: int = 5) -> str:
    """The ledger as Markdown.

    Args:
        results: Results by key.
        seeds: Seeds 0 to this one, exclusive.

    Returns:
        The text.

    Example:
        >>> ledger_of({}).splitlines()[0]
        '# The paper, table by table'
    """
    known = [results[key] for key in sorted(results)]
    figures = {name: figures_of(table, results, seeds) for name, table in TABLES.items()}
    parts = ["# The paper, table by table", *INTRODUCTION, _runs(known, seeds), _methods(), _overall(figures)]
    linear, networks = ([table for table in TABLES.values() if bool(table.frozen) is end_to_end] for end_to_end in (False, True))
    parts += [part for table in linear for part in _section(table, figures[table.name], results, seeds)]
    parts += end_to_end_introduction(figures)
    parts += [part for table in networks for part in _section(table, figures[table.name], results, seeds)]
    parts += ["## Causes", "\n".join(f"- **{name}**: {cause}" for name, cause in CAUSES.items())]
    parts += ["## Oddities in print", "\n".join(f"- {oddity}" for oddity in ODDITIES)]
    parts += ["## Not shown here", "\n".join(f"- {item}" for item in NOT_SHOWN)]
    return "\n\n".join(parts) + "\n"


def _runs(results: Sequence[Result], seeds: int) -> str:
    wanted = len(cells_of(list(TABLES), seeds=seeds))
    if not results:
        return f"Results: 0 of {wanted} cells."
    days = sorted({result.finished[:10] for result in results})
    versions = sorted({result.versions for result in results})
    hours = sum(result.seconds for result in results) / 3600
    words = "; ".join(", ".join(f"{name} {number}" for name, number in json.loads(each or "{}").items()) for each in versions)
    return f"Results: {len(results)} of {wanted} cells, {hours:.2f} hours of processor time, run {days[0]} to {days[-1]} with {words}."


def _methods() -> str:
    lines = [f"- **{each.label}**: {each.what}." for each in METHODS.values()]
    return "\n".join(["Methods, all linear on the same frozen vectors (for networks see [end to end](#end-to-end)):", "", *lines])


def _overall(figures: Mapping[str, Sequence[LineFigures]]) -> str:
    """The image tables together: the share of lines on which each method beats TDEF."""
    lines = [each for name in ("1a", "1b", "2a", "2b", "severe") for each in figures[name]]
    return "\n".join(["## All image lines together", "", sign_table(lines, TABLES["1a"].methods)])


def _section(table: PaperTable, figures: Sequence[LineFigures], results: Mapping[str, Result], seeds: int) -> list[str]:
    title = f"## {table.name}: {table.title}"
    if not figures:
        return [title, f"Not run yet: `mildroute reproduce --table {table.name}`."]
    parts = [
        title,
        loss_table(table, figures),
        gap_table(table, figures),
        sign_table(figures, table.methods),
        share_table(table, figures),
    ]
    parts += [_noise_table(table, results, seeds)] if table.clean else []
    return parts + ([default_table(table, results, seeds), frozen_table(table, results, seeds)] if table.frozen else [])


def _noise_table(table: PaperTable, results: Mapping[str, Result], seeds: int) -> str:
    """What noise on the training costs adds to the loss, against the clean table."""
    clean = TABLES[table.clean].lines
    rows = []
    for line, without in zip(table.lines, clean, strict=True):
        row = [line.row]
        for name in table.methods:
            noisy, quiet = (results_of(each, name, results, seeds) for each in (line, without))
            row.append(gap_words(gap_between(noisy, quiet)) if set(noisy) & set(quiet) else "-")
        rows.append(row)
    head = ["row", *(METHODS[name].label for name in table.methods)]
    return f"What the noise adds to the loss (paper: TDEF +0.126, MILD +0.013).\n\n{markdown(head, rows)}"
