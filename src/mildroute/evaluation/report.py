"""The report of an evaluation as one self-contained HTML file.

The page is readable on a phone, in dark mode and on paper.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import math
import platform
from collections.abc import Mapping
from importlib.metadata import version
from importlib.resources import files
from typing import Any

import numpy as np

from mildroute._format import format_dollars, format_number, pluralize, to_jsonable
from mildroute.costs.table import CostTable
from mildroute.evaluation.cost_quality import Point
from mildroute.evaluation.frontier_picture import check_report_extra, frontier_svg, shorten
from mildroute.evaluation.policy_evaluation import GroupRow
from mildroute.evaluation.resampling import Interval
from mildroute.evaluation.router_evaluation import RouterEvaluation
from mildroute.evaluation.savings_sentences import shown_interval, shown_limits
from mildroute.evaluation.second_look import SecondLook
from mildroute.evaluation.target_checks import MeasuredTarget
from mildroute.fitting.result import Figure

__all__ = ["report_html"]

_GROUPS_SHOWN = 60
# Maximum number of characters of an input to show.
_LONGEST_TEXT = 400
# Requests per month until the reader enters another number.
_REQUESTS = 1_000_000
# A mark for each verdict, so that they do not differ by color alone.
_MARKS = {"met": "✓", "not decided": "?", "missed": "✕"}


def report_html(
    assessment: RouterEvaluation,
    *,
    title: str = "Routing report",
    provenance: Mapping[str, str] | None = None,
) -> str:
    """Return the report of an evaluation.

    Args:
        assessment: The result of :func:`~mildroute.evaluation.router_evaluation.evaluate`.
        title: Heading of the page.
        provenance: Origin of router and table, by name; table hash, versions and date are added.

    Returns:
        HTML that needs no network. Without its script, the page still shows all figures except
        those of other targets and volumes.

    Example:
        >>> from mildroute.costs.table import CostTable
        >>> from mildroute.evaluation.router_evaluation import evaluate
        >>> from mildroute.fitting.fit import fit_table
        >>> table = CostTable.from_data({"input": ["add 1 1", "sing a song"] * 40,
        ...                       "score:small": [1, 0] * 40, "score:large": [1, 1] * 40})
        >>> page = report_html(evaluate(fit_table(table).router, table), title="Sums and songs")
        >>> "<h1>Sums and songs</h1>" in page, "://" in page.replace("http://www.w3.org", "")
        (True, False)
    """
    check_report_extra()
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    folder = files("mildroute.evaluation").joinpath("templates")
    template, script = (
        folder.joinpath(name).read_text(encoding="utf-8") for name in ("report.html", "report.js")
    )
    page = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True).from_string(
        template
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # The page escapes everything except this markup, whose names are already escaped.
    trusted = {
        name: Markup(text)  # noqa: S704  # nosec B704
        for name, text in {"script": script, **_pictures(assessment)}.items()
    }
    return page.render(
        title=title,
        version=version("mildroute"),
        script_hash=f"sha256-{digest}",
        headline=assessment.headline,
        scope=_scope(assessment),
        sentence=assessment.savings.sentence if assessment.savings else None,
        warnings=assessment.warnings,
        lines=_lines(assessment),
        cards=_cards(assessment),
        shares=_shares(assessment),
        month=_month(assessment),
        data=_data(assessment),
        groups=_groups(assessment),
        losses=_losses(assessment),
        looks=_looks(assessment),
        caption=_caption(assessment),
        figures=_figures(assessment),
        experts=_experts(assessment),
        costs_by_group=_costs_by_group(assessment),
        provenance=list(_provenance(assessment, provenance or {}).items()),
        **trusted,
    )


def _pictures(assessment: RouterEvaluation) -> dict[str, str]:
    frontier = assessment.frontier
    spots = [point for point, _ in _spots(assessment)]
    sizes = {"wide_picture": (7.4, 4.4), "narrow_picture": (3.7, 3.9)}
    return {
        name: ""
        if frontier is None
        else frontier_svg(frontier, assessment.chosen, size=size, spots=spots)
        for name, size in sizes.items()
    }


def _spots(assessment: RouterEvaluation) -> list[tuple[Point, str]]:
    """Return the targets in order, the single experts and the oracle, each with its figures."""
    spots = [
        (
            Point("", row.dollars_per_1000.value, row.score),
            f"target {100 * row.quality:.4g}%: saved {row.saved.value:.0%}, kept"
            f" {row.kept.value:.1%}",
        )
        for row in _shown_targets(assessment)
    ]
    frontier = assessment.frontier
    if frontier is not None:
        spots += [(point, point.name) for point in (*frontier.singles, frontier.oracle)]
    figures = "; score {:.3f}, {} per 1,000".format
    return [
        (point, words + figures(point.score, format_dollars(point.dollars_per_1000)))
        for point, words in spots
    ]


def _scope(assessment: RouterEvaluation) -> str:
    table, saved = assessment.table, assessment.savings
    groups = "" if table.groups is None else f"{len(set(table.groups)):,} groups, "
    looks = assessment.looks
    seen = f" and {pluralize(looks, 'look')}" if looks else ""
    number = f"{len(table.experts) - looks} experts{seen}"
    best = "" if saved is None else f" compared with {saved.reference}, the best in the table;"
    return (
        f"{pluralize(len(table), 'query')}, {groups}{number};{best} intervals are 95%, over further"
        " queries of the same kind"
    )


def _cards(assessment: RouterEvaluation) -> list[dict[str, str]]:
    evaluation, saved, promise = assessment.evaluation, assessment.savings, assessment.promise
    cards = []
    if saved is not None:
        saved_card = _card("saved", saved.saved, "{:.0%}")
        saved_card["note"] += f", of the bill of {saved.baseline}"
        kept_card = _card("kept", saved.kept, "{:.1%}")
        kept_card["note"] += f", of the score of {saved.reference}"
        cards += [saved_card, kept_card]
        paid, instead = saved.dollars_per_1000, saved.reference_dollars_per_1000
        limits = f"{format_dollars(paid.low)} to {format_dollars(paid.high)}"
        note = f"{limits}, per 1,000 queries, instead of {format_dollars(instead.value)}"
        cards.append({"name": "bill", "value": format_dollars(paid.value), "note": note})
    if saved is None or promise is None:
        cards.append(_card("score", evaluation.score, "{:.3f}"))
    if promise is not None:
        cards.append(
            {
                "name": "target",
                "value": promise.verdict,
                "note": f"{promise.target}; measured {promise.words}",
                "mark": _MARKS[promise.verdict],
                "verdict": promise.verdict.replace(" ", "-"),
            }
        )
    return cards


def _figures(assessment: RouterEvaluation) -> list[dict[str, str]]:
    evaluation = assessment.evaluation
    way = _card(
        "way from the best single expert at this price to the oracle",
        evaluation.gap_closed,
        "{:.1%}",
    )
    if assessment.in_reach is not None:
        way["note"] += f"; {assessment.in_reach:.1%} in reach of inputs alone"
    recall = _card("lowest recall of an expert", evaluation.worst_recall, "{:.2f}")
    return [_card("score", evaluation.score, "{:.3f}"), way, recall]


def _card(name: str, interval: Interval, form: str) -> dict[str, str]:
    # Next to a free expert, a saving has no value.
    is_known = math.isfinite(interval.value)
    return {
        "name": name,
        "value": format_number(interval.value, form) if is_known else "none",
        "note": shown_limits(interval, form) if is_known else "none",
    }


def _shares(assessment: RouterEvaluation) -> list[dict[str, Any]]:
    """Return the experts that answer queries at the current or another target, by share."""
    at_targets = [row.shares for row in _shown_targets(assessment)]
    rows = sorted(enumerate(assessment.evaluation.per_expert), key=lambda pair: -pair[1].share)
    return [
        {"index": index, "name": row.name, "share": row.share, "text": f"{row.share:.1%}"}
        for index, row in rows
        if row.share > 0 or any(shares[index] > 0 for shares in at_targets)
    ]


def _lines(assessment: RouterEvaluation) -> dict[str, list[Any]]:
    """Return today's bill, the simplest alternative and the router as a table of texts."""

    def shown(figure: Figure, form: str) -> str:
        interval = Interval(*figure)
        value = format_number(interval.value, form)
        return value if interval.low == interval.high else shown_interval(interval, form)

    head = ["", "who answers", "$ per 1,000", "saved", "best score kept"]
    rows = [
        [
            line.role,
            line.words,
            shown(line.dollars_per_1000, "{:.4g}"),
            shown(line.saved, "{:.0%}"),
            shown(line.kept, "{:.1%}"),
        ]
        for line in assessment.lines
    ]
    return {"head": head, "rows": rows}


