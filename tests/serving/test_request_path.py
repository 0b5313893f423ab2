"""How many files a reader has to open to follow one request."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
import numpy as np
import pytest

import mildroute.serving
from mildroute import CostTable, fit
from mildroute.persistence import save_router
from mildroute.serving.app import create_app
from mildroute.serving.config import DecisionLogConfig, FailoverConfig, GatewayConfig
from mildroute.serving.factory import load_gateway
from mildroute.serving.observability.decision_log import read_log
from tests.experts.hostile_server import HostileServer, says
from tests.serving.running import TRUST, Served, until

SERVING = str(Path(mildroute.serving.__file__).parent)
# Today's number: a new file on the way of every request needs a reason.
MAX_FILES = 22


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stored router between two experts, which wins on half of the texts each."""
    folder = tmp_path_factory.mktemp("router") / "artifact"
    words = np.random.default_rng(0).choice(["cat", "mat", "sea", "song"], (80, 6))
    texts = [f"{('sum', 'verse')[row % 2]} {' '.join(words[row])}" for row in range(80)]
    first = [float(row % 2) for row in range(80)]
    columns = {
        "query_id": [str(row) for row in range(80)],
        "input": texts,
        "score:small": first,
        "score:large": [1 - value for value in first],
        "cost:small": [0.001] * 80,
        "cost:large": [0.002] * 80,
    }
    fitted = fit(CostTable.from_data(columns), thorough=False)
    return save_router(fitted.router, folder)


class Executed:
    """Files of the gateway whose functions are called while it is active, in any thread."""

    def __init__(self) -> None:
        self.files: set[str] = set()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(SERVING):
            self.files.add(frame.f_code.co_filename[len(SERVING) + 1 :])


@pytest.fixture
def executed() -> Iterator[Executed]:
    found = Executed()
    threading.setprofile(found)
    yield found
    threading.setprofile(None)
    sys.setprofile(None)


def test_a_chat_completion_executes_few_files(
    router: Path, tmp_path: Path, executed: Executed
) -> None:
    with HostileServer([says("4")]) as expert:
        (tmp_path / "experts.yaml").write_text(
            "experts:\n"
            + "".join(
                f"  {name}: {{kind: openai, base_url: '{expert.url}', model: m}}\n"
                for name in ("small", "large")
            )
        )
        config = GatewayConfig(
            log=DecisionLogConfig(tmp_path / "log"), failover=FailoverConfig(drain_timeout=1.0)
        )
        services = load_gateway(router, tmp_path / "experts.yaml", config)
        with (
            Served(create_app(services)) as server,
            httpx.Client(
                base_url=f"http://127.0.0.1:{server.port}", trust_env=False, verify=TRUST
            ) as http,
        ):
            executed.files.clear()
            body = {"model": "mildroute", "messages": [{"role": "user", "content": "sum cat"}]}
            answer = http.post("/v1/chat/completions", json=body)
            until(lambda: len(list(read_log(tmp_path / "log"))) == 1)
            files = set(executed.files)
        services.manager.close()
    assert answer.status_code == 200
    assert {"api/completions.py", "observability/decision_log.py", "upstream/_http1.py"} <= files
    assert len(files) <= MAX_FILES, sorted(files)
