"""Tests of coroutines run on asyncio: ``pytestmark = pytest.mark.anyio`` in their file."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def connections_of_litellm() -> Iterator[None]:
    """Drop those that LiteLLM keeps for each event loop until the process ends; ours have ended."""
    yield
    if (litellm := sys.modules.get("litellm")) is not None:
        litellm.in_memory_llm_clients_cache.flush_cache()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            for _ in range(3):
                gc.collect()
