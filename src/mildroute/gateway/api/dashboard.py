"""The web page of the gateway: a playground, live savings and each expert's share."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mildroute import __version__
from mildroute.decision.reload import PredictorManager
from mildroute.gateway.authentication import AdminAuth
from mildroute.gateway.http.endpoint import Handler
from mildroute.gateway.http.errors import APIError, shutting_down
from mildroute.gateway.http.in_flight import InFlightLimiter
from mildroute.gateway.http.origin import check_site, is_local
from mildroute.gateway.http.request import Request
from mildroute.gateway.keys import KeyStore
from mildroute.gateway.observability.metrics import GatewayMetrics
from mildroute.gateway.upstream.pool import ExpertPool

__all__ = ["Dashboard"]

_FOLDER = Path(__file__).parents[1] / "ui"
_TYPES = {"index.html": b"text/html", "page.css": b"text/css", "page.js": b"text/javascript"}
_HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src"
        b" data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


class Dashboard:
    """The web page and the figures that it shows.

    Args:
        auth: Checks the admin key. With ``None``, only this machine can open the page, and only if
            there are no client keys.
        key_store: Client keys.
        manager: Holds the router.
        pool: Experts.
        limiter: Shows whether the gateway is draining.
        metrics: Source of the figures.
    """

    def __init__(
        self,
        auth: AdminAuth | None,
        key_store: KeyStore,
        manager: PredictorManager,
        pool: ExpertPool,
        limiter: InFlightLimiter,
        metrics: GatewayMetrics,
    ) -> None:
        self._auth = auth
        self._key_store = key_store
        self._manager = manager
        self._pool = pool
        self._limiter = limiter
        self._metrics = metrics
        self._files = {name: (_FOLDER / name).read_bytes() for name in _TYPES}

    def handlers(self) -> dict[str, dict[str, Handler]]:
        """Return the handlers of each path, by method."""
        return {
            "/": {"GET": self.page},
            "/ui/{name}": {"GET": self.asset},
            "/status": {"GET": self.status},
        }

    def check(self, request: Request) -> None:
        """Raise an APIError if the request is not allowed to see the figures."""
        if self._auth is not None:
            self._auth.check(request)
        else:
            self._check_host(request)
            check_site(request)

    def guard(self, handler: Handler) -> Handler:
        """Return a handler for the admin port with the access checks of the page."""

        async def guarded(request: Request) -> None:
            if self._key_store.is_open:
                self.check(request)
            if self._limiter.is_draining:
                raise shutting_down()
            await handler(request)

        return guarded

    async def page(self, request: Request) -> None:
        """Send the page. It contains no figures, so a browser can load it without a key."""
        await self._send_file(request, "index.html")

    async def asset(self, request: Request) -> None:
        """Send the script or the style sheet."""
        await self._send_file(request, request.scope["path_params"]["name"])

    async def status(self, request: Request) -> None:
        """Send all figures as JSON."""
        self.check(request)
        headers = [
            (b"content-type", b"application/json"),
            (b"cache-control", b"no-store"),
            *_HEADERS,
        ]
        await request.send_response(200, headers, json.dumps(self._figures()).encode())

    def _check_host(self, request: Request) -> None:
        if not self._key_store.is_open:
            raise APIError(
                403,
                "the page requires an admin key, but this gateway has only client keys; set"
                " admin_key_env to the variable that holds one.",
                code="no_admin_key",
            )
        if not is_local(request):
            raise APIError(
                403,
                "without keys, only this machine can open the page, under a loopback name such as"
                " 127.0.0.1 or localhost; set admin_key_env to the variable that holds an admin"
                " key.",
                code="not_local",
            )

    async def _send_file(self, request: Request, name: str) -> None:
        if self._auth is None:
            self._check_host(request)
        if name not in self._files:
            raise APIError(404, "the page has no such file; see /openapi.json.")
        content_type = _TYPES[name] + b"; charset=utf-8"
        headers = [(b"content-type", content_type), (b"cache-control", b"no-cache"), *_HEADERS]
        await request.send_response(200, headers, self._files[name])

    def _figures(self) -> dict[str, Any]:
        samples = self._samples()
        statuses = samples("mildroute_requests_total", "status")
        spent = sum(samples("mildroute_spend_dollars_total", "expert").values())
        baseline = sum(samples("mildroute_baseline_dollars_total", "expert").values())
        predictor = self._manager.predictor
        return {
            "object": "mildroute.status",
            "version": __version__,
            "needs_client_key": not self._key_store.is_open,
            "router": None if predictor is None else predictor.digest,
            "requests": {
                "total": sum(statuses.values()),
                "failed": sum(n for status, n in statuses.items() if status >= "500"),
                "rejected": sum(samples("mildroute_rejected_total", "code").values()),
            },
            "savings": {
                "baseline": None if self._pool.baseline is None else self._pool.baseline.name,
                "dollars": spent,
                "baseline_dollars": baseline,
                "saved": baseline - spent,
                "saved_share": (baseline - spent) / baseline if baseline > 0 else None,
            },
            "experts": self._experts(
                samples("mildroute_request_seconds_count", "expert"),
                samples("mildroute_spend_dollars_total", "expert"),
            ),
        }

    def _experts(
        self, answered: dict[str, float], dollars: dict[str, float]
    ) -> list[dict[str, Any]]:
        total = sum(answered.values())
        circuits = self._pool.circuits()
        # Experts that have since been removed may have answered earlier requests.
        names = [
            *self._pool.experts,
            *(name for name in answered if name not in self._pool.experts),
        ]
        return [
            {
                "name": name,
                "answered": answered.get(name, 0.0),
                "share": answered.get(name, 0.0) / total if total else None,
                "dollars": dollars.get(name, 0.0),
                "circuit": circuits.get(name),
            }
            for name in names
        ]

    def _samples(self) -> Callable[[str, str], dict[str, float]]:
        """Return a function that sums a metric by the values of a label."""
        sums: dict[tuple[str, str], dict[str, float]]
        sums = defaultdict(lambda: defaultdict(float))
        for family in self._metrics.current().collect():
            for sample in family.samples:
                for label, value in sample.labels.items():
                    if math.isfinite(sample.value):
                        sums[sample.name, label][value] += sample.value
        return lambda metric, label: dict(sums[metric, label])
