"""What people call first: ``fit``, ``compare``, ``evaluate`` and ``describe`` on data of any form.

Data are a pandas or polars DataFrame, an Arrow table, a dict of columns, a list of dicts, a path or
a ``CostTable``. Columns are named, or guessed and said.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from mildroute._format import as_dollars
from mildroute.costs import summary
from mildroute.costs.table import CostTable
from mildroute.evaluation import comparison, router_evaluation
from mildroute.evaluation.plots import FitPlots
from mildroute.exceptions import ArgumentError, MissingExtraError
from mildroute.fitting.fit import fit as fit_router
from mildroute.fitting.result import FittedRouter, Line
from mildroute.fitting.text_router import RoutedInput, TextRouter
from mildroute.persistence.artifact import load_router, save_router
from mildroute.routers.frontier.target import Target, TargetKind


@dataclass(frozen=True)
class Route:
    """Who should answer an input, and why.

    Attributes:
        expert: Name of the expert that should answer.
        score: Score to expect of it, or none where the router cannot tell.
        dollars: Dollars to expect of its answer, or none.
        why: One sentence.
        margin: How sure that is: what this expert is expected to be worth beyond the next best,
            in score after the price of both; near 0 either will do. None without expected scores.
        ranking: Names of all experts, from the first to be asked to the last.

    Example:
        >>> Route("small", 0.9, 0.001, "it is cheaper.", 0.8, ("small", "large")).expert
        'small'
    """

    expert: str
    score: float | None
    dollars: float | None
    why: str
    margin: float | None
    ranking: tuple[str, ...]


@dataclass(frozen=True, repr=False, kw_only=True)
class FitResult(FittedRouter):
    """A fitted router, what it saves, and what can be done with it.

    Attributes:
        table: The rows it was fitted on.
        notes: How the data were read, in sentences.
        read_options: What was said of columns, prices and units, which ``evaluate`` takes for other
            rows.

    Example:
        >>> texts = [(f"add {n} 1", 1) for n in range(120)]
        >>> texts += [(f"sing song {n}", 0) for n in range(120)]
        >>> rows = [{"Prompt": text, "small": right, "large": 1} for text, right in texts]
        >>> result = fit(rows, prices={"small": 0.001, "large": 0.01}, quality=1.0)
        >>> result.route("add 1 1").expert
        'small'
    """

    table: CostTable
    notes: tuple[str, ...] = ()
    read_options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def plot(self) -> FitPlots:
        """Pictures: ``plot.frontier()``, ``shares()``, ``calibration()`` and ``savings()``."""
        return FitPlots(self, self.table)

    def route(self, text: str, *, request_id: str | None = None) -> Route:
        """Which expert should answer a text; the gateway decides the same.

        Args:
            text: The input.
            request_id: Seeds the coin of an operating point that mixes two; by default the text.
        """
        if not isinstance(text, str):
            raise ArgumentError(
                f"route takes one text, got {type(text).__name__}; for many, call"
                " result.router.predict."
            )
        (said,) = self.router.explain([text], request_ids=[request_id or text])
        return Route(
            said.name,
            None if said.scores is None else said.scores[said.expert],
            None if said.dollars is None else said.dollars[said.expert],
            said.why,
            self._margin(said),
            tuple(said.experts[place] for place in said.ranking),
        )

    def _margin(self, said: RoutedInput) -> float | None:
        if said.scores is None:
            return None
        worth = list(said.scores)
        if self.point is not None and said.dollars is not None:
            weight = self.router.router_.curve.exchange_rate(self.point)
            worth = [each - weight * paid for each, paid in zip(worth, said.dollars, strict=True)]
        own = worth.pop(said.expert)
        return own - max(worth, default=own)

    def evaluate(self, data: Any, **given: Any) -> router_evaluation.RouterEvaluation:
        """Measure the router on other rows; arguments as for :func:`evaluate`.

        Columns and prices are those of the fit where nothing else is said.
        """
        known = dict(self.read_options)
        if isinstance(data, CostTable):
            known = {} if data.dollars is not None else {"prices": known.get("prices")}
        return evaluate(self.router, data, **{**known, **given})

    def save(self, folder: str | Path) -> Path:
        """Store the router in a folder, for ``load_router``, the command line and the gateway."""
        return save_router(self.router, folder, card=self.card(self.table))

    def __str__(self) -> str:
        """The savings in a sentence, how the point was chosen, and what to know."""
        shares = ""
        if self.point is not None:
            named = sorted(
                zip(self.point.shares, map(str, self.router.experts_), strict=True), reverse=True
            )
            shares = "who answers: " + ", ".join(
                f"{name} {share:.0%}" for share, name in named if share > 0
            )
        target = Target.of(self.router)
        note = f"operating point: {self.note}"
        if self.point is not None and (target is None or target.kind != "price weight"):
            note += f", with {self.point.confidence:.0%} confidence"
        three = [_line_words(line) for line in self.lines]
        further = [each.sentence for each in (self.new_groups, self.later) if each is not None]
        lines = [*three, self.headline, note, shares, *further]
        return "\n".join([line for line in lines if line] + [*self.warnings, *self.notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        first, *others = str(self).split("\n")
        picture = ""
        if self.point is not None:
            try:
                picture = self.plot.frontier_image()
            except MissingExtraError as missing:
                others.append(str(missing))
        notes = "".join(f"<li>{html.escape(line)}</li>" for line in others)
        return f"<p><strong>{html.escape(first)}</strong></p>{picture}<ul>{notes}</ul>"


def _line_words(line: Line) -> str:
    """Return one of the three lines as a sentence."""
    kept = "" if math.isnan(line.kept[0]) else f", keeps {line.kept[0]:.1%} of the best score"
    saved = f"saves {line.saved[0]:.0%}" if round(100 * line.saved[0]) else "saves nothing"
    bill = as_dollars(line.dollars_per_1000[0])
    return f"{line.role}: {line.words}: {bill} per 1,000 queries, {saved}{kept}"


def fit(
    data: Any,
    *,
    input: str | None = None,  # noqa: A002
    scores: Mapping[str, str] | Sequence[str] | None = None,
    prices: Any = None,
    quality: float | None = None,
    budget: float | None = None,
    target: Target | None = None,
    missing: str = "raise",
    **options: Any,
) -> FitResult:
    """Fit a router on a table of what experts scored and cost, and say what it saves.

    Args:
        data: A pandas or polars DataFrame, an Arrow table, a dict of columns, a list of dicts, a
            path, or a ``CostTable``.
        input: Column of the texts; by default it is guessed, and the notes tell which.
        scores: Columns of scores, 1 is right and 0 is wrong: a list, or the column of each expert.
        prices: Of each expert, dollars per call, the column that holds them, or (input, output)
            dollars per million tokens; or a ``PriceList``, or the path of one.
        quality: Share of the best single expert's score to keep at the lowest bill, such as 0.95.
        budget: Dollars per 1,000 queries to get the best score for.
        target: Either of them as a :class:`~mildroute.routers.frontier.target.Target`.
        missing: What a missing score means: ``"raise"``, ``"zero"``, ``"drop"``, or ``"keep"`` if
            that expert was not asked.
        options: Further arguments of the fit: ``encoder``, ``router``, ``thorough``, ``n_jobs``,
            ``seed``, ``judge``, ``progress``, ``cascade``, ``answer_characters``, ``baseline``
            (the expert whose bill is paid today) and ``order``; and of
            reading: ``experts``, ``score_scale``, ``latency_unit`` and ``output_tokens``, as for
            ``CostTable.from_any``.

    Returns:
        The router with its operating point; printed, it is the sentence on savings.

    Example:
        >>> texts = [text for n in range(120) for text in (f"add {n} 1", f"sing song {n}")]
        >>> rows = {"Prompt": texts, "small": [1, 0] * 120, "large": [1, 1] * 120}
        >>> result = fit(rows, prices={"small": 0.001, "large": 0.01}, quality=1.0)
        >>> round(result.point.dollars_per_1000, 2)
        5.5
    """
    wanted = _target(target, quality=quality, budget=budget)
    answers = bool(options.get("cascade"))
    how = {"input": input, "scores": scores, "prices": prices, **_read_options(options)}
    table, notes = CostTable.from_any(data, missing=missing, answers=answers, **how)
    fitted = fit_router(table, target=wanted, **options)
    known = {each.name: getattr(fitted, each.name) for each in fields(fitted)}
    return FitResult(**known, table=table, notes=notes, read_options=how)


def compare(
    data: Any,
    routers: Mapping[str, Any] | None = None,
    *,
    input: str | None = None,  # noqa: A002
    scores: Mapping[str, str] | Sequence[str] | None = None,
    prices: Any = None,
    quality: float | None = None,
    budget: float | None = None,
    target: Target | None = None,
    **options: Any,
) -> comparison.Comparison:
    """Fit each router on the same rows of a table and measure it on the same other rows.

    Args:
        data: As for :func:`fit`.
        routers: Estimators by name; by default MildRouter and what it is usually compared with.
        input: As for :func:`fit`.
        scores: As for :func:`fit`.
        prices: As for :func:`fit`.
        quality: As for :func:`fit`.
        budget: As for :func:`fit`.
        target: As for :func:`fit`.
        options: Further arguments of :func:`mildroute.evaluation.compare`: ``test`` (share of the
            rows), ``encoder``, ``seed``, ``by`` and others; and of reading, as for :func:`fit`.

    Example:
        >>> from mildroute.routers import KNNRouter
        >>> texts = [f"{kind} {number}" for number in range(40) for kind in ("add", "sing")]
        >>> rows = {"input": texts, "score:small": [1, 0] * 40, "score:large": [1, 1] * 40}
        >>> compare(rows, {"kNN": KNNRouter()}).test_rows
        16
    """
    if routers is not None and not isinstance(routers, Mapping):
        raise ArgumentError(
            f"routers must be estimators by name, got {type(routers).__name__}; one table is"
            " enough, which compare splits itself (test=0.2)."
        )
    how = _read_options(options, "missing")
    table, _ = CostTable.from_any(data, input=input, scores=scores, prices=prices, **how)
    wanted = _target(target, quality=quality, budget=budget)
    return comparison.compare(table, routers, target=wanted, **options)


def evaluate(
    router: TextRouter | FittedRouter | str | Path,
    data: Any,
    *,
    input: str | None = None,  # noqa: A002
    scores: Mapping[str, str] | Sequence[str] | None = None,
    prices: Any = None,
    quality: float | None = None,
    budget: float | None = None,
    target: Target | None = None,
    **options: Any,
) -> router_evaluation.RouterEvaluation:
    """Measure a router on rows that it has not learned from, deciding as the gateway does.

    Args:
        router: A fitted router, the result of :func:`fit`, or the folder of a stored one.
        data: As for :func:`fit`.
        input: As for :func:`fit`.
        scores: As for :func:`fit`.
        prices: As for :func:`fit`.
        quality: Decide by this instead of the stored operating point; nothing is fitted again.
        budget: Likewise.
        target: Likewise.
        options: Further arguments of :func:`mildroute.evaluation.evaluate`: ``price_weight`` and
            ``seed``; and of reading, as for :func:`fit`.

    Example:
        >>> rows = {"input": ["add 1 1", "sing a song"] * 40, "score:small": [1, 0] * 40,
        ...         "score:large": [1, 1] * 40}
        >>> evaluate(fit(rows), rows).evaluation.score.value
        1.0
    """
    fitted: Any = load_router(router) if isinstance(router, str | Path) else router
    if isinstance(fitted, FittedRouter):
        fitted = fitted.router
    answers = getattr(fitted, "answer_features_", None) is not None
    how = {"answers": answers, **_read_options(options, "missing")}
    table, _ = CostTable.from_any(data, input=input, scores=scores, prices=prices, **how)
    wanted = _target(target, quality=quality, budget=budget)
    return router_evaluation.evaluate(fitted, table, target=wanted, **options)


def describe(
    data: Any,
    *,
    input: str | None = None,  # noqa: A002
    scores: Mapping[str, str] | Sequence[str] | None = None,
    prices: Any = None,
    price_weight: float = 0.0,
    **options: Any,
) -> summary.TableSummary:
    """What a table holds, and what routing could gain on it at most.

    Args:
        data: As for :func:`fit`.
        input: As for :func:`fit`.
        scores: As for :func:`fit`.
        prices: As for :func:`fit`.
        price_weight: What a dollar is worth in errors.
        options: Further arguments of ``CostTable.from_any``.

    Example:
        >>> describe({"score:small": [1, 0], "score:large": [0, 1]}).oracle_score
        1.0
    """
    table, _ = CostTable.from_any(data, input=input, scores=scores, prices=prices, **options)
    return summary.describe(table, price_weight=price_weight)


def _read_options(options: dict[str, Any], *others: str) -> dict[str, Any]:
    """Take the arguments of reading out of further arguments."""
    names = ("experts", "score_scale", "latency_unit", "output_tokens", *others)
    return {name: options.pop(name) for name in names if name in options}


def _target(given: Any, **named: float | None) -> Any:
    """The one target among those that were given, or none."""
    kinds: dict[str, TargetKind] = {"quality": "quality", "budget": "budget"}
    wanted = {name: value for name, value in named.items() if value is not None}
    if len(wanted) + (given is not None) > 1:
        raise ArgumentError(
            f"one target at most, got {', '.join([*wanted, *(['target'] if given else [])])}; leave"
            " all but one out."
        )
    if isinstance(given, int | float) and not isinstance(given, bool):
        raise ArgumentError(
            f"target must be a Target or none, got {given!r}; a share of the score to keep is"
            f" quality={given!r}, and dollars per 1,000 queries are budget={given!r}."
        )
    for name, value in wanted.items():
        return Target(kinds[name], value)
    return given
