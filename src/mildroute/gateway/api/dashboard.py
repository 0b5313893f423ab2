"""The page in the browser: a playground and live figures, from ``/``, ``/ui`` and ``/status``."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import posixpath
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

from mildroute import __version__
from mildroute._files import open_location
from mildroute.decision.decision import REASONS
from mildroute.decision.predictor import Predictor
from mildroute.decision.reload import PredictorManager
from mildroute.exceptions import MildrouteError
from mildroute.gateway.authentication import AdminAuth
from mildroute.gateway.config import GatewayConfig
from mildroute.gateway.http.errors import APIError
from mildroute.gateway.http.request import (
    Handler,
    Header,
    InFlightLimiter,
    Request,
    check_site,
    is_local,
    shutting_down,
)
from mildroute.gateway.keys import KeyStore
from mildroute.gateway.observability.metrics import LEVELS, STATES, GatewayMetrics, Snapshot
from mildroute.gateway.upstream.pool import ExpertPool

__all__ = ["Dashboard"]


_FOLDER = Path(__file__).parents[1] / "ui"
_TYPES = {".html": b"text/html", ".css": b"text/css", ".js": b"text/javascript"}
_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'"
    b" data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
# Reports have styles and scripts of their own; in a sandbox they are of no origin.
_REPORT_POLICY = (
    b"sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src"
    b" 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
)
_SAFE_HEADERS: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
# Seconds for which figures are shown again, and what lies in files or in object storage.
_FRESH = 1.0
_FILES_FRESH = 10.0
_REPORT = "report.html"
_LARGEST_REPORT = 32 << 20


class Dashboard:
    """Serves the page, and the figures that it shows.

    Figures are computed from the counters in memory, at most once a second however many pages are
    open. With several workers, any of them answers for all.

    Args:
        auth: Checks the admin key, or none: then the page is for this machine alone, and only
            if there are no client keys.
        clock: Seconds that only grow.
        now: Seconds since 1970.
    """

    def __init__(
        self,
        auth: AdminAuth | None,
        key_store: KeyStore,
        manager: PredictorManager,
        pool: ExpertPool,
        limiter: InFlightLimiter,
        metrics: GatewayMetrics,
        config: GatewayConfig,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._auth = auth
        self._key_store = key_store
        self._manager = manager
        self._pool = pool
        self._limiter = limiter
        self._metrics = metrics
        self._config = config
        self._clock = clock
        self._now = now
        self._started = now()
        self._files = {path.name: _read_asset(path) for path in sorted(_FOLDER.iterdir())}
        self._lock = asyncio.Lock()
        self._status = b""
        self._status_at = -math.inf
        self._stored = _Stored()
        self._stored_at = -math.inf

    def handlers(self) -> dict[str, dict[str, Handler]]:
        """Of each path, by method."""
        return {
            "/": {"GET": self.page},
            "/ui/{name}": {"GET": self.asset},
            "/status": {"GET": self.status},
            "/status/report": {"GET": self.report},
        }

    def check(self, request: Request) -> None:
        """An APIError if the request may not see figures."""
        if self._auth is not None:
            self._auth.check(request)
        else:
            self._check_place(request)
            check_site(request)

    def _check_place(self, request: Request) -> None:
        """An APIError if the request cannot come from the operator, who has no key."""
        if not self._key_store.is_open:
            raise APIError(
                403,
                "the page needs the admin key, and this gateway has client keys alone; name"
                " the variable of one under admin_key_env.",
                code="no_admin_key",
            )
        if not is_local(request):
            raise APIError(
                403,
                "without keys the page is for this machine alone, under a loopback name such as"
                " 127.0.0.1 or localhost; name the variable of an admin key under"
                " admin_key_env.",
                code="not_local",
            )

    def guard(self, handler: Handler) -> Handler:
        """A handler of the admin port: without client keys, it needs what the page needs."""

        async def guarded(request: Request) -> None:
            if self._key_store.is_open:
                self.check(request)
            if self._limiter.is_draining:
                raise shutting_down()
            await handler(request)

        return guarded

    async def page(self, request: Request) -> None:
        """The page; it holds no figures, so that a browser can load it without a key."""
        await self._send_asset(request, "index.html")

    async def asset(self, request: Request) -> None:
        """Its script or its style sheet."""
        await self._send_asset(request, request.scope["path_params"]["name"])

    async def _send_asset(self, request: Request, name: str) -> None:
        if self._auth is None:
            self._check_place(request)
        if name not in self._files:
            raise APIError(404, "the page has no such file; see /openapi.json.")
        content, headers = self._files[name]
        etag = dict(headers)[b"etag"]
        if request.header(b"if-none-match") == etag:
            await request.send_response(304, headers, b"")
        else:
            await request.send_response(200, headers, content)

    async def status(self, request: Request) -> None:
        """All figures, as JSON."""
        self.check(request)
        async with self._lock:
            if self._clock() >= self._status_at + _FRESH:
                self._status = json.dumps(await self._build_status()).encode()
                self._status_at = self._clock()
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
        await request.send_response(200, [*headers, *_SAFE_HEADERS], self._status)

    async def report(self, request: Request) -> None:
        """The report on the router that serves, to be saved."""
        self.check(request)
        predictor = self._manager.predictor
        page = None
        if predictor is not None:
            learning = self._config.page.learning
            page = await asyncio.to_thread(_read_report, predictor, learning)
        if page is None or predictor is None:
            raise APIError(
                404,
                "there is no report on this router: neither report.html in its folder nor one of"
                " mildroute learn under page.learning.",
            )
        name = f'attachment; filename="report-{predictor.digest}.html"'.encode()
        headers = [
            (b"content-type", b"text/html; charset=utf-8"),
            (b"content-disposition", name),
            (b"content-security-policy", _REPORT_POLICY),
            (b"cache-control", b"no-store"),
            *_SAFE_HEADERS,
        ]
        await request.send_response(200, headers, page)

    async def _build_status(self) -> dict[str, Any]:
        predictor = self._manager.predictor
        if self._clock() >= self._stored_at + _FILES_FRESH or (
            self._stored.digest != (predictor and predictor.digest)
        ):
            learning = self._config.page.learning
            self._stored = await asyncio.to_thread(_read_stored, predictor, learning)
            self._stored_at = self._clock()
        figures = _Figures(await self._metrics.snapshot_of_all())
        return {
            "object": "mildroute.status",
            "time": self._now(),
            "version": __version__,
            "needs_client_key": not self._key_store.is_open,
            "covers": self._covers(figures),
            "requests": _requests(figures),
            "savings": _savings(figures),
            "experts": _experts(figures, self._pool),
            "reasons": figures.by_label("mildroute_choices_total", "reason"),
            "keys": _keys(figures),
            "router": self._router(figures),
            "learning": self._learning(figures),
        }

    def _covers(self, figures: _Figures) -> dict[str, Any]:
        """What the figures are counted over, in numbers and in words."""
        workers = int(figures.one("mildroute_workers") or 1)
        since = figures.one("process_start_time_seconds") or self._started
        begun = datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%d %H:%M")
        by = "this process"
        if self._metrics.gather is not None:
            by = f"all workers of this gateway, {workers} now,"
        others = "Other gateways count for themselves"
        if self._config.store.url is not None:
            others += "; what is left of daily dollars is that of all that share the store"
        text = f"Counted by {by} since {begun} UTC. {others}."
        return {"workers": workers, "since": since, "text": text}

    def _router(self, figures: _Figures) -> dict[str, Any] | None:
        predictor = self._manager.predictor
        if predictor is None:
            return None
        loaded_at = figures.one("mildroute_router_loaded_timestamp_seconds")
        levels = {value: name for name, value in LEVELS.items()}
        drift = figures.by_label("mildroute_drift_level", "of")
        return {
            "digest": predictor.digest,
            "loaded_at": loaded_at,
            "method": predictor.method,
            "experts": list(predictor.experts[: predictor.n_experts]),
            "target": _target(predictor),
            "has_report": self._stored.has_report,
            "drift": {name: levels.get(value, "unknown") for name, value in drift.items()},
        }

    def _learning(self, figures: _Figures) -> dict[str, Any]:
        config = self._config
        sampling = None
        if config.sampling.rate:
            sampling = {
                "rate": config.sampling.rate,
                "dollars_left": figures.one("mildroute_sampling_left_dollars"),
                "dollars": figures.total("mildroute_sampling_dollars_total"),
                "waiting": figures.one("mildroute_sampling_queue"),
                "results": figures.by_label("mildroute_samples_total", "sample"),
                "is_enough": bool(figures.one("mildroute_sampling_enough_to_fit")),
            }
        exploration = None
        if config.routing.exploration.rate:
            exploration = {
                "rate": config.routing.exploration.rate,
                "dollars": figures.total("mildroute_exploration_dollars_total"),
                "dollars_left": figures.one("mildroute_exploration_left_dollars"),
            }
        return {
            "sampling": sampling,
            "exploration": exploration,
            "shadow": figures.by_label("mildroute_shadow_decisions_total", "agrees") or None,
            "learner": self._stored.learner,
        }


def _read_asset(path: Path) -> tuple[bytes, list[Header]]:
    """A file of the page, and its headers."""
    content = path.read_bytes()
    if path.suffix == ".html":
        content = content.replace(b"{{ version }}", escape(__version__).encode())
        reasons = "\n".join(
            f'<div><dt>{escape(name)}</dt><dd id="reason-{escape(name)}">{escape(words)}</dd></div>'
            for name, words in REASONS.items()
        )
        content = content.replace(b"{{ reasons }}", reasons.encode())
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'.encode()
    headers = [
        (b"content-type", _TYPES[path.suffix] + b"; charset=utf-8"),
        (b"content-security-policy", _POLICY),
        (b"cache-control", b"no-cache"),
        (b"etag", etag),
        *_SAFE_HEADERS,
    ]
    return content, headers


# What lies in files: the report on a router, and the state of a learner.


@dataclass(frozen=True)
class _Stored:
    """What was found in files, for the router of a digest."""

    digest: str | None = None
    learner: dict[str, Any] | None = None
    has_report: bool = False


def _read_stored(predictor: Predictor | None, learning: str | Path | None) -> _Stored:
    if predictor is None:
        return _Stored(learner=_read_learner(learning))
    has_report = _find_report(predictor, learning) is not None
    return _Stored(predictor.digest, _read_learner(learning), has_report=has_report)


def _find_report(predictor: Predictor, learning: str | Path | None) -> tuple[Any, str] | None:
    """File system and path of a report: beside the artifact, or with the learner that fitted it."""
    if predictor.folder is not None:
        path = predictor.folder / _REPORT
        # A link could lead out of the folder.
        if path.is_file() and not path.is_symlink():
            return open_location(path)
    if learning is None:
        return None
    try:
        system, root = open_location(learning)
        name = posixpath.join(root, "candidates", predictor.digest, _REPORT)
        return (system, name) if system.get_file_info(name).is_file else None
    except (OSError, MildrouteError):
        return None


def _read_report(predictor: Predictor, learning: str | Path | None) -> bytes | None:
    found = _find_report(predictor, learning)
    if found is None:
        return None
    system, name = found
    try:
        with system.open_input_stream(name) as file:
            return bytes(file.read(_LARGEST_REPORT))
    except OSError:
        return None


def _read_learner(learning: str | Path | None) -> dict[str, Any] | None:
    """The last entry of the trail of a learner, as :mod:`mildroute.learning.trail` writes it."""
    import pyarrow.fs as pafs

    if learning is None:
        return None
    try:
        system, root = open_location(learning)
        found = system.get_file_info(pafs.FileSelector(posixpath.join(root, "trail")))
        last = max(info.path for info in found if info.base_name[:9].isdecimal())
        with system.open_input_stream(last) as file:
            entry = json.loads(file.read())
        shown = ("time", "event", "why", "candidate")
        state = entry["state"]
        stages = state["stages"]
        return {name: entry.get(name) for name in shown} | {
            "phase": state["phase"],
            "share": stages[-1][0] if stages else 0.0,
        }
    except (OSError, MildrouteError, ValueError, TypeError, KeyError, IndexError):
        return {"event": None, "why": "no entry of a learner can be read at page.learning."}


# Figures of a snapshot, as the page shows them.


class _Figures:
    """Samples of a snapshot, by their names; NaN counts as not known."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._samples: dict[str, list[tuple[Mapping[str, str], float]]] = {}
        for *_, samples in snapshot:
            for name, labels, value, _ in samples:
                self._samples.setdefault(name, []).append((labels, value))

    def one(self, name: str) -> float | None:
        """The value of a metric without labels, or none."""
        for _, value in self._samples.get(name, ()):
            return value if math.isfinite(value) else None
        return None

    def total(self, name: str) -> float:
        """The sum over all labels."""
        return sum(value for _, value in self._samples.get(name, ()))

    def by_label(self, name: str, label: str) -> dict[str, float]:
        """Sums by the values of one label."""
        found: dict[str, float] = {}
        for value, amount in self._labeled(name, label):
            found[value] = found.get(value, 0.0) + amount
        return found

    def where(self, name: str, label: str, **wanted: str) -> dict[str, float]:
        """Values by one label, of samples with these other labels."""
        return {
            labels[label]: value
            for labels, value in self._samples.get(name, ())
            if all(labels[other] == each for other, each in wanted.items())
        }

    def _labeled(self, name: str, label: str) -> Iterator[tuple[str, float]]:
        for labels, value in self._samples.get(name, ()):
            if math.isfinite(value):
                yield labels[label], value


