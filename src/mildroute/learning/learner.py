"""The learner, which takes one step per look: it fits, promotes, watches and replaces routers.

Before the pointer is changed, an entry of the trail records its old and its new content. A learner
that was killed resumes from there: it changes the pointer if it still has the old content, and
records the change if it has the new one. Nothing is thus lost, and nothing is done twice.
"""

from __future__ import annotations

import functools
import json
import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from mildroute.costs.table import CostTable
from mildroute.decision.export import costs_from_log
from mildroute.evaluation.expert_changes import Change, find_change
from mildroute.evaluation.rollout import (
    LearningPlan,
    RolloutDecision,
    judge_candidate,
    judge_promoted,
)
from mildroute.evaluation.sequential import (
    SequentialComparison,
    compare_sequentially,
    share_of_alpha,
)
from mildroute.exceptions import ArgumentError, MildrouteError, TableError
from mildroute.fitting.fit import fit
from mildroute.fitting.result import FittedRouter
from mildroute.fitting.targets import point_of
from mildroute.fitting.text_router import TextRouter
from mildroute.learning.traffic import RouterPair, Row, read_traffic, residual_series
from mildroute.learning.trail import State, Store, Trail
from mildroute.persistence.artifact import MANIFEST, load_router, save_router
from mildroute.persistence.remote import (
    Pointer,
    fetch_artifact,
    pointer_or_none,
    replace_pointer,
    upload_router,
)
from mildroute.routers.baselines import BestSingleRouter
from mildroute.routers.frontier.router import FrontierRouter
from mildroute.routers.frontier.target import Target

__all__ = ["Learner"]


_CANDIDATES = "candidates"
_MONTH = 30 * 86400.0
_MAX_HISTORY = 10
# Number of decisions searched for a change of an expert: some weeks.
_LATEST = 20_000
_SCORE = "score:"
# Kinds of residuals that change together.
_SCORES = ("score", "sampled score")


@dataclass(frozen=True)
class Learner:
    """A learner that reads a log and takes at most one step per look.

    Args:
        state: Folder or URL of the learner's state.
        log: Folder of the decision log, or the URL that it is shipped to.
        pointer: URL or path of the pointer that the gateways follow.
        tables: Cost tables to fit on, in addition to the log.
        experts: Names of the experts that the gateways have, or `None` for all.
        default: Expert that serves while there is no router; defaults to the one that served most.
        encoder: As for :func:`mildroute.fit`.
        target: As for :func:`mildroute.fit`.
        key: PEM file of the key that signs publications, or `None`.
        plan: Evidence required for each step.
        clock: Returns seconds since 1970.

    Example:
        >>> Learner("state", "decisions", "prod.json").plan.alpha
        0.05
    """

    state: str
    log: str
    pointer: str
    tables: tuple[str, ...] = ()
    experts: tuple[str, ...] | None = None
    default: str | None = None
    encoder: Any = None
    target: Target | None = None
    key: Path | None = None
    plan: LearningPlan = field(default_factory=LearningPlan)
    clock: Callable[[], float] = time.time

    def look(self) -> dict[str, Any]:
        """Take the next step, if there is one, and return its entry in the trail."""
        store = Store(self.state)
        with store.locked():
            return _Look(self, store).step()


