"""The Markdown tables of the ledger: losses, differences, signs and shares of the lines of a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mildroute.engine.causes import agreement, cause_of
from mildroute.engine.comparisons import Gap, Spread, sign_of
from mildroute.engine.methods import METHODS
from mildroute.engine.paper_tables import PaperTable, Printed
from mildroute.engine.summaries import BASELINE, LineFigures

__all__ = ["gap_table", "gap_words", "loss_table", "markdown", "share_table", "sign_table", "spread_words"]


def loss_table(table: PaperTable, figures: Sequence[LineFigures]) -> str:
    """Losses of every method beside the paper's, the best single expert's and the oracle's.

    Example:
        >>> from mildroute.engine.paper_tables import TABLES
        >>> loss_table(TABLES["1a"], []).splitlines()[2][:27]
        '| row | best single | TDEF '
    """
    papers = list(dict.fromkeys(name for each in figures for name, value in each.printed.items() if value.loss is not None))
    head = ["row", *(f"paper {name}" for name in papers), "best single", *(METHODS[name].label for name in table.methods), "oracle"]
    rows = [
        [
            each.line.row,
            *(_printed(each.printed.get(name)) for name in papers),
            _number(each.best_single),
            *(spread_words(each.spreads.get(name), each.gaps.get(name)) for name in table.methods),
            _number(each.oracle),
        ]
        for each in figures
    ]
    note = "Deferral loss, mean ± standard deviation over seeds; (+) and (-): better and worse than TDEF, the 95% interval excludes zero."
    return f"{note}\n\n{markdown(head, rows)}"


def gap_table(table: PaperTable, figures: Sequence[LineFigures]) -> str:
    """Differences of every method to TDEF, whether they agree with the paper, and why not.

    Example:
        >>> from mildroute.engine.paper_tables import TABLES
        >>> gap_table(TABLES["1a"], []).splitlines()[2].endswith('| printed agrees | tuned agrees | cause |')
        True
    """
    methods = [name for name in table.methods if name != BASELINE]
    head = ["row", "paper", *(METHODS[name].label for name in methods), "printed agrees", "tuned agrees", "cause"]
    rows = [
        [
            each.line.row,
            _printed_gap(each),
            *(gap_words(each.gaps.get(name)) for name in methods),
            agreement(each, "mild"),
            agreement(each, "mild-tuned"),
            cause_of(each),
        ]
        for each in figures
    ]
    return f"Difference to TDEF with its 95% interval (below zero is better); the paper's is MILD's.\n\n{markdown(head, rows)}"


def sign_table(figures: Sequence[LineFigures], methods: Iterable[str]) -> str:
    """On how many lines each method beats TDEF.

    Example:
        >>> sign_table([], ["mild"]).splitlines()[0]
        '| against TDEF | lines better | worse | sign test p | surely better | surely worse |'
    """
    head = ["against TDEF", "lines better", "worse", "sign test p", "surely better", "surely worse"]
    rows = []
    for name in methods:
        gaps = [each.gaps[name] for each in figures if name in each.gaps]
        if gaps:
            sign = sign_of(gaps)
            counts = [f"{count}/{len(gaps)}" for count in (sign.better, sign.worse, sign.surely_better, sign.surely_worse)]
            rows.append([METHODS[name].label, *counts[:2], f"{sign.p_value:.3g}", *counts[2:]])
    return markdown(head, rows)


def share_table(table: PaperTable, figures: Sequence[LineFigures]) -> str:
    """How often each expert is chosen.

    Example:
        >>> from mildroute.engine.paper_tables import TABLES
        >>> share_table(TABLES["1a"], []).splitlines()[0]
        'How often each expert is chosen, in percent.'
    """
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
    return f"How often each expert is chosen, in percent.\n\n{markdown(head, rows)}"


def gap_words(gap: Gap | None) -> str:
    """A difference with its interval.

    Example:
        >>> gap_words(Gap(-0.1, -0.2, 0.05)), gap_words(None)
        ('-0.1000 [-0.2000, +0.0500]', '-')
    """
    return "-" if gap is None else f"{gap.value:+.4f} [{gap.low:+.4f}, {gap.high:+.4f}]"


def spread_words(spread: Spread | None, gap: Gap | None = None) -> str:
    """A mean with its deviation, marked where the difference is more than noise.

    Example:
        >>> spread_words(Spread(0.5, 0.01, 5), Gap(-0.1, -0.2, -0.05)), spread_words(None)
        ('0.5000 ± 0.0100 (+)', '-')
    """
    if spread is None:
        return "-"
    mark = {"better": " (+)", "worse": " (-)"}.get(gap.verdict if gap is not None else "", "")
    return f"{_number(spread.mean)} ± {_number(spread.sd)}{mark}"


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; its first column is text, the others are figures.

    Example:
        >>> print(markdown(["row", "loss"], [["a", "0.5"]]))
        | row | loss |
        | --- | --: |
        | a | 0.5 |
    """
    rule = ["---", *("--:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, rule, *rows])


def _printed(value: Printed | None) -> str:
    return "-" if value is None or value.loss is None else f"{_number(value.loss)} ± {_number(value.sd or 0.0)}"


def _printed_gap(figures: LineFigures) -> str:
    losses = [figures.printed[name].loss for name in ("MILD", "TDEF") if name in figures.printed]
    return f"{losses[0] - losses[1]:+.4f}" if len(losses) == 2 and losses[0] is not None and losses[1] is not None else "-"


def _shares(shares: Sequence[float]) -> str:
    return " / ".join(f"{100 * share:.1f}" for share in shares)


def _printed_shares(value: Printed | None) -> str:
    return _shares([share / 100 for share in value.shares]) if value is not None and value.shares else "-"


def _number(value: float) -> str:
    return f"{value:.4f}"
