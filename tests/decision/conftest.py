"""Tests of coroutines run on asyncio: ``pytestmark = pytest.mark.anyio`` in their file."""

from __future__ import annotations

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