def _month(assessment: RouterEvaluation) -> dict[str, Any] | None:
    """Return the monthly cost of a number of requests with the router and with the baseline."""
    saved = assessment.savings
    if saved is None:
        return None
    bills = saved.dollars_per_1000.value, saved.reference_dollars_per_1000.value
    ours, theirs = (bill * _REQUESTS / 1000 for bill in bills)
    return {
        "requests": _REQUESTS,
        "reference": saved.baseline,
        "ours": format_dollars(ours),
        "theirs": format_dollars(theirs),
        "difference": format_dollars(abs(theirs - ours)),
        "word": "saved" if theirs >= ours else "more",
    }


def _shown_targets(assessment: RouterEvaluation) -> tuple[MeasuredTarget, ...]:
    """Return the targets of the slider; empty if all of them lead to the same choices."""
    targets = assessment.targets
    is_choice = len({(row.shares, row.dollars_per_1000.value) for row in targets}) > 1
    return targets if is_choice else ()


def _data(assessment: RouterEvaluation) -> dict[str, Any]:
    """Return the script's data, including all text except that of monthly bills."""
    targets, saved = _shown_targets(assessment), assessment.savings
    if saved is None:
        return {"targets": [], "spots": []}
    bill = saved.dollars_per_1000.value
    nearest = sorted(
        targets, key=lambda row: (not row.is_in_use, abs(row.dollars_per_1000.value - bill))
    )
    return {
        "reference": saved.reference,
        "bill": bill,
        "reference_bill": saved.reference_dollars_per_1000.value,
        "start": targets.index(nearest[0]) if targets else 0,
        "targets": [_target_data(row) for row in targets],
        "spots": [text for _, text in _spots(assessment)],
    }


