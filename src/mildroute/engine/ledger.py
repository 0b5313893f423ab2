"""The ledger: every table of the paper beside what was measured, written from the store and from nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from mildroute.engine.causes import CAUSES, agreement, cause_of
from mildroute.engine.comparisons import Gap, Spread, gap_between, sign_of
from mildroute.engine.ledger_words import INTRODUCTION, NOT_SHOWN, ODDITIES
from mildroute.engine.methods import METHODS
from mildroute.engine.paper_tables import TABLES, PaperTable, Printed, cells_of
from mildroute.engine.results import Result
from mildroute.engine.store import Store
from mildroute.engine.summaries import BASELINE, LineFigures, figures_of, results_of

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
    for name, table in TABLES.items():
        parts += _section(table, figures[name], results, seeds)
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
    return "\n".join(["Methods, all linear on the same frozen vectors:", "", *lines])


def _overall(figures: Mapping[str, Sequence[LineFigures]]) -> str:
    """The image tables together: the share of lines on which each method beats TDEF."""
    lines = [each for name in ("1a", "1b", "2a", "2b", "severe") for each in figures[name]]
    return "\n".join(["## All image lines together", "", _sign_table(lines, TABLES["1a"].methods)])


def _section(table: PaperTable, figures: Sequence[LineFigures], results: Mapping[str, Result], seeds: int) -> list[str]:
    title = f"## {table.name}: {table.title}"
    if not figures:
        return [title, f"Not run yet: `mildroute reproduce --table {table.name}`."]
    parts = [
        title,
        _loss_table(table, figures),
        _gap_table(table, figures),
        _sign_table(figures, table.methods),
        _share_table(table, figures),
    ]
    return [*parts, _noise_table(table, results, seeds)] if table.clean else parts


def _loss_table(table: PaperTable, figures: Sequence[LineFigures]) -> str:
    papers = list(dict.fromkeys(name for each in figures for name, value in each.printed.items() if value.loss is not None))
    head = ["row", *(f"paper {name}" for name in papers), "best single", *(METHODS[name].label for name in table.methods), "oracle"]
    rows = [
        [
            each.line.row,
            *(_printed(each.printed.get(name)) for name in papers),
            _number(each.best_single),
            *(_spread(each.spreads.get(name), each.gaps.get(name)) for name in table.methods),
            _number(each.oracle),
        ]
        for each in figures
    ]
    note = "Deferral loss, mean ± standard deviation over seeds; (+) and (-): better and worse than TDEF, the 95% interval excludes zero."
    return f"{note}\n\n{_markdown(head, rows)}"


def _gap_table(table: PaperTable, figures: Sequence[LineFigures]) -> str:
    methods = [name for name in table.methods if name != BASELINE]
    head = ["row", "paper", *(METHODS[name].label for name in methods), "printed agrees", "tuned agrees", "cause"]
    rows = [
        [
            each.line.row,
            _printed_gap(each),
            *(_gap(each.gaps.get(name)) for name in methods),
            agreement(each, "mild"),
            agreement(each, "mild-tuned"),
            cause_of(each),
        ]
        for each in figures
    ]
    return f"Difference to TDEF with its 95% interval (below zero is better); the paper's is MILD's.\n\n{_markdown(head, rows)}"


def _sign_table(figures: Sequence[LineFigures], methods: Iterable[str]) -> str:
    head = ["against TDEF", "lines better", "worse", "sign test p", "surely better", "surely worse"]
    rows = []
    for name in methods:
        gaps = [each.gaps[name] for each in figures if name in each.gaps]
        if gaps:
            sign = sign_of(gaps)
            counts = [f"{count}/{len(gaps)}" for count in (sign.better, sign.worse, sign.surely_better, sign.surely_worse)]
            rows.append([METHODS[name].label, *counts[:2], f"{sign.p_value:.3g}", *counts[2:]])
    return _markdown(head, rows)


def _share_table(table: PaperTable, figures: Sequence[LineFigures]) -> str:
    shown = [name for name in ("tdef", "mild", "mild-decoded", "mild-tuned", "mildroute") if name in table.methods]
    papers = [name for name in ("optimal", "TDEF", "MILD") if any(name in each.printed for each in figures)]
    head = ["row", *(f"paper {name}" for name in papers), "optimal", *(METHODS[name].label for name in shown)]
    rows = [
        [
            each.line.row,
            *(_printed_shares(each.printed.get(name)) for name in papers),
            _shares(each.optimal),
            *(_shares(each.shares.get(name, ())) for name in shown),
        ]
        for each in figures
    ]
    return f"How often each expert is chosen, in percent.\n\n{_markdown(head, rows)}"


def _noise_table(table: PaperTable, results: Mapping[str, Result], seeds: int) -> str:
    """What noise on the training costs adds to the loss, against the clean table."""
    clean = TABLES[table.clean].lines
    rows = []
    for line, without in zip(table.lines, clean, strict=True):
        row = [line.row]
        for name in table.methods:
            noisy, quiet = (results_of(each, name, results, seeds) for each in (line, without))
            row.append(_gap(gap_between(noisy, quiet)) if set(noisy) & set(quiet) else "-")
        rows.append(row)
    head = ["row", *(METHODS[name].label for name in table.methods)]
    return f"What the noise adds to the loss (paper: TDEF +0.126, MILD +0.013).\n\n{_markdown(head, rows)}"


def _printed(value: Printed | None) -> str:
    return "-" if value is None or value.loss is None else f"{_number(value.loss)} ± {_number(value.sd or 0.0)}"


def _printed_gap(figures: LineFigures) -> str:
    losses = [figures.printed[name].loss for name in ("MILD", "TDEF") if name in figures.printed]
    return f"{losses[0] - losses[1]:+.4f}" if len(losses) == 2 and losses[0] is not None and losses[1] is not None else "-"


def _spread(spread: Spread | None, gap: Gap | None) -> str:
    if spread is None:
        return "-"
    mark = {"better": " (+)", "worse": " (-)"}.get(gap.verdict if gap is not None else "", "")
    return f"{_number(spread.mean)} ± {_number(spread.sd)}{mark}"


def _gap(gap: Gap | None) -> str:
    return "-" if gap is None else f"{gap.value:+.4f} [{gap.low:+.4f}, {gap.high:+.4f}]"


def _shares(shares: Sequence[float]) -> str:
    return " / ".join(f"{100 * share:.1f}" for share in shares)


def _printed_shares(value: Printed | None) -> str:
    return _shares([share / 100 for share in value.shares]) if value is not None and value.shares else "-"


def _number(value: float) -> str:
    return f"{value:.4f}"


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    rule = ["---", *("--:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, rule, *rows])
