"""A stored router that knows two experts: one for sums, one for songs."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from mildroute.encoders.hashing import HashingEncoder
from mildroute.encoders.text_router import TextRouter
from mildroute.routers.artifact import save
from mildroute.routers.regression import RegressionRouter


@pytest.fixture(scope="session")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    costs = pd.DataFrame([[0, 1], [1, 0]] * 40, columns=["sums", "songs"])
    router = TextRouter(encoder=HashingEncoder(), router=RegressionRouter()).fit(["add 1 and 1", "sing a song"] * 40, costs)
    return save(router, tmp_path_factory.mktemp("litellm") / "router")
