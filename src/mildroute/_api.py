"""The entry points ``fit``, ``compare``, ``evaluate`` and ``describe``, for data in any form.

Data are a pandas or polars DataFrame, an Arrow table, a dict of columns, a list of dicts, a path or
a ``CostTable``. Columns are named by the caller, or inferred and reported.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from mildroute._format import format_dollars
from mildroute.costs import summary
from mildroute.costs.table import CostTable
from mildroute.evaluation import comparison, router_evaluation
from mildroute.evaluation.plots import FitPlots
from mildroute.exceptions import ArgumentError, MissingExtraError
from mildroute.fitting.fit import FitOptions, fit_table
from mildroute.fitting.result import FittedRouter, Line
from mildroute.fitting.routed_input import RoutedInput
from mildroute.fitting.text_router import TextRouter
from mildroute.persistence.artifact import load_router, save_router
from mildroute.routers.frontier.target import Target
from mildroute.routers.training_rows import Progress


@dataclass(frozen=True)
class DataDescription:
    """The columns, prices and units of data; see the arguments of :func:`fit`."""

    input: str | None = None
    scores: Mapping[str, str] | Sequence[str] | None = None
    prices: Any = None
    experts: Sequence[str] | None = None
    score_scale: tuple[float, float] | None = None
    latency_unit: str | None = None
    output_tokens: float | Mapping[str, float] | None = None

    def read(
        self, data: Any, *, missing: str = "raise", answers: bool = False
    ) -> tuple[CostTable, tuple[str, ...]]:
        """Return the table, and sentences about inferred columns."""
        return CostTable.from_any(
            data,
            input=self.input,
            scores=self.scores,
            prices=self.prices,
            experts=self.experts,
            missing=missing,
            answers=answers,
            score_scale=self.score_scale,
            latency_unit=self.latency_unit,
            output_tokens=self.output_tokens,
        )

    def or_else(self, other: DataDescription) -> DataDescription:
        """Return these options, with `None` replaced by another description's values."""
        explicit = {name: value for name, value in vars(self).items() if value is not None}
        return replace(other, **explicit)


