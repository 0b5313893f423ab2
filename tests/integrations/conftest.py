"""A stored router that knows two experts: one for sums, one for songs."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from mildroute import FrontierRouter, TextRouter
from mildroute.encoders.hashing import HashingEncoder
from mildroute.persistence import save_router
from mildroute.routers.regression import RegressionRouter


@pytest.fixture(scope="session")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    costs = pd.DataFrame([[0, 1], [1, 0]] * 40, columns=["sums", "songs"])
    router = TextRouter(encoder=HashingEncoder(), router=RegressionRouter()).fit(
        ["add 1 and 1", "sing a song"] * 40, costs
    )
    return save_router(router, tmp_path_factory.mktemp("litellm") / "router")


@pytest.fixture(scope="session")
def priced_artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Songs are always right, and cost a hundred times as much."""
    texts = [f"{kind} {index}" for index in range(40) for kind in ("add 1 and", "sing a song of")]
    costs = pd.DataFrame([[0.0, 0.0], [1.0, 0.0]] * 40, columns=["sums", "songs"])
    router = TextRouter(encoder=HashingEncoder(), router=FrontierRouter()).fit(
        texts, costs, prices=[0.0001, 0.01]
    )
    return save_router(router, tmp_path_factory.mktemp("litellm") / "priced")
