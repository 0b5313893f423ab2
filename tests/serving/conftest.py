"""Tests of coroutines run on asyncio: ``pytestmark = pytest.mark.anyio`` in their file."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.postgres import PostgresServer


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    from tests.support.postgres import postgres_server

    with postgres_server() as found:
        yield found


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/test.db"
    return request.getfixturevalue("postgres").new_database()  # type: ignore[no-any-return]


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