def _requests(figures: _Figures) -> dict[str, Any]:
    by_status = figures.by_label("mildroute_requests_total", "status")
    return {
        "total": sum(by_status.values()),
        "by_status": by_status,
        "failed": sum(count for status, count in by_status.items() if status >= "500"),
        "rejected": figures.total("mildroute_rejected_total"),
        "in_flight": figures.one("mildroute_in_flight"),
    }


def _savings(figures: _Figures) -> dict[str, Any]:
    spent = figures.total("mildroute_spend_dollars_total")
    baseline = figures.total("mildroute_baseline_dollars_total")
    names = figures.by_label("mildroute_router_info", "baseline")
    return {
        "baseline": next((name for name in names if name), None),
        "dollars": spent,
        "baseline_dollars": baseline,
        "saved": baseline - spent,
        "saved_share": (baseline - spent) / baseline if baseline > 0 else None,
    }


def _experts(figures: _Figures, pool: ExpertPool) -> list[dict[str, Any]]:
    answered = figures.by_label("mildroute_request_seconds_count", "expert")
    dollars = figures.by_label("mildroute_spend_dollars_total", "expert")
    circuits = figures.by_label("mildroute_breaker_state", "expert")
    states = {value: name for name, value in STATES.items()}
    whole = sum(answered.values())
    # An expert that was removed has still answered.
    names = [*pool.experts, *(name for name in answered if name not in pool.experts)]
    return [
        {
            "name": name,
            "answered": answered.get(name, 0.0),
            "share": answered.get(name, 0.0) / whole if whole else None,
            "dollars": dollars.get(name, 0.0),
            "circuit": states.get(circuits.get(name, math.nan)),
            "failures": figures.where("mildroute_fallbacks_total", "reason", expert=name),
            "broken_streams": figures.where("mildroute_streams_cut_total", "reason", expert=name),
        }
        for name in names
    ]


def _keys(figures: _Figures) -> list[dict[str, Any]]:
    """Keys by what they have spent, most first."""
    dollars = figures.by_label("mildroute_key_spend_dollars_total", "key")
    left = figures.by_label("mildroute_key_budget_left_dollars", "key")
    names = sorted({**dollars, **left}, key=lambda name: (-dollars.get(name, 0.0), name))
    return [
        {"name": name, "dollars": dollars.get(name, 0.0), "left_today": left.get(name)}
        for name in names
    ]


def _target(predictor: Predictor) -> dict[str, Any] | None:
    """What the artifact's own operating point promises, on rows that it was not fitted on."""
    point = predictor.own
    if point is None:
        return None
    promised = {
        "score": point.score,
        "dollars_per_1000": point.dollars_per_1000,
        "saved": point.saved,
        "best_score": point.best_score,
    }
    return {
        "best": predictor.experts[point.best],
        "baseline": predictor.experts[point.baseline],
        **{name: value if math.isfinite(value) else None for name, value in promised.items()},
    }