def _target_data(row: MeasuredTarget) -> dict[str, Any]:
    return {
        "quality": row.quality,
        "dollars_per_1000": row.dollars_per_1000.value,
        "shares": to_jsonable(row.shares),
        "text": {
            "target": f"{100 * row.quality:.4g}%{', in use' if row.is_in_use else ''}",
            "saved": shown_interval(row.saved, "{:.0%}")
            if math.isfinite(row.saved.value)
            else "none",
            "kept": shown_interval(row.kept, "{:.1%}"),
            "bill": format_dollars(row.dollars_per_1000.value),
            "verdict": f"{_MARKS[row.verdict]} {row.verdict}",
        },
        "share_text": [f"{share:.1%}" for share in row.shares],
    }


def _caption(assessment: RouterEvaluation) -> str:
    chosen = "" if assessment.decision is None else f"The router {assessment.decision}. "
    is_mixed = assessment.point is not None and assessment.point.is_mixed
    worth = "which is what it buys between the two points" if is_mixed else "the price weight there"
    line = (
        ""
        if assessment.frontier is None
        else "It can be operated anywhere on the solid line: between two dots, requests are split"
        " at random. The dots were chosen when the router was fitted and are measured on these"
        " rows; the band is 95% at each bill. The dotted line mixes single experts at random. "
    )
    if assessment.table.dollars is None:
        return f"{chosen}The costs below are only errors."
    return (
        f"{chosen}{line}The costs below are errors plus dollars, and count a dollar as"
        f" {assessment.price_weight_used:.4g} errors, {worth}."
    )


def _experts(assessment: RouterEvaluation) -> dict[str, Any]:
    evaluation = assessment.evaluation
    rows = [
        [
            row.name,
            f"{row.share:.1%}",
            f"{row.oracle_share:.1%}",
            shown_interval(row.recall, "{:.2f}"),
            f"{row.score:.3f}",
            *([] if row.dollars_per_1000 is None else [format_dollars(row.dollars_per_1000)]),
        ]
        for row in sorted(evaluation.per_expert, key=lambda row: -row.share)
    ]
    head = ["expert", "router sends", "oracle sends", "recall", "score alone"]
    calibration = (
        f" Calibration error {evaluation.calibration_error:.3f}."
        if evaluation.calibration_error is not None
        else ""
    )
    note = (
        "Recall: share of the queries that an expert wins (or shares) that went to a winner."
        f" Effective number of experts {evaluation.effective_experts.value:.2f}, the oracle's"
        f" {evaluation.oracle_effective_experts:.2f}.{calibration}"
    )
    if assessment.far_rows:
        are = "row is" if assessment.far_rows == 1 else "rows are"
        note += (
            f" {assessment.far_rows:,} {are} unlike the training data: the best single expert at"
            " this price answers there."
        )
    return {
        "head": head if evaluation.dollars_per_1000 is None else [*head, "per 1,000 alone"],
        "rows": rows,
        "note": note,
    }


def _looks(assessment: RouterEvaluation) -> dict[str, Any] | None:
    """Return the looks taken and their gain, for a router with looks."""
    second_look = assessment.second_look
    if second_look is None:
        return None
    plain = second_look.plain
    return {
        "sentence": (
            f"Answers were looked at on {second_look.looked_at:.1%} of the queries; a query took"
            f" {second_look.calls:.2f} calls on average. {_look_verdict(assessment, second_look)}"
        ),
        "head": ["begins with", "queries", "calls", "score", "dollars per 1,000"],
        "rows": [
            [
                row.name,
                f"{row.share:.1%}",
                f"{row.calls:.2f}",
                f"{row.score:.3f}",
                format_dollars(row.dollars_per_1000),
            ]
            for row in (*sorted(second_look.rows, key=lambda row: -row.share), plain)
        ],
        "note": (
            "Score and dollars are those of the queries in the row, with all calls that were made."
            " The last row is the router without looks on all queries."
        ),
    }