class _Look:
    """One look of a learner, while it holds the lock of its state."""

    def __init__(self, learner: Learner, store: Store) -> None:
        self._learner = learner
        self._plan = learner.plan
        self._url = learner.pointer
        self._store = store
        self._trail = Trail(store)
        self._state = self._trail.state

    def step(self) -> dict[str, Any]:
        if self._trail.last.get("event") == "intent":
            return self._complete(self._trail.last)
        pointer = pointer_or_none(self._url)
        if not self._is_expected(pointer):
            return self._abandon("the pointer was changed by others: it is left as it is")
        rows = read_traffic(self._learner.log)
        if pointer is None:
            return self._start(rows)
        if (change := self._find_change(rows, pointer)) is not None:
            return self._forget(pointer, *change)
        if self._state.phase == "collecting":
            return self._collect(rows, pointer)
        if self._state.phase == "watching":
            return self._watch(rows, pointer)
        return self._judge(rows, pointer)

    def _add(self, event: str, state: State, **details: Any) -> dict[str, Any]:
        self._state = state
        return self._trail.add(event, state, self._learner.clock(), **details)

    def _is_expected(self, pointer: Pointer | None) -> bool:
        """Return whether the pointer is as the learner left it."""
        state = self._state
        if state.phase == "collecting":
            return True
        if pointer is None:
            return False
        named = (pointer.digest, pointer.canary)
        if state.phase == "watching":
            return named == (state.candidate, state.previous)
        return named == (state.previous, state.candidate if state.share else None)

    def _abandon(self, why: str) -> dict[str, Any]:
        now = self._learner.clock()
        then = replace(self._state, phase="collecting", stages=(), epoch=now)
        return self._add("abandoned", then, candidate=self._state.candidate, why=why)

    def _act(self, event: str, after: Pointer, then: State, **details: Any) -> dict[str, Any]:
        """Record a step, then take it."""
        before = pointer_or_none(self._url)
        plan: dict[str, Any] = {"before": None if before is None else before.document()}
        plan |= {"after": after.document(), "then": asdict(then), "details": details}
        return self._complete(self._add("intent", self._state, action=event, **plan))

    def _complete(self, intent: Mapping[str, Any]) -> dict[str, Any]:
        """Take a recorded step unless it is done; leave a pointer alone that others changed."""
        pointer = pointer_or_none(self._url)
        document = None if pointer is None else pointer.document()
        if document not in (intent["before"], intent["after"]):
            return self._abandon(f"{intent['action']}: the pointer was changed by others meanwhile")
        if document != intent["after"]:
            after = _pointer(intent["after"])
            for digest in filter(None, (after.digest, after.canary)):
                with self._store.folder(_home(digest)) as folder:
                    if (folder / MANIFEST).is_file():
                        upload_router(folder, self._url, key=self._learner.key)
            replace_pointer(self._url, pointer, after)
        now, then = self._learner.clock(), State.of(intent["then"])
        # The share counts from now on: a learner that was killed does not know since when it has
        # applied.
        if then.stages:
            then = replace(then, stages=(*then.stages[:-1], (then.share, now)))
        if intent["before"] is None or intent["before"]["digest"] != intent["after"]["digest"]:
            then = replace(then, epoch=now + self._plan.settle_seconds)
        return self._add(intent["action"], then, pointer=intent["after"], **intent["details"])

    # From a log to a candidate.

    def _start(self, rows: Sequence[Row]) -> dict[str, Any]:
        """Publish a pointer to a router that does what gateways do without one.

        The first candidate is then a canary alongside that router, like all later candidates.
        """
        try:
            table = self._training_table()
            self._check_enough(table)
        except MildrouteError as error:
            return self._add("waited", self._state, decisions=len(rows), why=str(error))
        served = [row["served_by"] for row in rows if row["served_by"] in table.experts]
        name = self._learner.default or max(sorted(set(served)), key=served.count, default="")
        if name not in table.experts:
            raise ArgumentError(
                f"the default must be one of {', '.join(table.experts)}, got {name!r}; give it by"
                " --default."
            )
        costs = np.ones((len(table), len(table.experts)))
        costs[:, table.experts.index(name)] = 0.0
        router = TextRouter(router=BestSingleRouter()).fit(
            table.inputs, costs, experts=table.experts
        )
        why = f"the first router sends all requests to {name}, as before"
        after = Pointer(self._save(router))
        return self._act("started", after, self._state, default=name, why=why)

    def _collect(self, rows: Sequence[Row], pointer: Pointer) -> dict[str, Any]:
        """Fit a candidate if there is enough data, else report what is missing."""
        state = self._state
        scored = sum(row["score"] is not None or row["sample"] is not None for row in rows)
        counts = {"decisions": len(rows), "scored": scored}
        fresh = scored - state.rows
        if state.fitted and fresh < self._plan.refit_rows:
            why = f"{fresh:,} of {self._plan.refit_rows:,} scored decisions since the last fit"
            return self._add("waited", state, **counts, why=why)
        try:
            table = self._training_table()
            self._check_enough(table)
            fitted = fit(table, encoder=self._learner.encoder, target=self._learner.target)
        except MildrouteError as error:
            return self._add("waited", state, **counts, why=str(error))
        state = replace(state, rows=scored, fitted=self._learner.clock())
        digest = self._save(fitted.router)
        if digest == pointer.digest:
            return self._add("waited", state, **counts, why="the router in use was fitted again")
        self._write_report(fitted.router, table, digest)
        state = self._with_candidate(state, fitted, table, digest, pointer)
        counts |= {"table_rows": len(table), "month_candidate": state.tested}
        why = f"candidate {state.tested} of the month, fitted on {len(table):,} rows"
        warnings = list(fitted.warnings)
        return self._add("fitted", state, candidate=digest, **counts, warnings=warnings, why=why)

    def _check_enough(self, table: CostTable) -> None:
        plan = self._plan
        if len(table) < plan.fewest_rows:
            raise TableError(
                f"a fit needs {plan.fewest_rows:,} scored rows, got {len(table):,}; wait, sample"
                " more requests, or give a table."
            )
        counts = np.isfinite(table.scores).sum(axis=0)
        for name, count in zip(table.experts, counts, strict=True):
            if count < plan.fewest_of_expert:
                raise TableError(
                    f"a fit needs {plan.fewest_of_expert:,} scores of each expert, got {count:,} of"
                    f" {name!r}; let the gateway explore or sample."
                )

    def _training_table(self) -> CostTable:
        """Return tables and log together, without the rows of experts before they changed."""
        learner = self._learner
        parts = [CostTable.read(table, missing="keep").arrow for table in learner.tables]
        why = ""
        try:
            parts.append(costs_from_log(learner.log, only_with_text=True).arrow)
        except TableError as error:
            why = str(error)
        if not parts:
            raise TableError(
                f"nothing to learn from yet: no table, and {why} Texts need log_prompts, and"
                " scores feedback or sampling."
            )
        return functools.reduce(CostTable.concat, map(self._up_to_date, parts))

    def _up_to_date(self, arrow: Any) -> CostTable:
        state, names = self._state, self._learner.experts
        for expert in state.changed:
            arrow = _without_old(arrow, expert, state.since(expert, _SCORES[0]))
        for expert, since, ratio in state.repriced:
            arrow = _repriced(arrow, expert, since, ratio)
        experts = [name for name in names or () if _SCORE + name in arrow.column_names]
        return CostTable.from_data(arrow, experts=experts or None, missing="keep")

    def _with_candidate(
        self, state: State, fitted: FittedRouter, table: CostTable, digest: str, pointer: Pointer
    ) -> State:
        """Return the state for judging a candidate, with everything that is fixed beforehand."""
        if state.fitted - state.month > _MONTH:
            state = replace(state, month=state.fitted, tested=0)
        weight = _exchange_rate(self._router(pointer.digest)) or _exchange_rate(fitted.router)
        dollars = 0.0 if table.dollars is None else float(np.nanquantile(table.dollars, 0.999))
        tested = state.tested + 1
        return replace(
            state,
            phase="candidate",
            candidate=digest,
            previous=pointer.digest,
            stages=(),
            weight=weight,
            bound=1 + weight * dollars,
            tested=tested,
            alpha=share_of_alpha(self._plan.alpha, tested),
        )

    def _save(self, router: TextRouter) -> str:
        with tempfile.TemporaryDirectory() as scratch:
            folder = save_router(router, Path(scratch, "router"))
            digest = str(json.loads((folder / MANIFEST).read_bytes())["sha256"])
            for path in sorted(folder.iterdir()):
                self._store.write(f"{_home(digest)}/{path.name}", path.read_bytes())
        return digest

    def _write_report(self, router: TextRouter, table: CostTable, digest: str) -> None:
        """Write the report on fully scored rows, which the candidate was trained on."""
        from mildroute.evaluation.report import report_html
        from mildroute.evaluation.router_evaluation import evaluate

        whole = np.flatnonzero(np.isfinite(table.scores).all(axis=1))
        try:
            page = report_html(
                evaluate(router, table.take(whole)),
                title=f"Candidate {digest[:16]}",
                provenance={"rows": "those that it was fitted on; live figures are in the trail"},
            )
        except MildrouteError as error:
            page = f"<!doctype html><title>No report</title><p>{error}</p>"
        self._store.write(f"{_home(digest)}/report.html", page.encode())

    def _router(self, digest: str) -> TextRouter:
        if MANIFEST in self._store.names(_home(digest)):
            with self._store.folder(_home(digest)) as folder:
                router: Any = load_router(folder, digest=digest)
        else:
            router = load_router(fetch_artifact(self._url, digest), digest=digest)
        if not isinstance(router, TextRouter):
            raise ArgumentError(
                f"a learner compares routers over texts, got a {type(router).__name__}; publish one"
                " of mildroute fit."
            )
        return router

    # From a candidate to a router that serves.

    def _pair(self, rows: Sequence[Row], current: str, other: str) -> RouterPair:
        routers = self._router(current), self._router(other)
        settle = self._plan.settle_seconds
        return RouterPair(rows, *routers, (current, other), self._state, settle)

    def _judge(self, rows: Sequence[Row], pointer: Pointer) -> dict[str, Any]:
        """Continue with a candidate."""
        state, plan = self._state, self._plan
        later = [row for row in rows if row["time"] > state.fitted]
        since = state.stages[-1][1] if state.stages else state.fitted
        in_stage = sum(row["time"] >= since for row in later)
        pair = self._pair(later, state.previous, state.candidate)
        comparison = compare_sequentially(*pair.gains(), alpha=state.alpha)
        verdict = judge_candidate(plan, state.share, in_stage, len(later), comparison, state.alpha)
        details = {
            "candidate": state.candidate,
            **_figures(comparison, state, in_stage, len(later)),
        }
        if verdict.action == "advance" and not state.share:
            verdict = _after_shadow(pair, verdict, details)
        details["why"] = verdict.why
        if verdict.action == "wait":
            return self._add("waited", state, **details)
        if verdict.action == "advance":
            share = plan.canary_share if state.share else plan.first_share
            after = Pointer(pointer.digest, state.candidate, share, pointer.history)
            then = replace(state, stages=(*state.stages, (share, 0.0)))
            return self._act("canary", after, then, **{**details, "share": share})
        self._write_verdict(verdict, details)
        if verdict.action == "drop":
            return self._end("dropped", pointer, details)
        history = (pointer.digest, *(name for name in pointer.history if name != state.candidate))
        share = plan.holdout_share
        after = Pointer(state.candidate, pointer.digest, share, history[:_MAX_HISTORY])
        then = replace(state, phase="watching", stages=((share, 0.0),))
        return self._act("promoted", after, then, **details)

    def _watch(self, rows: Sequence[Row], pointer: Pointer) -> dict[str, Any]:
        """Check whether a promoted router is worse than the previous one, which keeps a share."""
        state = self._state
        later = [row for row in rows if row["time"] >= state.stages[-1][1]]
        gains, bounds = self._pair(later, state.candidate, state.previous).gains()
        verdict = judge_promoted(self._plan, len(later), gains, bounds)
        details = {"candidate": state.candidate, "requests": len(later), "counted": len(gains)}
        details |= {"why": verdict.why}
        if verdict.action == "wait":
            return self._add("waited", state, **details)
        self._write_verdict(verdict, details)
        if verdict.action == "accept":
            return self._end("accepted", pointer, details)
        then = replace(state, phase="collecting", stages=())
        return self._act("rolled back", _rolled_back(pointer, state.previous), then, **details)

    def _end(self, event: str, pointer: Pointer, told: Mapping[str, Any]) -> dict[str, Any]:
        """Remove the canary, if there is one, and go back to collecting."""
        then = replace(self._state, phase="collecting", stages=())
        if pointer.canary is None:
            return self._add(event, then, **told)
        return self._act(event, replace(pointer, canary=None, share=0.0), then, **told)

    def _write_verdict(self, verdict: RolloutDecision, figures: Mapping[str, Any]) -> None:
        content = json.dumps({"verdict": verdict.action, **figures}, indent=1).encode()
        self._store.write(f"{_home(self._state.candidate)}/verdict.json", content)

    # Experts that change.

    def _find_change(
        self, rows: Sequence[Row], pointer: Pointer
    ) -> tuple[str, str, float, Change] | None:
        """Return expert, kind, time and size of a change under the current router, or `None`."""
        router = self._router(pointer.digest)
        series = residual_series(rows[-_LATEST:], router, pointer.digest, self._state)
        for (expert, kind), values in series.items():
            change = find_change([residual for _, residual in values])
            if change is not None:
                return expert, kind, values[change.row][0], change
        return None

    def _forget(
        self, pointer: Pointer, expert: str, kind: str, since: float, change: Change
    ) -> dict[str, Any]:
        """Forget an expert's rows from before its change, and drop a candidate trained on them.

        A promoted router stays watched. The next fit needs no more rows than the expert's own.
        """
        state = self._state
        kinds = ("dollars",) if kind == "dollars" else _SCORES
        changes = {**state.changed.get(expert, {}), **dict.fromkeys(kinds, since)}
        state = replace(state, changed={**state.changed, expert: changes}, fitted=0.0)
        if kind == "dollars":
            ratio = math.exp(change.size)
            state = replace(state, repriced=(*state.repriced, (expert, since, ratio)))
        details: dict[str, Any] = {"expert": expert, "kind": kind, "since": since}
        details |= {"size": change.size, "deviations": change.deviations}
        effect = "older dollars are scaled" if kind == "dollars" else "older scores are forgotten"
        details["why"] = (
            f"the {kind} of {expert} changed by {change.size:+.3f}"
            f" ({change.deviations:.1f} standard errors): {effect}"
        )
        self._state = state
        if state.phase == "candidate":
            return self._end("changed", pointer, details)
        return self._add("changed", state, **details)


