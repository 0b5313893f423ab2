"""A stored router that knows two experts: one for sums, one for songs."""

from __future__ import annotations

from pathlib import Path

import pytest

from mildroute import FrontierRouter, TextRouter
from mildroute.encoders.hashing import HashingEncoder
from mildroute.persistence import save_router
from mildroute.routers.regression import RegressionRouter


@pytest.fixture(scope="session")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    router = TextRouter(encoder=HashingEncoder(), router=RegressionRouter()).fit(
        ["add 1 and 1", "sing a song"] * 40, [[0, 1], [1, 0]] * 40, experts=["sums", "songs"]
    )
    return save_router(router, tmp_path_factory.mktemp("litellm") / "router")


@pytest.fixture(scope="session")
def priced_artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Songs are always right, and cost a hundred times as much."""
    texts = [f"{kind} {index}" for index in range(40) for kind in ("add 1 and", "sing a song of")]
    router = TextRouter(encoder=HashingEncoder(), router=FrontierRouter()).fit(
        texts,
        [[0.0, 0.0], [1.0, 0.0]] * 40,
        prices=[0.0001, 0.01],
        experts=["sums", "songs"],
    )
    return save_router(router, tmp_path_factory.mktemp("litellm") / "priced")
