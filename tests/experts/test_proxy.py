from __future__ import annotations

import pytest

from tests.experts.asking import ask, endpoint
from tests.experts.hostile_server import HostileServer, says


def test_calls_go_through_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with HostileServer([says("through the proxy")]) as server:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{server.port}")
        assert ask(endpoint("http://models.example/v1"))[0].text == "through the proxy"
    assert server.calls[0].path == "http://models.example/v1/chat/completions"
