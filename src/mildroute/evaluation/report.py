"""The report: one HTML file with everything in it, readable on a phone, in the dark and on paper."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Mapping
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from mildroute.evaluation.assessment import Assessment
from mildroute.evaluation.picture import frontier_svg
from mildroute.evaluation.replicates import Interval
from mildroute.evaluation.wording import as_dollars, shown, shown_interval, shown_limits

__all__ = ["report_html"]

_GROUPS_SHOWN = 60
_LONGEST_TEXT = 400


def report_html(assessment: Assessment, *, title: str = "Routing report", provenance: Mapping[str, str] | None = None) -> str:
    """The report of an assessment.

    Args:
        assessment: What :func:`~mildroute.evaluation.assessment.assess` found.
        title: Heading of the page.
        provenance: Where router and table come from, by name; hash of the table, versions and date are added.

    Returns:
        HTML that needs no network.

    Example:
        >>> from mildroute.costs.table import CostTable
        >>> from mildroute.evaluation.assessment import assess
        >>> from mildroute.evaluation.fitting import fit_table
        >>> table = CostTable.of({"input": ["add 1 1", "sing a song"] * 40, "score:small": [1, 0] * 40, "score:large": [1, 1] * 40})
        >>> page = report_html(assess(fit_table(table).router, table), title="Sums and songs")
        >>> "<h1>Sums and songs</h1>" in page, "http" in page.replace("http://www.w3.org", "")
        (True, False)
    """
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    template = files("mildroute.evaluation").joinpath("templates/report.html").read_text(encoding="utf-8")
    page = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True).from_string(template)
    pictures = {"wide_picture": None, "narrow_picture": None}
    if assessment.frontier is not None:
        sizes = {"wide_picture": (7.4, 4.4), "narrow_picture": (3.7, 3.9)}
        # Drawn by us from numbers and escaped names: the only markup that the page does not escape.
        pictures = {name: Markup(frontier_svg(assessment.frontier, assessment.chosen, size=size)) for name, size in sizes.items()}  # type: ignore[misc]  # noqa: S704
    return page.render(
        title=title,
        version=version("mildroute"),
        subtitle=assessment.title,
        scope=_scope(assessment),
        sentence=assessment.savings.sentence if assessment.savings else None,
        warnings=assessment.warnings,
        cards=_cards(assessment),
        caption=_caption(assessment),
        experts=_experts(assessment),
        groups=_groups(assessment),
        losses=_losses(assessment),
        provenance=list(_provenance(assessment, provenance or {}).items()),
        **pictures,
    )


def _scope(assessment: Assessment) -> str:
    table = assessment.table
    groups = "" if table.groups is None else f"{len(set(table.groups)):,} groups, "
    return f"{groups}{len(table.experts)} experts; intervals are 95%, over further queries of the same kind"


def _cards(assessment: Assessment) -> list[dict[str, str]]:
    found, saved, promise = assessment.evaluation, assessment.savings, assessment.promise
    cards = []
    if saved is not None:
        cards += [
            _card(f"of the bill of {saved.reference} saved", saved.saved, "{:.0%}"),
            _card(f"of the score of {saved.reference} kept", saved.kept, "{:.1%}"),
        ]
    if found.dollars_per_1000 is not None:
        cards.append(_card("dollars per 1,000 queries", found.dollars_per_1000, "{:.4g}"))
    cards.append(_card("score", found.score, "{:.3f}"))
    if promise is not None:
        cards.append({"name": "target", "value": promise.verdict, "note": f"{promise.target}; measured {promise.words}"})
    cards.append(_card("way from the best single expert at this price to the oracle", found.gap_closed, "{:.1%}"))
    cards.append(_card("worst expert's recall", found.worst_recall, "{:.2f}"))
    return cards


def _card(name: str, interval: Interval, form: str) -> dict[str, str]:
    return {"name": name, "value": shown(interval.value, form), "note": shown_limits(interval, form)}


def _caption(assessment: Assessment) -> str:
    chosen = "" if assessment.decision is None else f"The chosen point {assessment.decision}. "
    return (
        f"{chosen}The router can be operated anywhere on the solid line: between two dots, requests are split at random. "
        "Its dots were chosen when the router was fitted and are measured on these rows; the band is 95% at each bill. "
        "The dotted line mixes single experts at random. "
        f"Costs below count a dollar as {assessment.price_weight_used:.4g} errors, the price weight of the chosen point."
    )


def _experts(assessment: Assessment) -> dict[str, Any]:
    found = assessment.evaluation
    rows = [
        {
            "name": row.name,
            "share": f"{row.share:.1%}",
            "share_width": round(100 * row.share, 1),
            "oracle_share": f"{row.oracle_share:.1%}",
            "oracle_width": round(100 * row.oracle_share, 1),
            "recall": shown_interval(row.recall, "{:.2f}"),
            "score": f"{row.score:.3f}",
            "dollars": None if row.dollars_per_1000 is None else as_dollars(row.dollars_per_1000),
        }
        for row in sorted(found.per_expert, key=lambda row: -row.share)
    ]
    head = ["expert", "router sends", "oracle sends", "recall", "score alone"]
    calibration = f" Calibration error {found.calibration_error:.3f}." if found.calibration_error is not None else ""
    note = (
        "Recall: share of the queries that an expert wins (or shares) that went to a winner. Effective number of experts "
        f"{found.effective_experts.value:.2f}, the oracle's {found.oracle_effective_experts:.2f}.{calibration}"
    )
    if assessment.far_rows:
        are = "row is" if assessment.far_rows == 1 else "rows are"
        note += f" {assessment.far_rows:,} {are} unlike the training data: the best single expert at this price answers there."
    return {"head": head if found.dollars_per_1000 is None else [*head, "per 1,000 alone"], "rows": rows, "note": note}


def _groups(assessment: Assessment) -> dict[str, Any] | None:
    found = assessment.evaluation.per_group
    if len(found) < 2:
        return None
    largest = sorted(found, key=lambda row: -row.rows)[:_GROUPS_SHOWN]
    rows = [
        [
            row.name,
            f"{row.rows:,}",
            f"{row.score:.3f}",
            shown_interval(row.deferral_loss, "{:.3f}"),
            f"{row.best_single_loss:.3f}",
            f"{row.oracle_loss:.3f}",
            row.most_chosen,
        ]
        for row in largest
    ]
    note = "Cost is the error plus the price weight times dollars." + (
        f" The {_GROUPS_SHOWN} largest of {len(found)} groups." if len(found) > _GROUPS_SHOWN else ""
    )
    head = [
        "group",
        "queries",
        "score",
        "cost",
        f"cost of {assessment.evaluation.reference}, best at this price",
        "cost of oracle",
        "mostly sent to",
    ]
    return {"head": head, "rows": rows, "note": note}


def _losses(assessment: Assessment) -> list[dict[str, str]]:
    table = assessment.table
    return [
        {
            "query": table.query_ids[row.row],
            "text": _shortened((table.inputs or [])[row.row]),
            "chosen": row.chosen,
            "better": row.best,
            "loss": f"{row.regret:.3f}",
        }
        for row in assessment.evaluation.lost
    ]


def _provenance(assessment: Assessment, given: Mapping[str, str]) -> dict[str, str]:
    prices = assessment.table.prices
    listed = {} if prices is None else {"prices": ", ".join(filter(None, (prices.source, prices.date))) or "given without source"}
    packages = ", ".join(f"{name} {version(name)}" for name in ("mildroute", "numpy", "scikit-learn"))
    return {
        **given,
        **assessment.about,
        "table's content hash": assessment.table.content_hash,
        **listed,
        "versions": f"{packages}, Python {platform.python_version()}",
        "made": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    }


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "…"