def _home(digest: str) -> str:
    return f"{_CANDIDATES}/{digest[:16]}"


def _after_shadow(
    pair: RouterPair, verdict: RolloutDecision, told: dict[str, Any]
) -> RolloutDecision:
    """Decide by exploration whether a candidate may serve requests."""
    if pair.rows and not pair.differing:
        return RolloutDecision("drop", "it decides like the router in use")
    estimate = pair.off_policy()
    if estimate is None:
        return verdict
    told["off_policy_gain"] = [-estimate.value, -estimate.high, -estimate.low]
    if estimate.low > 0:
        return RolloutDecision("drop", f"exploration says that it costs {estimate} more")
    return verdict


def _without_old(arrow: Any, expert: str, since: float) -> Any:
    """Return the table without an expert's old rows, as if it could not be asked then."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_old = _is_old(arrow, since)
    for prefix in (_SCORE, "cost:", "latency:", "propensity:"):
        if (name := prefix + expert) in arrow.column_names:
            column = arrow.column(name)
            gone = pa.scalar(0.0 if prefix == "propensity:" else None, column.type)
            masked = pc.if_else(is_old, gone, column)
            arrow = arrow.set_column(arrow.column_names.index(name), name, masked)
    scores = [arrow.column(name) for name in arrow.column_names if name.startswith(_SCORE)]
    has_any = functools.reduce(pc.or_, [pc.is_valid(column) for column in scores])
    return arrow.filter(has_any)


def _repriced(arrow: Any, expert: str, since: float, ratio: float) -> Any:
    """Return the table with an expert's old dollars converted to current prices."""
    import pyarrow.compute as pc

    name = f"cost:{expert}"
    if name not in arrow.column_names:
        return arrow
    column = arrow.column(name)
    scaled = pc.if_else(_is_old(arrow, since), pc.multiply(column, ratio), column)
    return arrow.set_column(arrow.column_names.index(name), name, scaled)


