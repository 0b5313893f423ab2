"""Short ways to make an endpoint and to ask it."""

from __future__ import annotations

import asyncio
from typing import Any

from mildroute.costs.prices import Price
from mildroute.experts.base import Answer, Query
from mildroute.experts.clock import Clock
from mildroute.experts.openai import OpenAIExpert
from mildroute.experts.retry import Backoff
from mildroute.experts.secrets import Secret
from mildroute.experts.settings import CallSettings, ModelSettings, Timeouts
from tests.experts.times import InstantTime

QUERY = Query("q1", "2 + 2?")
PRICE = Price(1.0, 10.0)


def endpoint(
    url: str,
    *,
    secret: Secret | None = None,
    clock: Clock | None = None,
    calls: CallSettings | None = None,
    retries: int = 4,
    total: float = 60.0,
    **model: Any,
) -> OpenAIExpert:
    """Priced, bounded to 100 tokens, and in no need to wait."""
    settings = ModelSettings(
        url, "tiny", **{"price": PRICE, "request": {"max_tokens": 100}, **model}
    )
    calls = calls or CallSettings(timeouts=Timeouts(total), backoff=Backoff(retries=retries))
    return OpenAIExpert("small", settings, calls, secret, clock or InstantTime().clock)


def ask(expert: OpenAIExpert, *queries: Query) -> list[Answer]:
    """Ask, close, and give the answers."""

    async def run() -> list[Answer]:
        try:
            return await expert.answer(list(queries) or [QUERY])
        finally:
            await expert.close()

    return asyncio.run(run())
