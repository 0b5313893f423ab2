from __future__ import annotations

import pytest

from mildroute.experts._http import proxy_for
from tests.experts.asking import ask, endpoint
from tests.experts.hostile_server import HostileServer, says


@pytest.mark.parametrize(
    ("settings", "url", "proxy"),
    [
        ({}, "https://example.com/v1", None),
        ({"HTTPS_PROXY": "http://10.0.0.1:3128"}, "https://example.com/v1", "http://10.0.0.1:3128"),
        ({"https_proxy": "10.0.0.1:3128"}, "https://example.com/v1", "http://10.0.0.1:3128"),
        ({"HTTPS_PROXY": "http://10.0.0.1:3128"}, "http://example.com/v1", None),
        (
            {"ALL_PROXY": "socks5://10.0.0.1:1080"},
            "http://example.com/v1",
            "socks5://10.0.0.1:1080",
        ),
        (
            {"ALL_PROXY": "http://10.0.0.1:1", "NO_PROXY": "example.com"},
            "http://api.example.com:8080/v1",
            None,
        ),
        (
            {"ALL_PROXY": "http://10.0.0.1:1", "NO_PROXY": "example.com:8080"},
            "http://example.com:8080/v1",
            None,
        ),
        (
            {"ALL_PROXY": "http://10.0.0.1:1", "NO_PROXY": "other.com, 127.0.0.1"},
            "http://127.0.0.1:8080/v1",
            None,
        ),
        ({"ALL_PROXY": "http://10.0.0.1:1", "NO_PROXY": "::1"}, "http://[::1]:8080/v1", None),
        ({"ALL_PROXY": "http://10.0.0.1:1", "NO_PROXY": "*"}, "http://example.com/v1", None),
    ],
)
def test_the_proxy_is_the_one_that_the_environment_names(
    settings: dict[str, str], url: str, proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert proxy_for(url) == proxy


def test_calls_go_through_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with HostileServer([says("through the proxy")]) as server:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{server.port}")
        assert ask(endpoint("http://models.example/v1"))[0].text == "through the proxy"
    assert server.calls[0].path == "http://models.example/v1/chat/completions"