def _look_verdict(assessment: RouterEvaluation, second_look: SecondLook) -> str:
    """Summarize how looks change the results of the same router, with a verdict."""
    gain = second_look.gain
    plain = second_look.plain
    if gain.high < 0:
        verdict = "looks are worth it"
    elif gain.low > 0:
        verdict = "looks cost more than they bring"
    else:
        verdict = "these rows do not show that looks are worth it"
    return (
        f"The same router without looks, for the same target, has a score of {plain.score:.3f} for"
        f" {format_dollars(plain.dollars_per_1000)} per 1,000 queries. Looks change the cost of a"
        f" query by {shown_interval(gain, '{:+.4f}')} (a dollar counts as"
        f" {assessment.price_weight_used:.4g} errors): {verdict}."
    )


def _groups(assessment: RouterEvaluation) -> dict[str, Any] | None:
    """Return the score of each group alongside that of the best expert by score."""
    shown, table = _largest_groups(assessment), assessment.table
    if not shown or table.groups is None:
        return None
    alone = table.scores[:, : len(table.experts) - assessment.looks]
    best = int(np.argmax(alone.mean(axis=0)))
    if assessment.savings is not None:
        best = table.experts.index(assessment.savings.reference)
    of_group = np.array([str(name) for name in table.groups])
    rows = []
    for row in shown:
        reference = float(alone[of_group == row.name, best].mean())
        rows.append(
            [
                row.name,
                f"{row.rows:,}",
                f"{row.score:.3f}",
                f"{reference:.3f}",
                format_number(100 * (row.score - reference), "{:+.1f}"),
                row.most_chosen,
            ]
        )
    every = len(assessment.evaluation.per_group)
    largest = f" The {len(shown)} largest of {every} groups." if every > len(shown) else ""
    head = ["group", "queries", "score", f"score of {table.experts[best]}", "points", "mostly asks"]
    return {
        "head": head,
        "rows": rows,
        "note": f"Points: difference of the two scores, in percentage points.{largest}",
    }


def _largest_groups(assessment: RouterEvaluation) -> list[GroupRow]:
    groups = assessment.evaluation.per_group
    return sorted(groups, key=lambda row: -row.rows)[:_GROUPS_SHOWN] if len(groups) > 1 else []


def _costs_by_group(assessment: RouterEvaluation) -> dict[str, Any] | None:
    rows = [
        [
            row.name,
            shown_interval(row.deferral_loss, "{:.3f}"),
            f"{row.best_single_loss:.3f}",
            f"{row.oracle_loss:.3f}",
        ]
        for row in _largest_groups(assessment)
    ]
    best = f"cost of {assessment.evaluation.reference}, best at this price"
    return {"head": ["group", "cost", best, "cost of oracle"], "rows": rows} if rows else None


def _losses(assessment: RouterEvaluation) -> dict[str, Any]:
    table, inputs = assessment.table, assessment.table.inputs or []
    return {
        "head": ["query", "input", "sent to", "better", "loss"],
        "rows": [
            [
                table.query_ids[row.row],
                shorten(inputs[row.row], _LONGEST_TEXT),
                _outcome(table, row.row, row.chosen),
                _outcome(table, row.row, row.best),
                f"{row.regret:.3f}",
            ]
            for row in assessment.evaluation.lost
            if row.regret > 0
        ],
        "note": "Each expert is listed with its score and price on the query. The loss is the error"
        " and price that the better expert would have saved.",
    }


def _outcome(table: CostTable, row: int, expert: str) -> str:
    """Return an expert's score and cost on a row."""
    index = table.experts.index(expert)
    paid = (
        "" if table.dollars is None else f" for {format_dollars(float(table.dollars[row, index]))}"
    )
    return f"{expert}: {table.scores[row, index]:.2g}{paid}"


def _provenance(assessment: RouterEvaluation, origin: Mapping[str, str]) -> dict[str, str]:
    prices = assessment.table.prices
    listed = (
        {}
        if prices is None
        else {
            "prices": (
                ", ".join(filter(None, (prices.source, prices.date))) or "listed without source"
            )
        }
    )
    packages = ", ".join(
        f"{name} {version(name)}" for name in ("mildroute", "numpy", "scikit-learn")
    )
    return {
        **origin,
        **assessment.about,
        "table's content hash": assessment.table.content_hash,
        **listed,
        "versions": f"{packages}, Python {platform.python_version()}",
        "made": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }
