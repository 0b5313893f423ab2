"""A stored router that knows two experts: one for sums, one for songs."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from mildroute import TextRouter
from mildroute.encoders.text import HashingEncoder
from mildroute.persistence import save_router
from mildroute.routers.regression import RegressionRouter


@pytest.fixture(scope="session")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    costs = pd.DataFrame([[0, 1], [1, 0]] * 40, columns=["sums", "songs"])
    router = TextRouter(encoder=HashingEncoder(), router=RegressionRouter()).fit(
        ["add 1 and 1", "sing a song"] * 40, costs
    )
    return save_router(router, tmp_path_factory.mktemp("litellm") / "router")
