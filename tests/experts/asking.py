"""Short ways to make an endpoint and to ask it."""

from __future__ import annotations

import asyncio
from typing import Any

from mildroute.costs.prices import Price
from mildroute.experts.backoff import Backoff
from mildroute.experts.call_settings import CallSettings, Timeouts
from mildroute.experts.endpoint import Endpoint
from mildroute.experts.model_settings import ModelSettings
from mildroute.experts.protocol import Answer, Query
from mildroute.experts.secret import Secret
from mildroute.experts.timing import Timing
from tests.experts.times import InstantTime

QUERY = Query("q1", "2 + 2?")
PRICE = Price(1.0, 10.0)


def endpoint(
    url: str,
    *,
    secret: Secret | None = None,
    timing: Timing | None = None,
    calls: CallSettings | None = None,
    retries: int = 4,
    total: float = 60.0,
    **model: Any,
) -> Endpoint:
    """Priced, bounded to 100 tokens, and in no need to wait."""
    settings = ModelSettings(url, "tiny", **{"price": PRICE, "request": {"max_tokens": 100}, **model})
    calls = calls or CallSettings(timeouts=Timeouts(total), backoff=Backoff(retries=retries))
    return Endpoint("small", settings, calls, secret, timing or InstantTime().timing)


def ask(expert: Endpoint, *queries: Query) -> list[Answer]:
    """Ask, close, and give the answers."""

    async def run() -> list[Answer]:
        try:
            return await expert.answer(list(queries) or [QUERY])
        finally:
            await expert.close()

    return asyncio.run(run())