def _is_old(arrow: Any, since: float) -> Any:
    """Return which rows are old; rows without a time are from a table collected earlier."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if "time" not in arrow.column_names:
        return pa.array([True] * arrow.num_rows)
    return pc.fill_null(pc.less(arrow.column("time"), since), fill_value=True)


def _pointer(document: Mapping[str, Any]) -> Pointer:
    canary = document.get("canary") or {"digest": None, "share": 0.0}
    history = tuple(document.get("history", ()))
    return Pointer(document["digest"], canary["digest"], canary["share"], history)


def _rolled_back(pointer: Pointer, previous: str) -> Pointer:
    """Return the pointer without the bad router, as ``mildroute rollout rollback`` leaves it."""
    return Pointer(previous, history=tuple(name for name in pointer.history if name != previous))


def _exchange_rate(router: TextRouter) -> float:
    """Return the errors that a dollar is worth at a router's operating point; 0 without prices."""
    point = point_of(router, None)
    if point is None or not isinstance(router.router_, FrontierRouter):
        return 0.0
    return float(router.router_.curve.exchange_rate(point))


def _figures(
    found: SequentialComparison, state: State, in_stage: int, requests: int
) -> dict[str, Any]:
    return {
        "share": state.share,
        "requests": requests,
        "in_stage": in_stage,
        "counted": found.rows,
        "differing": found.differing,
        "gain": found.gain.value,
        "gain_low": found.gain.low,
        "gain_high": found.gain.high,
        "evidence": found.evidence,
        "needed": -math.log(state.alpha),
    }