@dataclass(frozen=True)
class Route:
    """The expert that should answer an input, and why.

    Attributes:
        expert: Name of the expert that should answer.
        score: The expert's expected score, or `None` if the router cannot estimate it.
        dollars: The expected cost of its answer in dollars, or `None`.
        why: The reason for the choice, in one sentence.
        margin: Confidence of the choice: the difference between the expert's expected score and the
            next best expert's, net of prices. Near 0, either is fine. `None` without expected
            scores.
        ranking: Names of all experts, in the order in which to call them.

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
    """A fitted router with its savings and the methods that use it.

    Attributes:
        table: The rows that the router was fitted on.
        notes: Sentences about how the data were read.
        description: Columns, prices and units as the caller specified them, which ``evaluate``
            reuses for other rows.

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
    description: DataDescription = DataDescription()

    @property
    def plot(self) -> FitPlots:
        """The plots ``frontier()``, ``shares()``, ``calibration()`` and ``savings()``."""
        return FitPlots(self, self.table)

    def route(self, text: str, *, request_id: str | None = None) -> Route:
        """Return the expert that should answer a text, as the gateway would decide.

        Args:
            text: The input.
            request_id: Seed for the random split of a mixed operating point; defaults to the text.
        """
        if not isinstance(text, str):
            raise ArgumentError(
                f"route takes one text, got {type(text).__name__}; for many, call"
                " result.router.predict."
            )
        (decision,) = self.router.explain([text], request_ids=[request_id or text])
        return Route(
            decision.name,
            None if decision.scores is None else decision.scores[decision.expert],
            None if decision.dollars is None else decision.dollars[decision.expert],
            decision.why,
            self._margin(decision),
            tuple(decision.experts[index] for index in decision.ranking),
        )

    def _margin(self, routed: RoutedInput) -> float | None:
        if routed.scores is None:
            return None
        net_scores = list(routed.scores)
        if self.point is not None and routed.dollars is not None:
            weight = self.router.router_.curve.exchange_rate(self.point)
            net_scores = [
                each - weight * paid for each, paid in zip(net_scores, routed.dollars, strict=True)
            ]
        own = net_scores.pop(routed.expert)
        return own - max(net_scores, default=own)

    def evaluate(
        self,
        data: Any,
        *,
        input: str | None = None,  # noqa: A002
        scores: Mapping[str, str] | Sequence[str] | None = None,
        prices: Any = None,
        quality: float | None = None,
        budget: float | None = None,
        target: Target | None = None,
        price_weight: float | None = None,
        seed: int = 0,
        missing: str = "raise",
        experts: Sequence[str] | None = None,
        score_scale: tuple[float, float] | None = None,
        latency_unit: str | None = None,
        output_tokens: float | Mapping[str, float] | None = None,
    ) -> router_evaluation.RouterEvaluation:
        """Measure the router on other rows; arguments are as in :func:`evaluate`.

        Columns and prices default to the values given to the fit.
        """
        own = DataDescription(
            input, scores, prices, experts, score_scale, latency_unit, output_tokens
        )
        options = own.or_else(self.description)
        if isinstance(data, CostTable):
            inherited = None if data.dollars is not None else self.description.prices
            options = own.or_else(DataDescription(prices=inherited))
        return evaluate(
            self.router,
            data,
            **vars(options),
            quality=quality,
            budget=budget,
            target=target,
            price_weight=price_weight,
            seed=seed,
            missing=missing,
        )

    def save(self, folder: str | Path) -> Path:
        """Store the router in a folder, for ``load_router``, the command line and the gateway."""
        return save_router(self.router, folder, card=self.card(self.table))

    def __str__(self) -> str:
        """Describe the savings, the choice of the operating point, and any warnings."""
        shares = ""
        if self.point is not None:
            named = sorted(
                zip(self.point.shares, map(str, self.router.experts_), strict=True), reverse=True
            )
            shares = "who answers: " + ", ".join(
                f"{name} {share:.0%}" for share, name in named if share > 0
            )
        target = self.router.target
        note = f"operating point: {self.note}"
        if self.point is not None and (target is None or target.kind != "price weight"):
            note += f", with {self.point.confidence:.0%} confidence"
        line_sentences = [_line_words(line) for line in self.lines]
        forecasts = [each.sentence for each in (self.new_groups, self.later) if each is not None]
        lines = [*line_sentences, self.headline, note, shares, *forecasts]
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
    """Return a line of the comparison as a sentence."""
    kept_words = "" if math.isnan(line.kept[0]) else f", keeps {line.kept[0]:.1%} of the best score"
    saved = f"saves {line.saved[0]:.0%}" if round(100 * line.saved[0]) else "saves nothing"
    bill = format_dollars(line.dollars_per_1000[0])
    return f"{line.role}: {line.words}: {bill} per 1,000 queries, {saved}{kept_words}"


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
    experts: Sequence[str] | None = None,
    score_scale: tuple[float, float] | None = None,
    latency_unit: str | None = None,
    output_tokens: float | Mapping[str, float] | None = None,
    encoder: Any = None,
    router: Any = None,
    thorough: bool | Literal["auto"] = "auto",
    n_jobs: int | None = None,
    seed: int = 0,
    judge: str | None = None,
    progress: Progress | None = None,
    cascade: bool = False,
    answer_characters: int | None = None,
    baseline: str | None = None,
    order: Literal["time"] | None = None,
) -> FitResult:
    """Fit a router on a table of experts' scores and costs, and report its savings.

    Args:
        data: A pandas or polars DataFrame, an Arrow table, a dict of columns, a list of dicts, a
            path, or a ``CostTable``.
        input: Text column; inferred by default, as the notes report.
        scores: Score columns, where 1 is right and 0 is wrong: a list of columns, or a mapping from
            experts to columns.
        prices: For each expert, dollars per call, a column of dollars per call, or (input, output)
            dollars per million tokens; or a ``PriceList``, or the path to one.
        quality: Share of the best single expert's score to keep at the lowest bill, such as 0.95.
        budget: Maximum dollars per 1,000 queries, within which to get the best score.
        target: Quality or budget as a :class:`~mildroute.routers.frontier.target.Target`.
        missing: Meaning of a missing score: ``"raise"``, ``"zero"``, ``"drop"``, or ``"keep"`` if
            that expert was not asked.
        experts: Names of the experts to read; defaults to all.
        score_scale: Worst and best score, such as (0, 100), or (1, 0) if lower is better.
        latency_unit: Unit of latencies: ``"s"`` or ``"ms"``.
        output_tokens: Tokens per answer if the data have no counts, for prices per token.
        encoder: As in :class:`mildroute.fitting.fit.FitOptions`, like all arguments below.
        router: Router over vectors or its name.
        thorough: Fit the surrogate losses as well; ``"auto"`` does so if they win on a sample.
        n_jobs: Number of processes that fit folds; `None` means one.
        seed: Seed for folds, clustering and random splits.
        judge: Name of the judge that gave the scores, for reports.
        progress: Called with the steps done, the total and a short label of the current step.
        cascade: Let the router look at answers before it decides, if that pays off.
        answer_characters: Number of leading characters of an answer that a cascade reads.
        baseline: Expert whose bill you pay today; defaults to the most expensive one.
        order: ``"time"`` also measures whether the promise holds on the latest rows.

    Returns:
        The router with its operating point; printing it shows the savings.

    Example:
        >>> texts = [text for n in range(120) for text in (f"add {n} 1", f"sing song {n}")]
        >>> rows = {"Prompt": texts, "small": [1, 0] * 120, "large": [1, 1] * 120}
        >>> result = fit(rows, prices={"small": 0.001, "large": 0.01}, quality=1.0)
        >>> round(result.point.dollars_per_1000, 2)
        5.5
    """
    chosen_target = _target(target, quality=quality, budget=budget)
    description = DataDescription(
        input, scores, prices, experts, score_scale, latency_unit, output_tokens
    )
    table, notes = description.read(data, missing=missing, answers=cascade)
    options = FitOptions(
        encoder=encoder,
        router=router,
        target=chosen_target,
        thorough=thorough,
        n_jobs=n_jobs,
        seed=seed,
        judge=judge,
        cascade=cascade,
        answer_characters=answer_characters,
        baseline=baseline,
        order=order,
    )
    fitted = fit_table(table, options, progress=progress)
    return FitResult(**vars(fitted), table=table, notes=notes, description=description)


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
    missing: str = "raise",
    experts: Sequence[str] | None = None,
    score_scale: tuple[float, float] | None = None,
    latency_unit: str | None = None,
    output_tokens: float | Mapping[str, float] | None = None,
    encoder: Any = None,
    price_weight: float = 0.0,
    latency_weight: float = 0.0,
    test: float = 0.2,
    seed: int = 0,
    by: str = "random",
    progress: Progress | None = None,
) -> comparison.Comparison:
    """Fit each router on the same rows of a table and measure it on the same held-out rows.

    Args:
        data: As for :func:`fit`.
        routers: Estimators by name; defaults to MildRouter and its common alternatives.
        input: As for :func:`fit`.
        scores: As for :func:`fit`.
        prices: As for :func:`fit`.
        quality: As for :func:`fit`.
        budget: As for :func:`fit`.
        target: As for :func:`fit`.
        missing: As for :func:`fit`, like the other arguments for reading data.
        experts: As for :func:`fit`.
        score_scale: As for :func:`fit`.
        latency_unit: As for :func:`fit`.
        output_tokens: As for :func:`fit`.
        encoder: As for :func:`mildroute.evaluation.compare`, like all arguments below.
        price_weight: Price weight, in errors per dollar.
        latency_weight: Latency weight, in errors per second.
        test: Share of the rows to hold out.
        seed: Seed for the split and for random splits of requests.
        by: How to split the rows.
        progress: Called with the steps done, the total and a short label of the current step.

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
    description = DataDescription(
        input, scores, prices, experts, score_scale, latency_unit, output_tokens
    )
    table, _ = description.read(data, missing=missing)
    return comparison.compare(
        table,
        routers,
        encoder=encoder,
        target=_target(target, quality=quality, budget=budget),
        price_weight=price_weight,
        latency_weight=latency_weight,
        test=test,
        seed=seed,
        by=by,
        progress=progress,
    )


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
    price_weight: float | None = None,
    seed: int = 0,
    missing: str = "raise",
    experts: Sequence[str] | None = None,
    score_scale: tuple[float, float] | None = None,
    latency_unit: str | None = None,
    output_tokens: float | Mapping[str, float] | None = None,
) -> router_evaluation.RouterEvaluation:
    """Measure a router on rows that it was not trained on, deciding as the gateway does.

    Args:
        router: A fitted router, the result of :func:`fit`, or the folder of a stored router.
        data: As for :func:`fit`.
        input: As for :func:`fit`.
        scores: As for :func:`fit`.
        prices: As for :func:`fit`.
        quality: Quality to decide by instead of the stored operating point, without refitting.
        budget: Budget to decide by instead.
        target: Target to decide by instead.
        price_weight: Price weight to decide by instead.
        seed: Seed for random splits.
        missing: As for :func:`fit`, like the other arguments for reading data.
        experts: As for :func:`fit`.
        score_scale: As for :func:`fit`.
        latency_unit: As for :func:`fit`.
        output_tokens: As for :func:`fit`.

    Example:
        >>> rows = {"input": ["add 1 1", "sing a song"] * 40, "score:small": [1, 0] * 40,
        ...         "score:large": [1, 1] * 40}
        >>> evaluate(fit(rows), rows).evaluation.score.value
        1.0
    """
    fitted: Any = load_router(router) if isinstance(router, str | Path) else router
    if isinstance(fitted, FittedRouter):
        fitted = fitted.router
    description = DataDescription(
        input, scores, prices, experts, score_scale, latency_unit, output_tokens
    )
    answers = isinstance(fitted, TextRouter) and fitted.answer_features_ is not None
    table, _ = description.read(data, missing=missing, answers=answers)
    return router_evaluation.evaluate(
        fitted,
        table,
        target=_target(target, quality=quality, budget=budget),
        price_weight=price_weight,
        seed=seed,
    )


def describe(
    data: Any,
    *,
    input: str | None = None,  # noqa: A002
    scores: Mapping[str, str] | Sequence[str] | None = None,
    prices: Any = None,
    price_weight: float = 0.0,
    missing: str = "raise",
    experts: Sequence[str] | None = None,
    score_scale: tuple[float, float] | None = None,
    latency_unit: str | None = None,
    output_tokens: float | Mapping[str, float] | None = None,
) -> summary.TableSummary:
    """Summarize a table, and the maximum gain from routing.

    Args:
        data: As for :func:`fit`.
        input: As for :func:`fit`.
        scores: As for :func:`fit`.
        prices: As for :func:`fit`.
        price_weight: Price weight, in errors per dollar.
        missing: As for :func:`fit`, like the other arguments for reading data.
        experts: As for :func:`fit`.
        score_scale: As for :func:`fit`.
        latency_unit: As for :func:`fit`.
        output_tokens: As for :func:`fit`.

    Example:
        >>> describe({"score:small": [1, 0], "score:large": [0, 1]}).oracle_score
        1.0
    """
    description = DataDescription(
        input, scores, prices, experts, score_scale, latency_unit, output_tokens
    )
    table, _ = description.read(data, missing=missing)
    return summary.describe(table, price_weight=price_weight)


def _target(target: Any, *, quality: float | None, budget: float | None) -> Target | None:
    """Return the only given target, or `None`."""
    targets = {"quality": quality, "budget": budget, "target": target}
    names = [name for name, value in targets.items() if value is not None]
    if len(names) > 1:
        raise ArgumentError(
            f"give at most one target, got {', '.join(names)}; leave all but one out."
        )
    if isinstance(target, int | float) and not isinstance(target, bool):
        raise ArgumentError(
            f"target must be a Target or None, got {target!r}; a share of the score to keep is"
            f" quality={target!r}, and dollars per 1,000 queries are budget={target!r}."
        )
    if quality is not None:
        return Target("quality", quality)
    chosen: Target | None = target if budget is None else Target("budget", budget)
    return chosen
