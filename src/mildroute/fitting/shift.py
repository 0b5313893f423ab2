"""The effect of new groups and later times on a router's promise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.stats import t

from mildroute.costs.links import link
from mildroute.costs.table import CostTable
from mildroute.fitting.result import FittedRouter, LaterRows, NewGroups
from mildroute.fitting.targets import CONFIDENCE, DEFAULT_QUALITY
from mildroute.fitting.text_router import TextRouter
from mildroute.routers._folds import cluster_codes
from mildroute.routers.frontier.folds import cut_vectors
from mildroute.routers.frontier.measurement import measure_curve
from mildroute.routers.frontier.operating_point import OperatingPoint
from mildroute.routers.frontier.target import Target
from mildroute.routers.training_rows import TrainingRows

# Minimum number of groups for a forecast about a new group.
_MIN_GROUPS = 3
# Share of the rows that count as the latest.
LATEST = 0.2


def expect_new_groups(
    fitted: TextRouter, table: CostTable, point: OperatingPoint, seed: int
) -> NewGroups | None:
    """Return the operating point's expected results on groups that its router has not seen.

    Return `None` without groups, if groups are clusters (every figure is then already about new
    groups), and for a cascade with looks.
    """
    kinds, inner = table.clusters.kinds, fitted.router_
    is_cascade = fitted.n_experts != len(fitted.experts_)
    if kinds is None or kinds.max() < _MIN_GROUPS - 1 or is_cascade:
        return None
    codes = link(kinds, table.clusters.codes)
    if codes.max() < _MIN_GROUPS - 1:
        return None
    vectors = fitted.encoder_.transform(table.inputs)
    rows = TrainingRows(
        vectors,
        1 - table.scores,
        groups=table.groups,
        prices=np.asarray(table.dollars),
        clusters=cluster_codes(table.clusters.codes, len(table)),
    )
    # The encoder has seen the held-out texts, though not their scores: refitting it for each part
    # would take half as long as the whole fit.
    shares = inner.refitted_shares(point, rows, cut_vectors(vectors, seed, codes))
    sizes = np.bincount(kinds).astype(np.float64)
    best_score = table.scores[:, point.best].mean()
    if best_score <= 1e-9:
        return None
    score_change = (shares * table.scores).sum(axis=1) - table.scores[:, point.best]
    kept = 1 + np.bincount(kinds, score_change) / sizes / best_score
    mean = float(np.average(kept, weights=sizes))
    groups = len(sizes)
    variance = np.average((kept - mean) ** 2, weights=sizes) * groups / (groups - 1)
    # A prediction interval for one more group: variance between groups plus variance of the mean.
    half_width = float(t.ppf(0.95, groups - 1) * np.sqrt(variance * (1 + 1 / groups)))
    bill = (shares * np.asarray(table.dollars)).sum(axis=1).mean()
    baseline_bill = np.asarray(table.dollars)[:, point.baseline].mean()
    first_rows = np.unique(kinds, return_index=True)[1]
    worst = int(kept.argmin())
    return NewGroups(
        groups,
        (mean, mean - half_width, mean + half_width),
        float(1 - bill / baseline_bill) if baseline_bill > 0 else 0.0,
        (str(np.asarray(table.groups)[first_rows[worst]]), float(kept[worst])),
    )


def measure_on_later_rows(
    fitted: FittedRouter, late: CostTable, target: Target | None
) -> LaterRows:
    """Return the results on late rows, for a router fitted on earlier ones."""
    choice = fitted.router.predict(late.inputs, request_ids=late.query_ids)
    curve = measure_curve(
        [0.0],
        choice[None],
        1 - late.scores,
        np.asarray(late.dollars),
        clusters=cluster_codes(late.clusters.codes, len(late)),
    )
    baseline = 0 if fitted.point is None else fitted.point.baseline
    point = replace(curve, baseline=baseline).point(0, CONFIDENCE, len(late))
    return LaterRows(
        len(late),
        DEFAULT_QUALITY if target is None else target.value,
        (point.kept, *point.kept_interval),
        (point.saved, *point.saved_interval),
    )
